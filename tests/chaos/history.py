"""What is on disk and what was said, compared; nothing here is relayd's own code."""

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard


class Stored(NamedTuple):
    """One record on disk."""

    digest: bytes
    body: bytes

    @property
    def fields(self) -> list:
        return msgspec.msgpack.decode(self.body)


class Sent(NamedTuple):
    """An application's event: who sent it, its number there, and its text."""

    client: str
    number: int
    text: str


@dataclass
class Said:
    """What one client was told of one relay.

    `answered`: its events by the ordinals they were answered with. `shown`: digests by ordinal, as pages had them.
    `stood`: a producer's sequence with the cursor it was told. `wrong`: answers that may not be.
    """

    client: str
    relay: str
    sent: dict[int, str] = field(default_factory=dict)
    answered: dict[int, int] = field(default_factory=dict)
    through: dict[int, bytes] = field(default_factory=dict)
    shown: dict[int, bytes] = field(default_factory=dict)
    shown_events: dict[int, Sent] = field(default_factory=dict)
    stood: list[tuple[int, int, bytes]] = field(default_factory=list)
    duplicates: int = 0
    acknowledged: int = 0
    gaps: int = 0
    wrong: list[str] = field(default_factory=list)


# Reading files


def _records(data: bytes, where: str) -> dict[int, Stored]:
    found, at = {}, 0
    while at < len(data):
        length, ordinal = struct.unpack_from("<IQ", data, at)
        digest, body = data[at + 12 : at + 28], data[at + 28 : at + 28 + length]
        said = hashlib.blake2b(struct.pack("<Q", ordinal) + body, digest_size=16, person=b"relayd.event.v1").digest()
        assert len(body) == length, f"{where}: ordinal {ordinal} is cut"
        assert digest == said, f"{where}: ordinal {ordinal} has another digest"
        assert ordinal not in found, f"{where}: ordinal {ordinal} twice"
        found[ordinal] = Stored(digest, body)
        at += 28 + length
    return found


def read_groups(data: bytes, where: str) -> dict[int, Stored]:
    """The records of active.log or a rotated segment, up to the first group that is not whole."""
    assert data[:8] == b"RLYSEG01", f"{where}: no segment header"
    assert struct.unpack_from("<I", data, 40)[0] == zlib.crc32(data[:40]), f"{where}: its header does not check"
    segment, at, found = data[24:40], 48, {}
    while len(data) >= at + 64 and data[at : at + 4] == b"RLYG":
        header = data[at : at + 64]
        _, offset, first = struct.unpack_from("<4s20xQQ", header)
        count, length, crc, _, own = struct.unpack_from("<IIIII", header, 40)
        payload = data[at + 64 : at + 64 + length]
        if own != zlib.crc32(header[:56]) or header[8:24] != segment or offset != at or crc != zlib.crc32(payload):
            break
        records = _records(payload, where)
        assert list(records) == list(range(first, first + count)), f"{where}: a group with other ordinals"
        found |= records
        at += 64 + length
    return found


def read_sealed(data: bytes, where: str) -> dict[int, Stored]:
    """The records of a sealed segment: every frame, as `zstd -dc` gives them."""
    assert data[-8:] == b"RLYINDX1", f"{where}: no index"
    end = len(data) - struct.unpack_from("<I", data, len(data) - 12)[0]
    plain, at = b"", 0
    while at < end:
        unpacking = zstandard.ZstdDecompressor().decompressobj()
        plain += unpacking.decompress(data[at:end])
        at = end - len(unpacking.unused_data)
    return _records(plain, where)


class Disk(NamedTuple):
    """All records of one relay, and how many files of each sort hold them."""

    records: dict[int, Stored]
    rotated: int
    sealed: int


def read_relay(relay: Path) -> Disk:
    """Everything in a relay's journal, as `read_journal`."""
    return read_journal({file.name: file.read_bytes() for file in (relay / "journal").iterdir()})


def read_journal(files: Mapping[str, bytes]) -> Disk:
    """Everything in the files of a journal; fails where an ordinal is there in two ways, or one between is missing."""
    found: dict[int, Stored] = {}
    rotated = sealed = 0
    for name, content in sorted(files.items()):
        if name.endswith(".log.zst"):
            here, sealed = read_sealed(content, name), sealed + 1
        elif name.endswith(".log"):
            here, rotated = read_groups(content, name), rotated + (name != "active.log")
        else:
            assert name.endswith(".new"), f"a file of no sort: {name}"
            continue
        if name != "active.log" and here:
            assert [int(name[:20]), int(name[21:41])] == [min(here), max(here)], f"{name}: its name lies"
        for ordinal in here.keys() & found.keys():
            assert found[ordinal] == here[ordinal], f"ordinal {ordinal} is there in two ways"
        found |= here
    ordinals = sorted(found)
    assert ordinals == list(range(ordinals[0], ordinals[-1] + 1)), "there is a hole"
    return Disk(found, rotated, sealed)


