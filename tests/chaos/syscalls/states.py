"""The disk states that a cut at one step may leave of the relays it was about.

A choice is written as numbers with dots between: which relay, how many of the unsynced names of each directory on the
way reached the disk, which of its possible contents each file has.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from chaos.syscalls.disk import Content, Directory, File, Variants


class Bounds(NamedTuple):
    """How many are tried: `states` of one step and relay, `contents` of one file; past it they are drawn by seed.

    A file whose name ends in `.new` is read by nobody, and a watermark counts by its segment and offset: few of their
    contents are tried.
    """

    states: int = 1500
    contents: int = 300
    unread: int = 3
    watermarks: int = 4
    seed: int = 1

    def of(self, path: str) -> int:
        if path.endswith(".new"):
            return self.unread
        return self.watermarks if path == "watermark" else self.contents


class State(NamedTuple):
    """One disk state. `name`: what the relay's directory is called, None where it is not there; `others`: the rest."""

    choice: tuple[int, ...]
    name: str | None
    others: tuple[str, ...]
    directories: tuple[str, ...]
    files: tuple[tuple[str, Content], ...]

    @property
    def key(self) -> bytes:
        """The same for the same state."""
        made = hashlib.blake2b(repr((self.name, self.others, self.directories)).encode(), digest_size=16)
        for path, content in self.files:
            made.update(path.encode() + b"\0" + content.digest)
        return made.digest()

    @property
    def text(self) -> str:
        return ".".join(map(str, self.choice))


@dataclass
class Shape:
    """The names that are there; the files still have a choice of contents."""

    digits: tuple[int, ...]
    name: str | None
    others: tuple[str, ...]
    directories: tuple[str, ...]
    files: tuple[tuple[str, Variants], ...]

    @property
    def ways(self) -> int:
        return math.prod(len(variants.contents) for _, variants in self.files)

    def state(self, picks: tuple[int, ...]) -> State:
        open_to_choice = iter(picks)
        files = tuple(
            (path, variants.contents[next(open_to_choice) if len(variants.contents) > 1 else 0])
            for path, variants in self.files
        )
        return State((*self.digits, *picks), self.name, self.others, self.directories, files)

    @property
    def choices(self) -> list[int]:
        return [len(variants.contents) for _, variants in self.files if len(variants.contents) > 1]


class Found(NamedTuple):
    """The states to be tried at one step, and whether they are all there are, older watermarks and `.new` aside."""

    states: list[State]
    complete: bool


def states_of(root: Directory, relays: tuple[Directory, ...], bounds: Bounds, step: int) -> Found:
    """Those of each of `relays` below `root`; the other relays stand by, only their names count."""
    found: list[State] = []
    complete = True
    for at, relay in enumerate(relays):
        shapes = list(_shapes(root, relay, at, bounds))
        matter = (one for shape in shapes for one in shape.files if bounds.of(one[0]) == bounds.contents)
        complete = complete and all(variants.complete for _, variants in matter)
        if sum(shape.ways for shape in shapes) <= bounds.states:
            found += [shape.state(picks) for shape in shapes for picks in _all(shape)]
        else:
            complete = False
            found += _drawn(shapes, bounds, random.Random(f"{bounds.seed} {step} {at}"))
    return Found(found, complete)


def chosen(root: Directory, relays: tuple[Directory, ...], bounds: Bounds, choice: str) -> State:
    """The state that `choice` names."""
    digits = tuple(map(int, choice.split(".")))
    for shape in _shapes(root, relays[digits[0]], digits[0], bounds):
        if digits[: len(shape.digits)] == shape.digits and len(digits) == len(shape.digits) + len(shape.choices):
            return shape.state(digits[len(shape.digits) :])
    raise ValueError(f"no state of this step is {choice}")


def _all(shape: Shape) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, shape.choices))


def _drawn(shapes: list[Shape], bounds: Bounds, chance: random.Random) -> list[State]:
    """Of each shape all files as on disk, all as in memory, each file alone; then any."""
    found: dict[tuple[int, ...], State] = {}

    def add(shape: Shape, picks: tuple[int, ...]) -> None:
        found.setdefault((*shape.digits, *picks), shape.state(picks))

    for shape in shapes:
        corners = itertools.product(*((0, 1) for _ in shape.choices))
        for picks in itertools.islice(corners, 16):
            add(shape, picks)
    for _ in range(2 * bounds.states):
        if len(found) >= bounds.states:
            break
        shape = chance.choice(shapes)
        add(shape, tuple(map(chance.randrange, shape.choices)))
    return list(found.values())


def _shapes(root: Directory, relay: Directory, at: int, bounds: Bounds) -> Iterator[Shape]:
    for digits, names in _tops(root):
        others = tuple(sorted(name for name, node in names.items() if node is not relay))
        name = next((name for name, node in names.items() if node is relay), None)
        if name is None:
            yield Shape((at, *digits), None, others, (), ())
            continue
        for inner, directories, files in _below(relay, ""):
            choices = tuple((path, file.variants(bounds.of(path), bounds.seed)) for path, file in sorted(files))
            yield Shape((at, *digits, *inner), name, others, directories, choices)


def _tops(root: Directory) -> Iterator[tuple[tuple[int, ...], dict[str, Directory]]]:
    """Which names relays/ has, where it is there itself: of the two directories above only that counts."""
    seen: set[Directory | None] = set()
    for first in range(len(root.pending) + 1):
        state = root.after(first).get("state")
        for second in range(len(state.pending) + 1 if state is not None else 1):
            relays = None if state is None else state.after(second).get("relays")
            if relays in seen:
                continue
            seen.add(relays)
            for third in range(len(relays.pending) + 1 if relays is not None else 1):
                yield (first, second, third), {} if relays is None else relays.after(third)


_Below = tuple[tuple[int, ...], tuple[str, ...], list[tuple[str, File]]]


def _below(directory: Directory, prefix: str) -> Iterator[_Below]:
    """Every way in which the names below a directory may be there."""
    for count in range(len(directory.pending) + 1):
        names = sorted(directory.after(count).items())
        files = [(prefix + name, node) for name, node in names if isinstance(node, File)]
        below = [list(_below(node, f"{prefix}{name}/")) for name, node in names if isinstance(node, Directory)]
        own = tuple(prefix + name for name, node in names if isinstance(node, Directory))
        for ways in itertools.product(*below):
            yield (
                (count, *(digit for digits, _, _ in ways for digit in digits)),
                own + tuple(one for _, directories, _ in ways for one in directories),
                files + [one for _, _, found in ways for one in found],
            )
