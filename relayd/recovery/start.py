"""From which state an opening folds on (docs/reference/journal.md, "Opening", 1)."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from relayd.journal.names import SEED
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.recovery.refusal import refusal
from relayd.recovery.seed import SeedError, load_seed, seed_state
from relayd.recovery.survey import Survey, refusing
from relayd.relay.fold import new_state
from relayd.relay.state import RelayState


class Start(NamedTuple):
    """A state that nothing has been folded into yet; everything up to `base` may be gone.

    `frontier`: where it stands, and stays when `state` is folded on. `passed_over`: the snapshots not used for it.
    """

    source: Literal["snapshot", "snapshot.previous", "seed", "nothing"]
    state: RelayState
    base: Cursor
    frontier: Cursor
    passed_over: tuple[str, ...] = ()

    @property
    def is_snapshot(self) -> bool:
        """Whether it is one of the two generations."""
        return self.source not in ("seed", "nothing")


def starts(found: Survey) -> Iterator[Start]:
    """The newest usable snapshot, then, should it be in conflict with the journal, the other one.

    Without any, the seed alone, or the state before the first event. Raises OpeningError where the seed is bad.
    """
    passed_over = found.passed_over
    for generation in found.usable:
        snapshot = generation.snapshot
        yield Start(generation.name, generation.state, snapshot.base, snapshot.frontier, passed_over)
        passed_over = (*passed_over, generation.name)
    if not found.usable:
        yield _from_seed(found) or _from_nothing(found)


def _from_seed(found: Survey) -> Start | None:
    try:
        with refusing(found.relay, SEED):
            file = load_seed(found.relay)
    except SeedError as error:
        message = f"no snapshot is usable, and {error}"
        raise refusal(found.relay, "snapshot_lost", message, file=SEED) from error
    if file is None:
        return None
    state = seed_state(file.seed, found.store or bytes(16), file.digest)
    return Start("seed", state, state.frontier, state.frontier, found.passed_over)


def _from_nothing(found: Survey) -> Start:
    return Start("nothing", new_state(found.store or bytes(16)), GENESIS, GENESIS, found.passed_over)
