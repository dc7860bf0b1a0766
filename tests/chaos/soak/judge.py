"""What a soak's log and what is on disk have to say of each other: I1 to I6, and which refusals a fault explains."""

from pathlib import Path
from typing import NamedTuple

from chaos.history import Checked, check, read_relay
from chaos.soak.heard import Fault, Heard, Refusal, Relay
from chaos.soak.log import read_log

EXPLAINS = {
    "full": {"storage_full", "storage_failed"},
    "killed while full": {"storage_full", "storage_failed"},
    "few descriptors": {"overloaded"},
    "crowd": {"overloaded"},
}
ALWAYS = {"shutting_down"}
"""A relay that nobody used is being closed, or the daemon stops: said at any time."""
AFTERWARDS_SECONDS = 6.0
"""Room is looked for after 1 s, then 2 s; until then a fault goes on explaining."""


class Verdict(NamedTuple):
    """`wrong`: everything that may not be."""

    heard: Heard
    relays: list[Checked]
    wrong: list[str]


def judge(log: Path, state: Path) -> Verdict:
    """Of a daemon that has ended."""
    heard = Heard().take(read_log(log))
    wrong = [*heard.wrong, *_unexplained(heard)]
    relays: list[Checked] = []
    for life in heard.relays.values():
        try:
            checked = _check(life, state / "relays" / life.name)
        except Exception as error:  # noqa: BLE001 - bytes that the oracle trips over are as wrong as those it sees
            wrong.append(f"{life.name}: {error!r}")
        else:
            relays += [checked] if checked else []
    wrong += _unreadable(state, set(heard.relays))
    return Verdict(heard, relays, wrong)


def _unreadable(state: Path, known: set[str]) -> list[str]:
    """Of relays that only broken peers and the nemesis used: their files have to be whole too."""
    found = []
    for directory in sorted((state / "relays").iterdir()):
        if directory.name not in known and not directory.name.startswith("."):
            try:
                read_relay(directory)
            except Exception as error:  # noqa: BLE001 - as above
                found.append(f"{directory.name}: {error!r}")
    return found


def _check(life: Relay, directory: Path) -> Checked | None:
    """One relay's files against its present life."""
    if not directory.exists():
        assert life.there != "yes", f"{life.name} was made, and is not there"
        return None
    assert life.there != "no", f"{life.name} was deleted, and is there"
    store = (directory / "journal/active.log").read_bytes()[8:24]
    if life.there == "perhaps" and store != life.store:
        # Made by a request that was not answered; of what is in it nothing was said.
        return None
    assert store == life.store, f"{life.name} is another one than was answered"
    return check(life.name, read_relay(directory), life.said.values())


def _unexplained(heard: Heard) -> list[str]:
    found: dict[tuple[str, str, str], list[Refusal]] = {}
    for one in heard.refusals:
        if not _is_explained(one, heard.faults):
            found.setdefault((one.op, one.relay, one.code), []).append(one)
    return [
        f"{len(those)} refusals `{code}` of `{op}` {relay} that no fault explains; at {those[0].at} s: "
        f"{those[0].message}"
        for (op, relay, code), those in found.items()
    ]


def _is_explained(refusal: Refusal, faults: list[Fault]) -> bool:
    return refusal.code in ALWAYS or any(
        refusal.code in EXPLAINS.get(fault.name, ()) and fault.at <= refusal.at <= fault.until + AFTERWARDS_SECONDS
        for fault in faults
    )
