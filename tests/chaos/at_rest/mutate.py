"""Whole relays, damaged in several ways at once; all of it follows from a seed and a number."""

import random
from collections.abc import Callable

from chaos.at_rest.judge_files import span_of
from chaos.at_rest.shapes import ACTIVE, SHAPES, THIRD_SEGMENT
from support import oracle
from support.relays import OTHER_SEGMENT, OTHER_STORE, acknowledged, name, sealed, segment, snapshot

Files = dict[str, bytes]
DAMAGES_MAX = 4
SNAPSHOTS = ("snapshot", "snapshot.previous")


def mutated(seed: int, number: int) -> tuple[Files, list[str]]:
    """The files of one damaged relay, and what was done to it."""
    chance = random.Random(f"at rest {seed} {number}")
    shape = chance.choice(sorted(SHAPES))
    files, done = SHAPES[shape](), [shape]
    for _ in range(chance.randint(1, DAMAGES_MAX)):
        damage = chance.choice(DAMAGES)
        if files:
            done.append(f"{damage.__name__} {damage(chance, files)}")
    return files, done


def flip_bits(chance: random.Random, files: Files) -> str:
    path, data = _bytes_of(chance, files)
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    files[path] = bytes(data)
    return path


def zero_piece(chance: random.Random, files: Files) -> str:
    path, data = _bytes_of(chance, files)
    if chance.random() < 0.5:
        begin = chance.randrange(0, len(data), 512)
        end = min(len(data), begin + 512)
    else:
        begin = chance.randrange(len(data))
        end = chance.randint(begin + 1, len(data))
    data[begin:end] = bytes(end - begin)
    files[path] = bytes(data)
    return f"{path} {begin} to {end}"


def write_block_of_another_file(chance: random.Random, files: Files) -> str:
    path, data = _bytes_of(chance, files)
    other = files[chance.choice(sorted(files))]
    begin = chance.randrange(0, len(data), chance.choice((1, 64, 512)))
    block = other[begin : begin + 512] or other[:512]
    data[begin : begin + len(block)] = block
    files[path] = bytes(data)
    return f"{path} {begin}"


def truncate(chance: random.Random, files: Files) -> str:
    path, data = _bytes_of(chance, files)
    size = chance.randrange(len(data))
    files[path] = bytes(data[:size])
    return f"{path} to {size}"


def append_bytes(chance: random.Random, files: Files) -> str:
    path = chance.choice(sorted(files))
    more = chance.choice((bytes(1), bytes(511), bytes(4096), chance.randbytes(chance.randint(1, 700)), files[path]))
    files[path] += more
    return f"{path} {len(more)} bytes"


def remove(chance: random.Random, files: Files) -> str:
    path = chance.choice(sorted(files))
    del files[path]
    return path


def swap(chance: random.Random, files: Files) -> str:
    one, other = chance.choice(sorted(files)), chance.choice(sorted(files))
    files[one], files[other] = files[other], files[one]
    return f"{one} {other}"


def copy_under_another_name(chance: random.Random, files: Files) -> str:
    path = chance.choice(sorted(files))
    span = span_of(path)
    first, last = (span.first, span.last) if span else (chance.randint(1, 20), chance.randint(1, 20))
    shift = chance.choice((-4, -1, 0, 1, 4, 5, last - first + 1))
    first, last = max(1, first + shift), max(1, last + shift, first + shift)
    suffix = chance.choice((".log", ".log.zst", ".lost"))
    others = ("journal/active.log~", "journal/active.log.new", "snapshot.new", "notes", ACTIVE, "snapshot.previous")
    target = chance.choice((f"journal/{name(first, last, suffix)}", *others))
    files[target] = files[path]
    return f"{path} as {target}"


def put_an_older_one_back(chance: random.Random, files: Files) -> str:
    """A valid file of another moment of the same relay, from before or after."""
    at = chance.randint(1, 18)
    base = chance.choice((0, 0, min(at, 4), at))
    known = {
        "snapshot": lambda: snapshot(at, base=base),
        "snapshot.previous": lambda: snapshot(at, base=base),
        "acknowledged": lambda: acknowledged(at),
        "watermark": lambda: oracle.watermark(
            chance.choice((oracle.SEGMENT, OTHER_SEGMENT, THIRD_SEGMENT, b"?" * 16)),
            chance.choice((0, 48, 200, 1 << 40)),
        ),
        ACTIVE: lambda: _older_active(chance),
    }
    path = chance.choice(sorted(known))
    files[path] = known[path]()
    return f"{path} {at}"


def put_a_forked_snapshot_there(chance: random.Random, files: Files) -> str:
    """A valid one, made after another event at its frontier than the journal has."""
    path, at = chance.choice(SNAPSHOTS), chance.randint(1, 16)
    files[path] = snapshot(at, frontier=[at, b"f" * 16], producers={})
    return f"{path} {at}"


def put_another_relays(chance: random.Random, files: Files) -> str:
    """One file of another relay, valid there, under the same name."""
    path = chance.choice(sorted(files))
    span = span_of(path)
    if span and span.suffix == ".log.zst":
        files[path] = sealed(span.first, span.last, store=OTHER_STORE)
    elif path in SNAPSHOTS:
        files[path] = snapshot(chance.randint(1, 16), store=OTHER_STORE)
    elif path == "acknowledged":
        files[path] = acknowledged(chance.randint(1, 20), store=OTHER_STORE)
    elif span or path == ACTIVE:
        first = span.first if span else chance.randint(1, 14)
        files[path] = segment(2, 1, first=first, segment=b"f" * 16, store=OTHER_STORE)
    return path


DAMAGES: tuple[Callable[[random.Random, Files], str], ...] = (
    flip_bits,
    zero_piece,
    write_block_of_another_file,
    truncate,
    append_bytes,
    remove,
    swap,
    copy_under_another_name,
    put_an_older_one_back,
    put_a_forked_snapshot_there,
    put_another_relays,
)


def _bytes_of(chance: random.Random, files: Files) -> tuple[str, bytearray]:
    """A file that has any bytes; where none has, one is given some."""
    path = chance.choice(sorted(path for path in files if files[path]) or sorted(files))
    return path, bytearray(files[path] or bytes(64))


def _older_active(chance: random.Random) -> bytes:
    """An active.log of another moment: ordinals that others hold already, or follow them."""
    first = chance.choice((1, 5, 8, 12, 17))
    return segment(*[1] * chance.randint(0, 4), first=first, segment=chance.choice((oracle.SEGMENT, b"o" * 16)))
