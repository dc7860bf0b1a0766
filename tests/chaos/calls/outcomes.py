"""The outcome of each call's failure, as faults.md ("Disk errors") and journal.md have it: the first rule that fits.

Names here have `R` for the relay. Two outcomes stand only where a name is that of calls for two purposes: a read for a
reader, who is told, and one for work of relayd's own, of which nobody is; the sync of a directory likewise; a look at
a relay for the list of them, and for its opening.
"""

import errno
import re
from typing import NamedTuple

from chaos.calls.errnos import Trial, sort_of

ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
DESCRIPTORS = frozenset({errno.EMFILE})
ANY = frozenset()

ANSWERED, FULL, FAILED = frozenset({"answered"}), frozenset({"storage_full"}), frozenset({"storage_failed"})
UNAVAILABLE, NOT_STARTED = frozenset({"unavailable"}), frozenset({"not started"})
PASSING = ANSWERED | FULL | FAILED | UNAVAILABLE | frozenset({"overloaded"})
TOLD_OR_NOBODY = ANSWERED | FAILED


SHARED = frozenset({"stat", "entries", "pread", "open read", "open directory", "fsync"})
"""Calls that several courses of work make on the same name."""


class Rule(NamedTuple):
    """`courses` and `names` are regular expressions, `errnos` a set (ANY: each)."""

    courses: str
    names: str
    errnos: frozenset[int]
    outcomes: frozenset[str]


RULES = (
    Rule(".*", "send client", ANY, frozenset({"connection lost"})),
    # The reserve of descriptors: the call is made again, and finds one. The state directory's own comes before it.
    Rule("open", "open directory state", DESCRIPTORS, NOT_STARTED),
    Rule(".*", "open .*", DESCRIPTORS, ANSWERED),
    # The start
    Rule("open", "stat (state|s)", ANY, ANSWERED),
    Rule("open", r".* (state|state/\w+|s)", ANY, NOT_STARTED),
    Rule("stop", ".*", ANY, ANSWERED),
    # The watermark, snapshots, sealing and collecting answer nobody
    Rule("open", "(open read|pread|stat) R/watermark", ANY, UNAVAILABLE),
    Rule("make", "open read R/watermark", ANY, UNAVAILABLE),
    Rule(".*", r".* R/watermark", ANY, ANSWERED),
    Rule(".*", r".* R/snapshot\.new", ANY, ANSWERED),
    Rule(".*", r"rename R/snapshot\S* \S+", ANY, ANSWERED),
    Rule(".*", r".* R/journal/RANGE\.log\.zst\.new( \S+)?", ANY, ANSWERED),
    Rule(".*", r"unlink R/journal/RANGE\.log(\.zst)?", ANY, ANSWERED),
    # Appending
    Rule("serve", r"pwritev R/journal/active\.log", ROOM, FULL),
    Rule("serve", r"(pwritev|fdatasync|stat) R/journal/active\.log", ANY, FAILED),
    Rule("serve", "(unlink R/idle|stat R|stat R/journal)", ANY, FAILED),
    # Rotating: without room for it the segment grows on
    Rule("serve", r"\w+( create)? R/journal/active\.log\.new", ROOM, ANSWERED),
    Rule("serve", r"rename R/journal/active\.log RANGE\.log", ROOM, ANSWERED),
    Rule("serve", r"\w+( create)? R/journal/active\.log\.new( active\.log)?", ANY, FAILED),
    Rule("serve", r"(rename R/journal/active\.log|stat R/journal/)RANGE\.log", ANY, FAILED),
    Rule("serve", r"rename R/journal/active\.log RANGE\.log", ANY, FAILED),
    # Acknowledging: the file is made anew each time, so that room is all that a sync without room lacked
    Rule("serve", r".* R/acknowledged\.new( acknowledged)?", ROOM, FULL),
    Rule("serve", r".* R/acknowledged\.new( acknowledged)?", ANY, FAILED),
    # Reading
    Rule("serve", r"(open read|pread) R/journal/(active\.log|RANGE\.log(\.zst)?)( \(deleted\))?", ANY, TOLD_OR_NOBODY),
    Rule("serve", r"(stat|entries) R(/.*)?", ANY, TOLD_OR_NOBODY),
    Rule("serve", "fsync R(/journal)?", ANY, TOLD_OR_NOBODY),
    # Opening: what needs room is put off, the rest refuses
    Rule("open", r"(pwritev|fdatasync|fsync|mkdir|open create|rename) R/quarantine.*", ROOM, FULL),
    Rule("open", "fsync R", ROOM, FULL | UNAVAILABLE),
    Rule("open|make", r"fdatasync R/(journal/active\.log|acknowledged)", ANY, ANSWERED),
    Rule("open", "(stat|open directory) R", ANY, ANSWERED | UNAVAILABLE),
    Rule("open", "stat R/idle", ANY, ANSWERED),
    Rule("open", r"(open read|pread|stat) R/journal/RANGE\.log\.zst", ANY, TOLD_OR_NOBODY),
    Rule("open", r"(stat|entries) R(/.*)?", ANY, UNAVAILABLE | FAILED),
    Rule("open", ".* R(/.*)?", ANY, UNAVAILABLE),
    # Making
    Rule("make", r"\w+( create)? (\.R\.new\S*|\.R\.new R|state/relays)", ROOM, FULL),
    Rule("make", r".* (\.R\.new\S*|\.R\.new R|state/relays)", ANY, FAILED),
    Rule("make", "stat R", ANY, FAILED),
    Rule("make", r"stat R/snapshot", ANY, ANSWERED),
    Rule("make", ".* R(/.*)?", ANY, UNAVAILABLE),
    # Deleting: what follows the answer is done again at the next start
    Rule("delete", r"(rename R \.R\.STORE\.deleted|fsync state/relays)", ROOM, FULL),
    Rule(
        "delete",
        r"(rename R \.R\.STORE\.deleted|fsync state/relays|stat \.R\.STORE\.deleted|stat state/relays)",
        ANY,
        FAILED,
    ),
    Rule("delete", ".*", ANY, ANSWERED),
)


def _plain(name: str) -> str:
    """The name with `R` for the relay."""
    return re.sub(r"(?<![\w/.])(\.?)(kept|taken|short|one)(?=[/ .]|$)", r"\1R", name)


def expected(trial: Trial) -> frozenset[str]:
    """What may come of it: one outcome, or the two of a name with two purposes."""
    name = _plain(trial.at.pattern)
    for rule in RULES:
        fits = re.fullmatch(rule.courses, trial.course) and re.fullmatch(rule.names, name)
        if fits and (not rule.errnos or trial.errno in rule.errnos):
            return rule.outcomes
    raise AssertionError(f"no rule for {trial}: {name}")


def judge(trial: Trial, seen: frozenset[str] | None) -> None:
    """Asserts the outcome of a failure.

    One that goes on may lead from one to the next: from a group to its opening. The rules are for the first call of a
    name: a later one that looks, or syncs a directory, may do so for other work.
    """
    if seen is not None:
        may = expected(trial)
        if trial.at.forever:
            may |= PASSING
        elif trial.at.nth > 1 and sort_of(trial.at.pattern) in SHARED:
            may |= TOLD_OR_NOBODY | UNAVAILABLE
        if trial.course == "open" and (trial.at.forever or trial.at.nth > 1):
            may |= NOT_STARTED if re.fullmatch(r".* (state|state/\w+|s)", trial.at.pattern) else frozenset()
        assert seen <= may, f"{trial}: {', '.join(sorted(seen - may))}, not {' or '.join(sorted(may))}"
