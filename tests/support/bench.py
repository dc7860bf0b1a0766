"""A relay's directory on the real disk, and a writer for it, under planted faults."""

import itertools
from pathlib import Path

import pytest
from support import oracle
from support.faults import Faults

from relayd.journal.active import make_active
from relayd.journal.real_storage import open_state_directory
from relayd.journal.writer import Batch, Writer, WriterError
from relayd.protocol.errors import RelayRemovedError

FIRST, SECOND = [b"first", b"second"], [b"third" * 60]
WHOLE = oracle.segment_of([FIRST, SECOND])
END_1 = len(oracle.segment_of([FIRST]))
ROTATED = f"{1:020}-{3:020}.log"
FRESH = bytes([0xF0]) * 16
ALL = {1: b"first", 2: b"second", 3: b"third" * 60}


class Bench:
    """One relay on the real disk, made afresh by each call of `writer`; `unmarked`: its watermark's failures."""

    def __init__(self, root: Path) -> None:
        self.path = root
        self._root = root
        self._made = itertools.count()
        self._opened = []
        self.unmarked = []

    @property
    def relay(self) -> Path:
        """The relay's directory."""
        return self.path / "relay"

    @property
    def journal(self) -> Path:
        """Its journal's directory."""
        return self.relay / "journal"

    @property
    def active(self) -> Path:
        """Its active.log."""
        return self.journal / "active.log"

    def directories(self, faults: Faults):
        """The relay's directory and its journal's, opened under `faults` without any of its calls."""
        top = open_state_directory(str(self.path))
        relay = top.directory("relay")
        journal = relay.directory("journal")
        self._opened += [journal, relay, top]
        return faults.wrap(relay), faults.wrap(journal)

    def writer(self, faults: Faults | None = None, segment_bytes: int = 400, *, idle: bool = False) -> Writer:
        """A writer for a relay without records."""
        self.close()
        self.unmarked.clear()
        self.path = self._root / str(next(self._made))
        self.journal.mkdir(parents=True)
        if idle:
            (self.relay / "idle").touch()
        faults = faults or Faults()
        plan, faults.plan = faults.plan, None
        relay, journal = self.directories(faults)
        active = make_active(journal, oracle.STORE, oracle.SEGMENT)
        faults.plan, faults.count, faults.log = plan, 0, []
        ids = (bytes([0xF0 + at]) * 16 for at in itertools.count())
        made = Writer(
            relay,
            journal,
            oracle.STORE,
            active=active,
            segment=oracle.SEGMENT,
            first=1,
            next_ordinal=1,
            end=48,
            new_id=lambda: next(ids),
            segment_bytes=segment_bytes,
            watermark_failed=self.unmarked.append,
        )
        self._opened.insert(0, made)
        return made

    def close(self) -> None:
        """Gives every descriptor back."""
        for each in self._opened:
            each.close()
        self._opened.clear()


def batch(first: int, *bodies: bytes) -> Batch:
    """One group's records."""
    return Batch(first, len(bodies), [oracle.record(first + at, body) for at, body in enumerate(bodies)])


def commit_both(writer, answered=None):
    """Commits both groups and keeps what was answered in `answered`."""
    answered = {} if answered is None else answered
    writer.commit(batch(1, *FIRST))
    answered.update(enumerate(FIRST, 1))
    writer.commit(batch(3, *SECOND))
    answered.update(enumerate(SECOND, 3))
    return answered


def failure_of(call, *arguments):
    """The WriterError or RelayRemovedError that `call` raises; None where it raises none."""
    try:
        call(*arguments)
    except (WriterError, RelayRemovedError) as failed:
        return failed
    return None


def refuses(writer):
    """Proves that the writer does nothing any more."""
    for call in (lambda: writer.commit(batch(writer.last_ordinal + 1, b"more")), writer.rotate):
        with pytest.raises(ValueError, match="opens again"):
            call()
