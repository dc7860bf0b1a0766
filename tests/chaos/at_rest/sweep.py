"""One damage to one file of one shape of relay: compared with the judge, with what the relay held, and looked for.

    python tests/chaos/at_rest/sweep.py bit layered journal/active.log 77
    python tests/chaos/at_rest/sweep.py cut layered journal/active.log 77
    python tests/chaos/at_rest/sweep.py mutated 1 4711

tries one again, and says what is wrong with it.
"""

import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.at_rest.damage import Files, flipped
from chaos.at_rest.judge import Opens, judge
from chaos.at_rest.mutate import mutated
from chaos.at_rest.relay import Relay, in_memory
from chaos.at_rest.shapes import SHAPES

COMMAND = "python tests/chaos/at_rest/sweep.py"


class Damage(NamedTuple):
    """`bit` or `cut`; `at` is the bit flipped, or the size that is left."""

    kind: str
    shape: str
    path: str
    at: int

    @property
    def replay(self) -> str:
        return f"{COMMAND} {self.kind} {self.shape} {self.path} {self.at}"


class Tried(NamedTuple):
    """What one damage led to. `unnoticed`: the relay opens, and verify says nothing."""

    wrong: list[str]
    opens: bool
    unnoticed: bool


def every_damage() -> list[Damage]:
    """Every bit and every shortening of every file of every shape."""
    return [
        Damage(kind, shape, path, at)
        for shape in SHAPES
        for path, content in SHAPES[shape]().items()
        for kind, count in (("bit", 8 * len(content)), ("cut", len(content)))
        for at in range(count)
    ]


def try_damage(relay: Relay, damage: Damage) -> Tried:
    """Puts the relay there with this damage, looks for it with verify, and opens it."""
    files, (kind, shape, path, at) = SHAPES[damage.shape](), damage
    damaged = files | {path: flipped(files[path], at) if kind == "bit" else files[path][:at]}
    expected = judge(damaged)
    found = relay.put(damaged).findings()
    wrong = relay.differences()
    opens = isinstance(expected, Opens)
    if opens:
        whole = _undamaged(shape)
        wrong += [
            f"another record at {ordinal}"
            for ordinal, record in expected.records.items()
            if whole.records.get(ordinal) != record
        ]
        if kind == "bit" and expected.last != whole.last:
            wrong.append(f"one bit, and it opens through {expected.last} in place of {whole.last}")
    return Tried(wrong, opens, opens and not found)


@cache
def _undamaged(shape: str) -> Opens:
    return judge(SHAPES[shape]())


def try_mutated(relay: Relay, seed: int, number: int) -> list[str]:
    """What is wrong with the opening of a relay damaged in several ways at once."""
    files, done = mutated(seed, number)
    return [f"{'; '.join(done)}: {each}" for each in relay.put(files).differences()]


def replay_mutated(seed: int, number: int) -> str:
    """The command that tries it again."""
    return f"{COMMAND} mutated {seed} {number}"


def files_of(kind: str, *said: str) -> Files:
    """The files that a command names."""
    if kind == "mutated":
        return mutated(int(said[0]), int(said[1]))[0]
    files = SHAPES[said[0]]()
    content, at = files[said[1]], int(said[2])
    return files | {said[1]: flipped(content, at) if kind == "bit" else content[:at]}


def main() -> None:
    """Tries what the command line names."""
    kind, *said = sys.argv[1:]
    with in_memory() as place:
        relay = Relay(place)
        if kind == "mutated":
            wrong, more = try_mutated(relay, int(said[0]), int(said[1])), ""
        else:
            tried = try_damage(relay, Damage(kind, said[0], said[1], int(said[2])))
            wrong, more = tried.wrong, ", unnoticed" if tried.unnoticed else ""
    print(judge(files_of(kind, *said)))  # noqa: T201
    print("\n".join(wrong) or f"as the judge says{more}")  # noqa: T201
    sys.exit(1 if wrong or more else 0)


if __name__ == "__main__":
    main()
