"""Mutated frames by number: an epoch is a fresh daemon that takes batches of them, each over a connection of its own.

    python tests/chaos/peers/mutated.py --seed 1 --frame 123456

shows again what one frame met: its epoch runs to the batch that it is in, which is printed. (Ids of stores are drawn
anew, so a frame that carries one has other bytes there.)
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from chaos.peers.inside_batch import Hostile, cut_stream, hostile
from chaos.peers.mutator import Mutator
from chaos.peers.rules import judge
from support.daemon import short_place
from support.inside import run_virtually
from support.wire import frame

BATCH_FRAMES = 50
EPOCH_BATCHES = 40
EPOCH_FRAMES = BATCH_FRAMES * EPOCH_BATCHES
HELLO = frame({"op": "hello", "id": 1, "versions": [1], "client": "mutated", "asker": "somebody"})


class FoundError(Exception):
    """Something was wrong with frame `number`, or right behind it."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"frame {number}: {why}")
        self.number = number
        self.why = why


@dataclass
class Counts:
    """What an epoch, or many, came to."""

    frames: int = 0
    batches: int = 0
    events: int = 0
    mutations: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        self.frames += other.frames
        self.batches += other.batches
        self.events += other.events
        for mine, more in ((self.mutations, other.mutations), (self.outcomes, other.outcomes)):
            for name, count in more.items():
                mine[name] = mine.get(name, 0) + count


def draw(mutator: Mutator, frames: int) -> list[bytes]:
    """What one connection sends, in pieces; hello comes first, for the most part."""
    chance = mutator.random.random()
    hello = HELLO if chance < 0.9 else b"" if chance < 0.95 else mutator.frame() + HELLO
    return mutator.pieces(hello + b"".join(mutator.frame() for _ in range(frames)) + mutator.ending())


def run_epoch(
    seed: int,
    epoch: int,
    *,
    batches: int = EPOCH_BATCHES,
    before: Callable[[int, Hostile, list[bytes]], None] = lambda *_: None,
) -> Counts:
    """Runs one. Raises FoundError."""
    counts = Counts()
    found: list[FoundError] = []

    async def main() -> None:
        with short_place() as place:
            async with hostile(place) as target:
                mutator = Mutator(Random(f"{seed}:{epoch}"), target.model)
                await _run(mutator, target)
                counts.mutations, counts.outcomes = mutator.counts, target.counts

    async def _run(mutator: Mutator, target: Hostile) -> None:
        number = epoch * EPOCH_FRAMES
        try:
            await target.good_client()
            for batch in range(batches):
                number = epoch * EPOCH_FRAMES + batch * BATCH_FRAMES
                pieces = draw(mutator, BATCH_FRAMES)
                before(batch, target, pieces)
                counts.frames += await target.send(pieces)
                counts.batches += 1
                await target.good_client()
            counts.events += await target.everything_is_as_it_was_recorded()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said with the frame's number
            found.append(FoundError(number, f"{type(error).__name__}: {error}"))

    run_virtually(main)
    if found:
        raise found[0]
    return counts


def show(seed: int, number: int) -> None:
    """Runs the epoch of a frame up to the batch it is in, and prints that batch."""
    epoch, batch = divmod(number // BATCH_FRAMES, EPOCH_BATCHES)

    def before(at: int, target: Hostile, pieces: list[bytes]) -> None:
        if at != batch:
            return
        cut = cut_stream(b"".join(pieces))
        for index, content in enumerate(cut.frames):
            text = content.hex() if len(content) < 200 else f"{content[:100].hex()} … ({len(content)} bytes)"
            print(f"{index:3} {judge(content)!s:.300}\n    {text}")  # noqa: T201
        print(f"framing: {cut.lost or 'kept'}; in {len(pieces)} pieces")  # noqa: T201

    print(run_epoch(seed, epoch, batches=batch + 1, before=before))  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Shows again what a mutated frame met.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frame", type=int, required=True, help="its number")
    arguments = parser.parse_args()
    show(arguments.seed, arguments.frame)
