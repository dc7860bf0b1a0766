"""Making sealed segments (docs/reference/journal.md, "Sealed segments").

`prepare_sealed` compresses, syncs and compares; it touches only files that no longer change and may run anywhere.
`install_sealed` changes names and is one of the ordered jobs of its relay. What a crash between any two calls leaves
opens again: the rotated file stays until the sealed one has its name on disk. Memory: one frame and one record.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from relayd.journal.frames import FRAME_PLAIN_BYTES, LEVEL, compress_frame
from relayd.journal.groups import GroupDamageError, Place, read_payloads
from relayd.journal.names import NEW, SegmentKind, SegmentName
from relayd.journal.sealed import (
    SEALED_FORMAT,
    FrameEntry,
    SealedError,
    SealedIndex,
    encode_index,
    new_digest,
    read_frame,
    read_index,
    verify_sealed,
)
from relayd.journal.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from relayd.journal.storage import Directory, File
from relayd.protocol.event import RECORD_HEADER, RECORD_HEADER_BYTES, Buffer, RecordError
from relayd.protocol.limits import EVENT_BODY_BYTES_MAX


class Prepared(NamedTuple):
    """A sealed copy of the rotated segment `name`, synced and compared: `size` bytes.

    `standing`: it has its name already, left so by a crash. Otherwise it is unfinished, and `in_the_way` says whether a
    file that is not that copy has its name.
    """

    name: SegmentName
    size: int
    standing: bool
    in_the_way: bool


class _Plain(NamedTuple):
    """The records of one frame to be."""

    first: int
    last: int
    records: bytes


def seal_rotated(journal: Directory, name: SegmentName, store: bytes, set_aside: Callable[[str], None]) -> int:
    """Seals a rotated segment, preparing and installing in one go; the bytes of the sealed file.

    Raises as `prepare_sealed` and `install_sealed`.
    """
    prepared = prepare_sealed(journal, name, store)
    install_sealed(journal, prepared, set_aside)
    return prepared.size


def prepare_sealed(journal: Directory, name: SegmentName, store: bytes, level: int = LEVEL) -> Prepared:
    """Compresses the rotated segment `name` into `….log.zst.new`, synced, read back and compared.

    Where a sealed file of that range stands already, it is read and compared instead. Nothing but the unfinished file
    is changed, and that is removed where this fails. Raises OSError; GroupDamageError, where the rotated file is
    damaged; SealedError, where what was written does not read back the same.
    """
    target = _sealed_name(name)
    with contextlib.closing(journal.open(name.text, "read")) as file:
        header = decode_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
        if header is None or header.store != store:
            raise GroupDamageError("no segment of this relay begins here", 0, name.first)
        records = _records_of(file, header.segment, name)
        standing = journal.stat(target.text)
        if standing is not None and _same_records(journal, target, store, records()):
            return Prepared(name, standing[1], standing=True, in_the_way=False)
        size = _write_new(journal, target, (store, header.segment), records(), level)
    return Prepared(name, size, standing=False, in_the_way=standing is not None)


def install_sealed(journal: Directory, prepared: Prepared, set_aside: Callable[[str], None]) -> bool:
    """Gives a prepared sealed segment its name, syncs the directory, and unlinks the rotated file.

    `set_aside` moves the file of a name to quarantine: it is called for one that stands in the way, because repair
    deletes nothing. False: the rotated file has been collected meanwhile, and the prepared one is removed. Raises
    OSError.
    """
    target = _sealed_name(prepared.name)
    if journal.stat(prepared.name.text) is None:
        if not prepared.standing:
            journal.unlink(target.text + NEW)
        return False
    if prepared.in_the_way:
        set_aside(target.text)
    if not prepared.standing:
        journal.replace(target.text + NEW, target.text)
    journal.sync()
    journal.unlink(prepared.name.text)
    return True


def write_sealed(  # noqa: PLR0917 - each names one part of the file
    journal: Directory, first: int, last: int, store: bytes, segment: bytes, records: Iterable[Buffer]
) -> int:
    """Writes the records `first` to `last` as a sealed segment, under its name and on disk; its bytes.

    `records`: the stream of whole records, in pieces cut anywhere. A file that has the name is replaced. Raises
    OSError; RecordError, where `records` are not those; SealedError, where what was written does not read back the
    same.
    """
    target = SegmentName(SegmentKind.SEALED, first, last)
    size = _write_new(journal, target, (store, segment), records, LEVEL)
    journal.replace(target.text + NEW, target.text)
    journal.sync()
    return size


def _records_of(file: File, segment: bytes, name: SegmentName) -> Callable[[], Iterator[memoryview]]:
    """Reads the records of a rotated file from its beginning, each time it is called."""
    return lambda: read_payloads(file, segment, Place(SEGMENT_HEADER_BYTES, name.first), file.size())


def _sealed_name(name: SegmentName) -> SegmentName:
    return SegmentName(SegmentKind.SEALED, name.first, name.last)


def _same_records(journal: Directory, target: SegmentName, store: bytes, records: Iterable[Buffer]) -> bool:
    """Whether the sealed file that stands is whole and holds just these records."""
    with contextlib.closing(journal.open(target.text, "read")) as file:
        if verify_sealed(file, target, store):
            return False
        stream = new_digest()
        for piece in records:
            stream.update(piece)
        return read_index(file, target, store).stream == stream.digest()


def _write_new(
    journal: Directory, target: SegmentName, ids: tuple[bytes, bytes], records: Iterable[Buffer], level: int
) -> int:
    name = target.text + NEW
    try:
        file = journal.open(name, "create")
    except FileExistsError:
        journal.unlink(name)
        file = journal.open(name, "create")
    try:
        with contextlib.closing(file):
            index = _write_frames(file, target, ids, _cut_frames(records, target), level)
            file.sync()
            _compare(file, index, target)
            return file.size()
    except BaseException:
        with contextlib.suppress(OSError):
            journal.unlink(name)
        raise


def _write_frames(
    file: File, target: SegmentName, ids: tuple[bytes, bytes], frames: Iterable[_Plain], level: int
) -> SealedIndex:
    entries: list[FrameEntry] = []
    stream = new_digest()
    offset = 0
    for plain in frames:
        stored = compress_frame(plain.records, level)
        stream.update(plain.records)
        file.write((stored,), offset)
        entries.append(FrameEntry(plain.first, offset, len(stored), len(plain.records)))
        offset += len(stored)
    count = target.last - target.first + 1
    index = SealedIndex(SEALED_FORMAT, *ids, target.first, target.last, count, tuple(entries), stream.digest())
    file.write((encode_index(index),), offset)
    return index


def _compare(file: File, index: SealedIndex, target: SegmentName) -> None:
    """What was written reads back as what was meant. Raises SealedError."""
    if read_index(file, target, index.store) != index:
        raise SealedError("the index does not read back as it was written", 0)
    stream = new_digest()
    for number in range(len(index.frames)):
        stream.update(read_frame(file, index, number))
    if stream.digest() != index.stream:
        raise SealedError("the records do not read back as they were written", 0)


def _cut_frames(records: Iterable[Buffer], target: SegmentName) -> Iterator[_Plain]:
    """Cuts a stream of records into frames of whole ones. Raises RecordError where it is not the target's records."""
    held = bytearray()
    first = expected = target.first
    done = passed = 0
    """`held` begins at byte `passed` of the stream; its first `done` bytes are whole records."""
    for piece in records:
        held += piece
        while len(held) - done >= RECORD_HEADER_BYTES:
            length, ordinal, _ = RECORD_HEADER.unpack_from(held, done)
            if not 1 <= length <= EVENT_BODY_BYTES_MAX or ordinal != expected:
                raise RecordError(f"no record with ordinal {expected} stands where it belongs", passed + done)
            end = done + RECORD_HEADER_BYTES + length
            if done and end > FRAME_PLAIN_BYTES:
                yield _Plain(first, expected - 1, bytes(memoryview(held)[:done]))
                del held[:done]
                first, passed, done = expected, passed + done, 0
                continue
            if end > len(held):
                break
            done, expected = end, expected + 1
    if done < len(held) or expected != target.last + 1:
        raise RecordError(f"the records end with ordinal {expected - 1} where {target.last} belongs", passed + done)
    yield _Plain(first, expected - 1, bytes(held))