# Comparing


class Checked(NamedTuple):
    """One relay's numbers."""

    relay: str
    events: int
    on_disk: int
    collected: int
    rotated: int
    sealed: int
    answered: int
    answered_gone: int
    shown: int
    duplicates: int


def sent_of(stored: Stored) -> Sent | None:
    """The application's event in a record; None for relayd's own."""
    fields = stored.fields
    if fields[1].startswith("relay."):
        return None
    client, number, text = fields[2]
    return Sent(client, number, text)


def check(relay: str, disk: Disk, said: Iterable[Said]) -> Checked:
    """Asserts everything that is always true (I1 to I6) of one relay."""
    said = list(said)
    first, last = min(disk.records), max(disk.records)
    events = {ordinal: sent_of(stored) for ordinal, stored in disk.records.items()}
    # What was collected is known from those who read it before.
    for one in said:
        for ordinal, event in one.shown_events.items():
            known = events.setdefault(ordinal, event)
            assert known == event, f"{relay}: {one.client} was shown another event at {ordinal}"
    gone = _check_answered(relay, disk, said, events, first)
    _check_only_what_was_sent(relay, said, events)
    _check_order(relay, said, events, disk)
    shown = _check_shown(relay, disk, said, last)
    return Checked(
        relay,
        last,
        len(disk.records),
        first - 1,
        disk.rotated,
        disk.sealed,
        sum(len(one.answered) for one in said),
        gone,
        shown,
        sum(one.duplicates for one in said),
    )


def _check_answered(relay: str, disk: Disk, said: list[Said], events: dict, first: int) -> int:
    """I1, I6."""
    gone = 0
    for one in said:
        for ordinal, number in one.answered.items():
            if ordinal < first and ordinal not in events:
                gone += 1
                continue
            expected = Sent(one.client, number, one.sent[number])
            assert events.get(ordinal) == expected, f"{relay}: {one.client} was answered {number} at {ordinal}"
        for ordinal, digest in one.through.items():
            if ordinal >= first:
                assert disk.records[ordinal].digest == digest, f"{relay}: another digest at {ordinal}"
        for sequence, ordinal, digest in one.stood:
            if ordinal >= first:
                stored = disk.records[ordinal]
                assert stored.digest == digest, f"{relay}: {one.client} stood at another event"
                assert stored.fields[4] == [one.client, sequence], f"{relay}: {one.client} stood elsewhere"
    return gone


def _check_only_what_was_sent(relay: str, said: list[Said], events: dict[int, Sent | None]) -> None:
    """I2."""
    sent = {one.client: one.sent for one in said if one.sent}
    seen: set[tuple[str, int]] = set()
    for ordinal, event in events.items():
        if event is None:
            continue
        assert sent[event.client].get(event.number) == event.text, f"{relay}: ordinal {ordinal} was never sent so"
        assert event[:2] not in seen, f"{relay}: {event.client} {event.number} is there twice"
        seen.add(event[:2])


def _check_order(relay: str, said: list[Said], events: dict[int, Sent | None], disk: Disk) -> None:
    """I4: each sender's events by their numbers; a producer's without a hole, under its own sequence."""
    for one in said:
        ordinals = [ordinal for ordinal, event in sorted(events.items()) if event and event.client == one.client]
        numbers = [events[ordinal].number for ordinal in ordinals]
        assert numbers == sorted(numbers), f"{relay}: {one.client}'s order is lost"
        if one.client.startswith("producer"):
            for (before, after), (number, following) in zip(pairwise(ordinals), pairwise(numbers), strict=True):
                # What nobody was shown before it was collected may be anybody's.
                unknown = any(between not in events for between in range(before, after))
                assert following == number + 1 or unknown, f"{relay}: {one.client} has a hole behind {number}"
    for ordinal, stored in disk.records.items():
        fields, event = stored.fields, events[ordinal]
        if event is not None and event.client.startswith("producer"):
            assert fields[4] == [event.client, event.number], f"{relay}: {ordinal} has another sequence"


def _check_shown(relay: str, disk: Disk, said: list[Said], last: int) -> int:
    """I5: what a reader was shown is there, and all were shown the same."""
    shown: dict[int, bytes] = {}
    for one in said:
        for ordinal, digest in one.shown.items():
            assert ordinal <= last, f"{relay}: {one.client} was shown {ordinal}, which is gone"
            assert shown.setdefault(ordinal, digest) == digest, f"{relay}: readers were shown different events"
    for ordinal in shown.keys() & disk.records.keys():
        assert disk.records[ordinal].digest == shown[ordinal], f"{relay}: {ordinal} was shown otherwise"
    return len(shown)
