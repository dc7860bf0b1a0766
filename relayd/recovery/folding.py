"""Taking records, in order, into the state that an opening started from (docs/reference/journal.md, "Opening")."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from relayd.journal.storage import Directory
from relayd.protocol.cursor import Span
from relayd.protocol.event import Body, Buffer, Record, RecordError, decode_body, iter_records
from relayd.protocol.kinds import RelayCreated, RelayLost, RelayRestored
from relayd.recovery.refusal import OpeningError, Reason, refusal
from relayd.recovery.start import Start
from relayd.relay.fold import FoldError, fold

_D = TypeVar("_D")


class Place(NamedTuple):
    """Where records stand, for messages: a file relative to the relay's directory, and an offset in it."""

    file: str
    offset: int


class Folder:
    """Folds what lies after the start. `state` is the start's own, folded on.

    `digests`: those of the `wanted` ordinals that went by, folded or not. A record that cannot follow refuses.
    """

    def __init__(self, relay: Directory, start: Start, wanted: Iterable[int]) -> None:
        self.state = start.state
        self.digests: dict[int, bytes] = {}
        self.events = 0
        self.bytes = 0
        self._relay = relay
        self._start = start
        self._wanted = sorted(set(wanted))

    def wants_fold(self, last: int) -> bool:
        """Whether anything up to ordinal `last` is still to be folded."""
        return last > self.state.frontier.ordinal

    def wants(self, first: int, last: int) -> bool:
        """Whether anything in `first` to `last` is to be folded or looked at."""
        number = bisect_left(self._wanted, first)
        return self.wants_fold(last) or (number < len(self._wanted) and self._wanted[number] <= last)

    def take(self, payload: Buffer, first: int, last: int, place: Place, hole: Span | None = None) -> None:
        """Takes the records `first` to `last`; where a `hole` is before them, the first must be the event naming it.

        Raises OpeningError.
        """
        if hole is None and not self.wants(first, last):
            return
        try:
            for record in iter_records(payload):
                if hole is not None:
                    self._prove_lost(record, hole, place)
                    hole = None
                self._take(record, place)
        except RecordError as error:
            raise self._refuse(
                "journal_corrupt", f"behind ordinal {self.state.frontier.ordinal}, {error}", place
            ) from error

    def _take(self, record: Record, place: Place) -> None:
        ordinal = record.ordinal
        number = bisect_left(self._wanted, ordinal)
        if number < len(self._wanted) and self._wanted[number] == ordinal:
            self.digests[ordinal] = record.digest
        if ordinal <= self.state.frontier.ordinal:
            return
        body = self._body(record, place)
        if not self.events and not self._start.is_snapshot:
            self._prove_first(record, body, place)
        try:
            fold(self.state, record.cursor, body)
        except FoldError as error:
            reason: Reason = "later_format" if error.reason == "later_format" else "journal_corrupt"
            raise self._refuse(reason, str(error), place) from error
        self.events += 1
        self.bytes += len(record.body)

    def _body(self, record: Record, place: Place) -> Body:
        try:
            return decode_body(record.body)
        except msgspec.DecodeError as error:
            message = f"the body of ordinal {record.ordinal} is no event's: {error}"
            raise self._refuse("journal_corrupt", message, place) from error

    def _prove_first(self, record: Record, body: Body, place: Place) -> None:
        """The event after a seed, or of all, says of what relay it is the first."""
        if self._start.source == "seed":
            said = _data(body, "relay.restored", RelayRestored)
            if said is None:
                message = f"ordinal {record.ordinal} is a `{body.kind}`; after a seed, `relay.restored` belongs there"
                raise self._refuse("snapshot_conflict", message, place)
            if said.seed != self._start.state.seed:
                message = f"ordinal {record.ordinal} was restored from a seed of another digest than the one here"
                raise self._refuse("snapshot_conflict", message, place)
        else:
            said = _data(body, "relay.created", RelayCreated)
            if said is None or record.ordinal != 1:
                message = (
                    f"the journal begins with ordinal {record.ordinal}, a `{body.kind}`, and no snapshot is usable"
                )
                raise self._refuse("snapshot_lost", message, place)
        if said.store != self.state.store:
            message = (
                f"ordinal {record.ordinal} names the store {said.store.hex()}, its segment {self.state.store.hex()}"
            )
            raise self._refuse("journal_conflict", message, place)

    def _prove_lost(self, record: Record, hole: Span, place: Place) -> None:
        said = _data(self._body(record, place), "relay.lost", RelayLost)
        if said is None or (said.first, said.last) != hole:
            raise gap(self._relay, hole, place.file)

    def _refuse(self, reason: Reason, message: str, place: Place) -> OpeningError:
        return refusal(self._relay, reason, message, file=place.file, offset=place.offset)


def gap(relay: Directory, hole: Span, file: str | None) -> OpeningError:
    """The refusal for ordinals that no file holds; `file` is the one behind them."""
    what = f"ordinal {hole.first} is" if hole.first == hole.last else f"ordinals {hole.first} to {hole.last} are"
    return refusal(relay, "journal_gap", f"{what} in no file, and no event says that they were given up", file=file)


def _data(body: Body, kind: str, data: type[_D]) -> _D | None:
    """The body's data where it is of `kind`; None where it is not, or is not that kind's."""
    if body.kind != kind:
        return None
    try:
        return msgspec.msgpack.decode(body.data, type=data)
    except msgspec.DecodeError:
        return None
