"""Cursors, and the one decision what a reader gets (docs/reference/protocol.md, "Cursors and resuming").

A cursor names the last event its holder has: `(ordinal, digest)`, or `(ordinal, None)` where the digest is not
known. `plan_resume` is pure and names no transport: the socket and server-sent events both print its decision.
"""

import re
from typing import Annotated, Final, NamedTuple, assert_never

import msgspec

Digest = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]

_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,19})(?:-([0-9a-f]{32}))?", re.ASCII)
_U64_MAX: Final = 2**64 - 1


class Cursor(NamedTuple):
    """The last event a holder has; ordinal 0 is genesis, before any event."""

    ordinal: Annotated[int, msgspec.Meta(ge=0)]
    digest: Digest | None = None


ZERO_DIGEST: Final = bytes(16)
GENESIS: Final = Cursor(0, ZERO_DIGEST)


def parse_cursor(text: str) -> Cursor | None:
    """Reads the text form, `42` or `42-<32 lower-case hex digits>`; None where it is no cursor by the grammar."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    ordinal = int(found[1])
    if ordinal > _U64_MAX:
        return None
    return Cursor(ordinal, None if found[2] is None else bytes.fromhex(found[2]))


def format_cursor(cursor: Cursor) -> str:
    """The text form that `parse_cursor` reads."""
    return str(cursor.ordinal) if cursor.digest is None else f"{cursor.ordinal}-{cursor.digest.hex()}"


class History(NamedTuple):
    """What a relay can still show: everything after `evicted`, up to and with `latest` (the synced frontier)."""

    evicted: Cursor
    latest: Cursor


class Span(NamedTuple):
    """Ordinals `first` to `last`, both included."""

    first: int
    last: int


class Found(NamedTuple):
    """What was looked up for a cursor: the digest at its ordinal, and the unreadable span right after it."""

    digest: bytes | None = None
    unreadable: Span | None = None


class Replay(NamedTuple):
    """Everything after `after` is sent, then live. `verified`: the cursor gave a digest and it is right."""

    after: int
    latest: Cursor
    verified: bool


class Live(NamedTuple):
    """The reader has everything; nothing is written."""

    latest: Cursor
    verified: bool


class Gap(NamedTuple):
    """Events are lost to this reader: `lost`; a reader at `resume` is served completely from there."""

    reason: str
    lost: Span
    resume: Cursor
    latest: Cursor


class Refused(NamedTuple):
    """This is no place in this history: `malformed`, `ahead` or `digest_mismatch`."""

    reason: str
    latest: Cursor


Decision = Replay | Live | Gap | Refused


def plan_resume(history: History, cursor: Cursor | str, found: Found) -> Decision:
    """Decides what a reader at `cursor` gets; the first row of the table that fits.

    `cursor` as text is read by the grammar first (row 1). `found` is what the caller looked up at the cursor's
    ordinal. Raises nothing.
    """
    if isinstance(cursor, str):
        parsed = parse_cursor(cursor)
        if parsed is None:
            return Refused("malformed", history.latest)
        cursor = parsed
    evicted, latest = history
    if cursor.ordinal > latest.ordinal:
        return Refused("ahead", latest)
    known = cursor.digest is not None and found.digest is not None
    if known and cursor.digest != found.digest:
        return Refused("digest_mismatch", latest)
    if cursor.ordinal == latest.ordinal:
        return Live(latest, known)
    below = cursor.ordinal < evicted.ordinal
    without_its_digest = cursor.ordinal == evicted.ordinal and not known and cursor.digest != evicted.digest
    if below or (evicted.ordinal > 0 and without_its_digest):
        return Gap("evicted", Span(min(cursor.ordinal + 1, evicted.ordinal), evicted.ordinal), evicted, latest)
    if found.unreadable is not None:
        return Gap("unreadable", found.unreadable, Cursor(found.unreadable.last), latest)
    return Replay(cursor.ordinal, latest, known)


def describe(decision: Decision) -> str:
    """The decision in a word or two, as the tables and logs name it."""
    match decision:
        case Replay():
            return "replay"
        case Live():
            return "live"
        case Gap():
            return f"gap {decision.reason}"
        case Refused():
            return f"refused {decision.reason}"
        case _ as never:
            assert_never(never)
