"""Grammars of the names that people and programs choose (docs/reference/protocol.md, "Bounds")."""

import re
from typing import Final

from relayd.protocol.limits import IDENTITY_CHARACTERS_MAX

_RELAY_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_COMMAND_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,128}", re.ASCII)


def is_relay_name(name: str) -> bool:
    """Whether a relay can have this name: 1 to 64 of `a-z 0-9 . _ -`, beginning with a letter or digit."""
    return _RELAY_NAME.fullmatch(name) is not None


def is_identity(text: str) -> bool:
    """Whether a worker, asker, author or producer can be called so: 1 to 128 printable characters, not blank."""
    return 1 <= len(text) <= IDENTITY_CHARACTERS_MAX and text.isprintable() and not text.isspace()


def is_command_id(text: str) -> bool:
    """Whether a command can have this id: 8 to 128 of `A-Z a-z 0-9 _ -`."""
    return _COMMAND_ID.fullmatch(text) is not None
