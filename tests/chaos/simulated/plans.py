"""What happens to the daemon in one history: life by life, which calls of its disk fail, and how it ends.

As text, for the command that shows a history again: lives are parted by ` / `, what is said of one by `;`.

    fail=37,EIO,after,forever;of=changing;mended=20 / kill=12,after;of=every;end=cut;left=3 / short=2,17;of=write
"""

import errno as errnos
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from support.faults import Fail, Faults, Kill, Killed, Plan, Short, changing, every, named

DAY_MS = 86_400_000
CLOCKS = (0, 0, 0, -DAY_MS, 3650 * DAY_MS, -60 * 365 * DAY_MS)
"""How far off the wall clock is in one life: a day early, ten years late, before 1970."""

RARE = ("unlink,truncate", "open create,make_directory", "open read,open update")
UNSYNCED = "sync active.log,sync active.log.new"
"""Killed before one of these, a group is written and not synced."""
GROUPS = f"write active.log,write active.log.new,{UNSYNCED}"

KINDS = (
    "none", "kill", "unsynced", "unsynced", "fail", "fail", "fail then kill", "forever", "short", "short then kill",
)  # fmt: skip

EndOf = str
"""`kill`: the process dies, and all it wrote shows. `cut`: the power goes. `stop`: it is told to stop, then `kill`."""


@dataclass(frozen=True)
class Life:
    """`faults` come one after the other, counted among the calls `of`; one for ever is gone after `mended` seconds.

    `end` is also what becomes of the disk where a fault kills the process. `left` is what chance of a cut begins from;
    with 0 it keeps nothing that was not synced.
    """

    faults: tuple[Fail | Kill | Short, ...] = ()
    of: str = "changing"
    end: EndOf = "kill"
    left: int = 0
    mended: int = 20
    clock_ms: int = 0

    @property
    def fails(self) -> bool:
        """Whether callers may be told of a disk that fails."""
        return any(isinstance(fault, Fail | Short) for fault in self.faults)

    @property
    def says_it_failed_and_did_not(self) -> bool:
        """A rename that did so looks as if somebody else had taken the file away."""
        return any(isinstance(fault, Fail) and fault.after for fault in self.faults)

    @property
    def counted(self) -> Callable:
        return {"every": every, "changing": changing}.get(self.of) or named(*self.of.split(","))

    def text(self) -> str:
        said = [_fault_text(fault) for fault in self.faults]
        said += [f"of={self.of}"] if self.faults else []
        said += [f"end={self.end}"]
        said += [f"left={self.left}"] if self.left else []
        said += [f"mended={self.mended}"] if self.mended != 20 else []
        said += [f"clock={self.clock_ms}"] if self.clock_ms else []
        return ";".join(said)


def _fault_text(fault: Fail | Kill | Short) -> str:
    match fault:
        case Fail(n, number, after, forever):
            words = [f"fail={n}", errnos.errorcode[number], *["after"] * after, *["forever"] * forever]
        case Kill(n, after):
            words = [f"kill={n}", *["after"] * after]
        case Short(n, taken, kill):
            words = [f"short={n}", str(taken), *["kill"] * kill]
    return ",".join(words)


def to_text(lives: list[Life]) -> str:
    return " / ".join(life.text() for life in lives)


def from_text(text: str) -> list[Life]:
    return [_life(part) for part in text.split(" / ")]


def _life(text: str) -> Life:
    faults, said = [], {}
    for part in text.strip().split(";"):
        key, _, value = part.strip().partition("=")
        first, *words = value.split(",")
        match key:
            case "fail":
                faults.append(Fail(int(first), getattr(errnos, words[0]), "after" in words, "forever" in words))
            case "kill":
                faults.append(Kill(int(first), "after" in words))
            case "short":
                faults.append(Short(int(first), int(words[0]), "kill" in words))
            case "of" | "end":
                said[key] = value
            case "left" | "mended":
                said[key] = int(value)
            case "clock":
                said["clock_ms"] = int(value)
            case _:
                raise ValueError(f"{part!r} says nothing of a life")
    return Life(tuple(faults), **said)


def draw(chance: random.Random) -> list[Life]:
    """One to three lives before the one in which everybody finishes."""
    return [_draw_life(chance) for _ in range(chance.choice((1, 1, 2, 2, 3)))]


def _draw_life(chance: random.Random) -> Life:
    kind = chance.choice(KINDS)
    of = chance.choice(("changing", "changing", "changing", "every", "write", "sync", "replace", *RARE))
    among = {"every": 250, "changing": 90}.get(of, 25)
    n = 1 + int(among * chance.random() ** 1.5)
    number = chance.choice((errnos.EIO, errnos.EIO, errnos.ENOSPC))
    after = chance.random() < 0.3
    kill = Kill(1 + int(among * chance.random()), chance.random() < 0.5)
    faults: tuple[Fail | Kill | Short, ...] = {
        "none": (),
        "kill": (kill,),
        "unsynced": (Kill(1 + n % 20),),
        "fail": (Fail(n, number, after),),
        "fail then kill": (Fail(n, number, after), kill),
        "forever": (Fail(n, number, forever=True),),
        "short then kill": (Short(1 + n % 20, chance.randrange(1200)), Kill(chance.choice((1, 2, 4)))),
        "short": (Short(1 + n % 25, chance.randrange(200), kill=chance.random() < 0.5),),
    }[kind]
    return Life(
        faults,
        of={"none": "changing", "short": "write", "unsynced": UNSYNCED, "short then kill": GROUPS}.get(kind, of),
        end=chance.choice(("kill", "cut", "cut", "cut", "stop")),
        left=chance.choice((0, chance.randrange(1, 1 << 30), chance.randrange(1, 1 << 30))),
        mended=chance.choice((3, 20, 90)),
        clock_ms=chance.choice(CLOCKS),
    )


@dataclass
class DiskFaults(Faults):
    """Faults of a simulated disk, one after the other: a sync that fails loses what it was to write.

    `died` is called at the moment of death, before anything that the dead process would still do.
    """

    then: list[Plan] = field(default_factory=list)
    died: Callable[[], None] = lambda: None
    met_any: bool = False

    def make(self, name: str, target: str, effect: Callable[[], object]) -> object:
        if self.dead:
            raise Killed(f"{name} {target}: the process is dead")
        try:
            return super().make(name, target, effect)
        except Killed:
            self.died()
            raise
        except OSError:
            if name == "sync" and self.met:
                # `effect` is the method of the file or directory that was to be synced.
                effect.__self__.sync_failed()
            raise
        finally:
            self._next()

    def die(self) -> None:
        """The process dies between two calls."""
        if not self.dead:
            self.dead = True
            self.died()

    def mend(self) -> None:
        """Nothing fails any longer."""
        self.plan, self.then = None, []

    def _next(self) -> None:
        self.met_any = self.met_any or self.met
        if self.met and self.then and not (isinstance(self.plan, Fail) and self.plan.forever):
            self.plan, self.count, self.met = self.then.pop(0), 0, False


def faults_of(life: Life, died: Callable[[], None]) -> DiskFaults:
    """What befalls the daemon in this life."""
    first, *then = life.faults or (None,)
    return DiskFaults(first, life.counted, then=then, died=died)
