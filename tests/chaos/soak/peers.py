"""Peers that behave badly, each for a while: what they do costs themselves and nobody else."""

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

from support.wire import Wire, frame

JUNK = "junk"
"""The relay that broken requests are for."""
CROWD = 300
PIPELINED_PAGES = 60


def crowd(path: Path, chance: random.Random) -> None:
    """Many connect at once and say nothing, or half a frame, and go."""
    with contextlib.ExitStack() as stack:
        for _ in range(CROWD):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            peer.setblocking(False)
            with contextlib.suppress(OSError):
                peer.connect(str(path))
                peer.send(
                    frame({"op": "hello", "id": 1, "versions": [1], "client": "crowd"})[: chance.choice((0, 3, 9))]
                )
        time.sleep(0.2)


def slow_reader(path: Path, chance: random.Random) -> None:
    """Asks for page after page, reads none, and goes with everything unread."""
    with contextlib.suppress(OSError), Wire(str(path), client="slow", timeout=2) as wire:
        wire.socket.setblocking(False)
        for _ in range(PIPELINED_PAGES):
            wire.send("attach", relay=chance.choice(("kept", "short", "read")), after="earliest")
        time.sleep(chance.uniform(0.1, 0.5))


def half_closed(path: Path) -> str | None:
    """Says that it sends no more, and is still owed answers; what was wrong, where any does not come."""
    try:
        with Wire(str(path), client="half closed", timeout=10) as wire:
            asked = [wire.send("status", relay="kept") for _ in range(20)]
            wire.socket.shutdown(socket.SHUT_WR)
            answered = sorted(response["id"] for response in wire.receive_all())
    except OSError as error:
        return f"a client that half-closed was cut off: {error!r}"
    return None if answered == asked else f"a client that half-closed was owed {asked}, and got {answered}"


def mutated_frames(path: Path, chance: random.Random, count: int = 300) -> str | None:
    """Requests with bytes changed, each framed or not; what was wrong: an answer without a code, a bug."""
    sent = 0
    while sent < count:
        with contextlib.suppress(ConnectionError, TimeoutError), Wire(str(path), client="mutated", timeout=1) as wire:
            while sent < count:
                sent += 1
                wire.socket.sendall(_mutated(chance))
                if chance.random() < 0.2 and (wrong := _bug(wire)):
                    return wrong
    return None


def _mutated(chance: random.Random) -> bytes:
    request = chance.choice(
        (
            {"op": "record", "id": 9, "relay": JUNK, "events": [["note", ["junk", 1, "x"]]]},
            {"op": "record", "id": 9, "relay": JUNK, "events": [["note", [1]]], "producer": "j", "sequence": 1},
            {"op": "attach", "id": 9, "relay": JUNK, "after": [0, bytes(16)], "wait_ms": 0},
            {"op": "status", "id": 9, "relay": JUNK},
            {"op": "acknowledge", "id": 9, "relay": JUNK, "through": [1, bytes(16)]},
        )
    )
    data = bytearray(frame(request))
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(4, len(data))] = chance.randrange(256)
    if chance.random() < 0.1:
        struct.pack_into(">I", data, 0, chance.choice((0, 1, 2**31, 2**32 - 1, 9 << 20)))
    return bytes(data)


def _bug(wire: Wire) -> str | None:
    wire.socket.settimeout(0.5)
    try:
        answer = wire.receive()
    finally:
        wire.socket.settimeout(1)
    return f"a broken request met a bug: {answer}" if answer.get("code") == "internal" else None
