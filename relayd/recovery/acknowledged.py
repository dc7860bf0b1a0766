"""The file that keeps how far each consumer has acknowledged (docs/reference/journal.md, "Snapshots").

The one fact of a relay that is no event. Where it is missing or does not check, nothing is acknowledged: that costs
repeats and room, never an event.
"""

from typing import Final

import msgspec

from relayd.journal.active import open_fresh
from relayd.journal.names import ACKNOWLEDGED, NEW
from relayd.journal.storage import Directory
from relayd.protocol.cursor import Cursor
from relayd.protocol.event import Buffer
from relayd.protocol.kinds import StoreId
from relayd.recovery.checked_map import FORMAT, CheckedMapError, frame_map, unframe_map
from relayd.recovery.snapshot import check_format
from relayd.relay.acknowledged import Acknowledgements

MAGIC: Final = b"RLYACKD1"


class AcknowledgedFile(msgspec.Struct, frozen=True):
    """What the file's map holds."""

    format: int
    store: StoreId
    acknowledged: Cursor
    consumers: dict[str, Cursor]

    @property
    def cursors(self) -> list[Cursor]:
        """Every cursor in it: each names an event that was answered."""
        return [self.acknowledged, *self.consumers.values()]


_decode: Final = msgspec.msgpack.Decoder(AcknowledgedFile).decode


def encode_acknowledged(store: bytes, acknowledgements: Acknowledgements) -> bytes:
    """The whole file."""
    said = AcknowledgedFile(FORMAT, store, acknowledgements.acknowledged, acknowledgements.consumers)
    return frame_map(MAGIC, msgspec.msgpack.encode(said))


def decode_acknowledged(content: Buffer) -> AcknowledgedFile:
    """Reads the whole file. Raises CheckedMapError, and LaterFormatError where it is intact and of a later format."""
    encoded = unframe_map(MAGIC, content)
    try:
        check_format(encoded)
        said = _decode(encoded)
    except msgspec.DecodeError as error:
        raise CheckedMapError(f"its map is not that of acknowledgements: {error}") from error
    if any(cursor.digest is None or (cursor.ordinal == 0) != (not any(cursor.digest)) for cursor in said.cursors):
        raise CheckedMapError("a cursor in it names no event")
    return said


def replace_acknowledged(relay: Directory, store: bytes, acknowledgements: Acknowledgements) -> None:
    """Replaces the file whole; it is on disk when this returns. Raises OSError: then the old one may still count."""
    replace_content(relay, encode_acknowledged(store, acknowledgements))


def replace_content(relay: Directory, content: bytes) -> None:
    """`replace_acknowledged` for a file that is encoded already."""
    name = ACKNOWLEDGED + NEW
    file = open_fresh(relay, name)
    try:
        file.write((content,), 0)
        file.sync()
    finally:
        file.close()
    relay.replace(name, ACKNOWLEDGED)
    relay.sync()
