"""One disk state, opened by the real recovery, and read again by a reader that is not relayd's."""

import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from chaos.history import Stored, read_groups, read_sealed
from chaos.syscalls.states import State

from relayd.journal.real_storage import open_state_directory
from relayd.journal.storage import Directory
from relayd.protocol.errors import UnavailableError
from relayd.recovery.making import clear_leftovers
from relayd.recovery.opening import Opened, open_relay

SEGMENT_BYTES = 1 << 20
TAIL_BYTES = 1024
Wrap = Callable[[Directory], Directory]


class Producer(NamedTuple):
    """Where one stands."""

    sequence: int
    ordinal: int
    digest: bytes


class Held(NamedTuple):
    """What an open relay has: its records, all read from its files, and what it believes of itself."""

    records: dict[int, Stored]
    frontier: tuple[int, bytes]
    base: int
    producers: dict[str, Producer]
    acknowledged: dict[str, tuple[int, bytes]]
    store: bytes

    @property
    def first(self) -> int:
        return min(self.records)

    @property
    def last(self) -> int:
        return max(self.records)


class Outcome(NamedTuple):
    """`held` is None where the relay is not there, or did not open: then `wrong` says why."""

    held: Held | None
    wrong: str | None = None


class Bench:
    """A place in memory where one state after the other is put up and opened."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self.place = Path(tempfile.mkdtemp(prefix="cut-", dir=memory if os.access(memory, os.W_OK) else None))
        self._state = open_state_directory(str(self.place))
        self._ids = itertools.count(1)
        self._known: dict[tuple, dict[int, Stored]] = {}
        self.openings = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._state.close()
        shutil.rmtree(self.place)

    def try_state(self, state: State, wrap: Wrap = lambda directory: directory) -> Outcome:
        """Opens it as a start of the daemon does, twice, with what the first opening left.

        `wrap` goes around the relay's directory in the first.
        """
        try:
            self._put_up(state)
            return self._try_standing(state.name, wrap)
        finally:
            shutil.rmtree(self.place / "relays", ignore_errors=True)

    def _put_up(self, state: State) -> None:
        top = os.fspath(self.place / "relays")
        Path(top).mkdir(mode=0o700)
        for other in state.others:
            if other.startswith("."):
                Path(f"{top}/{other}").mkdir(mode=0o700)
        if state.name is None:
            return
        top = f"{top}/{state.name}"
        Path(top).mkdir(mode=0o700)
        for directory in state.directories:
            Path(f"{top}/{directory}").mkdir(mode=0o700)
        for path, content in state.files:
            descriptor = os.open(f"{top}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, content.data)
            os.close(descriptor)

    def _try_standing(self, name: str | None, wrap: Wrap) -> Outcome:
        relays = self._state.directory("relays")
        try:
            clear_leftovers(relays)
            left = [entry.name for entry in relays.entries() if entry.name.startswith(".")]
            if left:
                return Outcome(None, f"a start leaves {left}")
            if name is None or name.startswith("."):
                return Outcome(None)
            first = self._open(relays, name, wrap)
            if isinstance(first, str):
                return Outcome(None, first)
            second = self._open(relays, name, lambda directory: directory)
            if second != first:
                told = second if isinstance(second, str) else _difference(first, second)
                return Outcome(None, f"opening again gives something else: {told}")
            return Outcome(first)
        finally:
            relays.close()

    def _open(self, relays: Directory, name: str, wrap: Wrap) -> Held | str:
        self.openings += 1
        relay = relays.directory(name)
        assert relay.lock()
        try:
            opened = open_relay(
                wrap(relay), name, segment_bytes=SEGMENT_BYTES, new_id=self._new_id, tail_bytes=TAIL_BYTES
            )
        except UnavailableError as error:
            relay.close()
            return f"it does not open: {error.detail.reason}: {error}"
        except BaseException:
            relay.close()
            raise
        try:
            held = look_at(opened, self.place / "relays" / name)
            return held._replace(records=self._one(held.records))
        except AssertionError as error:
            return f"opened, and then: {error}"
        finally:
            opened.close()

    def _one(self, records: dict[int, Stored]) -> dict[int, Stored]:
        """Equal records are kept once: thousands of states hold the same."""
        key = (min(records), max(records), hash(tuple(stored.digest for stored in records.values())))
        known = self._known.setdefault(key, records)
        return known if known == records else records

    def forget(self) -> None:
        """Another recording begins."""
        self._known.clear()

    def _new_id(self) -> bytes:
        return os.getpid().to_bytes(8, "big") + next(self._ids).to_bytes(8, "big")


def look_at(opened: Opened, relay: Path) -> Held:
    """Its files by a reader of our own; its state as it says. Fails where a file is not as journal.md has it."""
    records: dict[int, Stored] = {}
    for file in sorted((relay / "journal").iterdir()):
        here = _read(file.name, file.read_bytes())
        twice = here.keys() & records.keys()
        assert all(records[ordinal] == here[ordinal] for ordinal in twice), f"{file.name}: ordinals in two ways"
        # What may be gone is to be unlinked, both copies of it.
        assert max(twice, default=0) <= opened.base.ordinal, f"{file.name}: a second copy of {max(twice)}"
        records |= here
    ordinals = sorted(records)
    assert ordinals == list(range(ordinals[0], ordinals[-1] + 1)), "there is a hole"
    unfinished = [name for _, _, names in os.walk(relay) for name in names if name.endswith(".new")]
    assert not unfinished, f"unfinished files are left: {unfinished}"
    assert opened.writer is not None, f"it says that there is no room: {opened.report.full}"
    state = opened.state
    return Held(
        records,
        tuple(state.frontier),
        opened.base.ordinal,
        {name: Producer(mark.sequence, *mark.cursor) for name, mark in state.producers.items()},
        {name: tuple(cursor) for name, cursor in opened.acknowledgements.consumers.items()},
        state.store,
    )


@functools.lru_cache(maxsize=1024)
def _read(name: str, content: bytes) -> dict[int, Stored]:
    """The records of one file; nothing may stand behind them, and a lasting name tells the first and the last."""
    if name.endswith(".log.zst"):
        found = read_sealed(content, name)
    else:
        assert name.endswith(".log"), f"a file of no sort: {name}"
        found = read_groups(content, name)
        size = 48 + sum(64 for _ in group_starts(content)) + sum(28 + len(one.body) for one in found.values())
        assert len(content) == size, f"{name}: bytes behind the last group"
    if name != "active.log":
        assert [int(name[:20]), int(name[21:41])] == [min(found), max(found)], f"{name}: its name lies"
    return found


def group_starts(content: bytes) -> list[int]:
    """Where the groups of a segment of whole groups stand."""
    starts, at = [], 48
    while at < len(content):
        starts.append(at)
        at += 64 + int.from_bytes(content[at + 44 : at + 48], "little")
    return starts


def _difference(first: Held, second: Held) -> str:
    return ", ".join(
        f"{name} {getattr(first, name)!r} then {getattr(second, name)!r}"
        if name != "records"
        else f"records {first.first} to {first.last}, then {second.first} to {second.last}"
        for name in Held._fields
        if getattr(first, name) != getattr(second, name)
    )
