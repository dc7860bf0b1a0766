"""The bounds that the wire and the disk share (docs/reference/protocol.md, "Bounds").

Sizes are bytes, times are seconds unless the name says otherwise. What an administrator may change is in
relayd/daemon/settings.py; what stands here is part of the protocol or of the format and is the same everywhere.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

FRAME_BYTES_MAX: Final = 8 * MIB
NESTING_MAX: Final = 64
CONTAINERS_MAX: Final = 524_288
"""Maps and arrays of a frame: each costs a decoder some eighty times the byte it may be written with."""

EVENT_BODY_BYTES_MAX: Final = 2 * MIB
COMMAND_BYTES_MAX: Final = 1 * MIB
"""Bound of a command; surfaces and envelopes have the same one."""

PAGE_BYTES_MAX: Final = 4 * MIB
PAGE_BYTES_DEFAULT: Final = 1 * MIB
WAIT_MS_MAX: Final = 60_000
EXPORT_PART_BYTES: Final = 1 * MIB
EXPORT_SECONDS: Final = 60.0
"""A state of several parts is kept so long after it was last asked for."""

REQUEST_ID_MAX: Final = 2**32 - 1
SEQUENCE_MAX: Final = 2**63
ORDINAL_MAX: Final = 2**64 - 2
"""The last ordinal ever given out; 2**64 - 1 is reserved (docs/reference/journal.md, "Record")."""

IDENTITY_CHARACTERS_MAX: Final = 128
KIND_CHARACTERS_MAX: Final = 64
RELAY_NAME_CHARACTERS_MAX: Final = 64

PRODUCERS_REMEMBERED: Final = 1024
"""Fold counts with it, so it is part of the format and no setting."""

TERMINAL_IDS_REMEMBERED: Final = 8192
SIDE_TASKS_STARTED_MAX: Final = 4
STATE_BYTES_MAX: Final = 15 * MIB
"""Requests are held to this much state, so that its snapshot stays below the format's 16 MiB."""

HELLO_SECONDS_MAX: Final = 10.0
FRAME_SECONDS_MAX: Final = 30.0
CLAMP_BYTES_MIN: Final = 4 * KIB
"""Clamping cuts no string or binary below this."""
