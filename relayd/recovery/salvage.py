"""`relayd salvage`: the one tool that accepts loss (docs/reference/journal.md, "Offline tools").

Two kinds of damage. Where a usable snapshot is past it, only the damaged range is given up: the records before and
after are written as sealed segments, and an empty file marks the span. Where the fold would have to cross it, the
prefix stays, what is intact behind it goes to a file of JSON lines, and the next segment begins with `relay.lost`. Both
go by single records, in damaged groups too: each is proven by its own digest.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from relayd.journal.names import JOURNAL
from relayd.journal.real_storage import open_state_directory
from relayd.journal.storage import Directory
from relayd.journal.trouble import storage_error
from relayd.protocol.errors import NameDetail, NotFoundError, RelaydError
from relayd.protocol.names import is_relay_name
from relayd.recovery import snapshot
from relayd.recovery.inventory import Progress
from relayd.recovery.places import is_live
from relayd.recovery.reading import read_relay
from relayd.recovery.refusal import OpeningError
from relayd.recovery.salvage_analysis import Analysis, analyse
from relayd.recovery.salvage_steps import Done, LineOf, Means, carry_out
from relayd.recovery.survey import survey

_HOLDER_BYTES_MAX: Final = 4096


class RelayHeldError(RelaydError):
    """Another process has the relay open; salvage can be run when it has closed it."""

    code = "held"
    retryable = True


class DamagedPlace(msgspec.Struct, frozen=True):
    """Damage that was found: a file of the journal, and the ordinals lost there (None: none).

    `at_most`: how many stood there is not known, `last` is the greatest that could have.
    """

    file: str
    offset: int
    what: str
    first: int | None = None
    last: int | None = None
    at_most: bool = False


class SalvageReport(msgspec.Struct, frozen=True):
    """What salvage found and did.

    `marked`: spans given up behind the state, each by an empty file; `lost`: the span that a `relay.lost` at its end
    + 1 gives up; `lost_at_most`: its end is the greatest ordinal that may have been used. `rescued_events` are the
    intact ones in it, in `rescued_file`. `written`: sealed segments. `refusal`: why the relay still does not open, None
    where it will.
    """

    relay: str
    changed: bool
    damages: tuple[DamagedPlace, ...]
    marked: tuple[tuple[int, int], ...] = ()
    lost: tuple[int, int] | None = None
    rescued_events: int = 0
    rescued_file: str | None = None
    written: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    refusal: str | None = None
    lost_at_most: bool = False


def salvage(
    state_dir: str,
    relay: str,
    *,
    line_of: LineOf,
    tail: bool = False,
    rescued: str | None = None,
    progress: Progress | None = None,
) -> SalvageReport:
    """Mends the relay `relay` of the state directory `state_dir` at the price of what is damaged.

    `tail`: accepts the loss of an undecidable tail too. `rescued`: where the intact events that cannot stay are
    written, a JSON line of `line_of` each; without one, into the relay's quarantine/. `progress` is told the bytes read
    since its last call.

    Raises NotFoundError; RelayHeldError; InvalidStateError, where `rescued` is another file already;
    OpeningError, where salvage is not the way, with nothing changed; StorageFullError, StorageFailedError, and it can
    be run again.
    """
    means = Means(rescued, line_of, lambda: secrets.token_bytes(16), time.time_ns() // 1_000_000)
    if not is_relay_name(relay):
        raise _none_such(state_dir, relay)
    with contextlib.ExitStack() as stack:
        try:
            directory: Directory = open_state_directory(state_dir)
            stack.enter_context(contextlib.closing(directory))
            for name in ("relays", relay):
                directory = stack.enter_context(contextlib.closing(directory.directory(name)))
        except FileNotFoundError as error:
            raise _none_such(state_dir, relay) from error
        except OSError as error:
            raise storage_error(error, f"salvaging the relay `{relay}`") from error
        return salvage_relay(directory, relay, means, tail=tail, progress=progress)


def _none_such(state_dir: str, relay: str) -> NotFoundError:
    return NotFoundError(f"no relay `{relay}` is in {state_dir}", NameDetail("relay", relay))


def salvage_relay(
    relay: Directory, name: str, means: Means, *, tail: bool = False, progress: Progress | None = None
) -> SalvageReport:
    """As `salvage`, for an open directory; the lock stays taken until that is closed."""
    if not relay.lock():
        raise _held(relay, name)
    try:
        _make_journal(relay)
        found = survey(relay, None)
        with contextlib.closing(found.journal):
            analysis = analyse(found, progress or (lambda _: None), tail=tail)
            done = Done() if analysis.nothing else carry_out(analysis, name, means)
        return _report(analysis, name, done, _refusal(relay))
    except OSError as error:
        raise storage_error(error, f"salvaging the relay `{name}`") from error


def _held(relay: Directory, name: str) -> RelayHeldError:
    """Who has it, as far as that can be told: a daemon holds the state directory too, another tool does not."""
    with contextlib.closing(open_state_directory(str(Path(relay.path).parent.parent))) as state:
        if not is_live(state):
            return RelayHeldError(f"another tool is at work on relay `{name}`; run this again when it has ended")
        pid = _pid_of_holder(state)
    who = "a daemon" if pid is None else f"a daemon (pid {pid})"
    return RelayHeldError(
        f"{who} has relay `{name}` open; stop it, run this again, and start it. Until then readers are told of what "
        "cannot be read."
    )


class _Holder(msgspec.Struct):
    pid: int


def _pid_of_holder(state: Directory) -> int | None:
    """What the daemon wrote of itself, for messages only."""
    with contextlib.suppress(OSError, msgspec.DecodeError), contextlib.closing(state.open("holder", "read")) as file:
        return msgspec.json.decode(file.read(_HOLDER_BYTES_MAX, 0), type=_Holder).pid
    return None


def _make_journal(relay: Directory) -> None:
    """A journal that is gone as a whole is given up as a whole, where a snapshot has the state."""
    if relay.stat(JOURNAL) is None and snapshot.read_generations(relay).usable:
        relay.make_directory(JOURNAL)
        relay.sync()


def _refusal(relay: Directory) -> str | None:
    try:
        found = survey(relay, None)
        with contextlib.closing(found.journal):
            read_relay(found)
    except OpeningError as error:
        # What to do would be salvage once more.
        return error.found
    return None


def _report(analysis: Analysis, name: str, done: Done, refusal: str | None) -> SalvageReport:
    plan = analysis.plan
    return SalvageReport(
        relay=name,
        changed=not analysis.nothing,
        damages=tuple(_places(analysis)),
        marked=tuple((span.first, span.last) for span in plan.lost),
        lost=None if plan.cut is None else (plan.cut.first, plan.cut.last),
        rescued_events=done.rescued_events,
        rescued_file=done.rescued_file,
        written=done.written,
        quarantined=done.quarantined,
        refusal=refusal,
        lost_at_most=plan.at_most,
    )


def _places(analysis: Analysis) -> Iterator[DamagedPlace]:
    for one in (*analysis.contents, analysis.active.contents):
        file = f"{JOURNAL}/{one.name.text}"
        for damage in one.damages:
            lost = damage.lost
            first, last = (None, None) if lost is None else lost
            yield DamagedPlace(file, damage.offset, damage.what, first, last, damage.at_most)
