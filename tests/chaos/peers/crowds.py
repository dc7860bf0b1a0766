"""How late others are answered while many peers are there, or come and go: parts of the long run, on a real daemon."""

import contextlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from chaos.layer import Budget, Result, Violation
from chaos.peers.answers import check_shape
from chaos.peers.inside_batch import cut_stream, matched_answers
from chaos.peers.model import Model
from chaos.peers.mutated import draw
from chaos.peers.mutator import Mutator
from chaos.peers.real import MIB, call, good_client, late, many, raise_descriptors, silent
from chaos.peers.rules import judge
from support.daemon import Daemon, running_daemon, until
from support.wire import Wire, cut_frames, frame

CONNECTIONS = 10_000
LATE_FACTOR = 2.0
LATE_FLOOR_SECONDS = 0.05
"""A 99th of 100 below this is soon enough, whatever it was in quiet: the disk alone may take as long."""
ROUNDS = 5
RSS_BYTES_MAX = 8 * MIB


def _wrong(result: Result, budget: Budget, what: str) -> None:
    result.violations.append(Violation(what, f"python tests/chaos/peers/long.py --seconds 120 --seed {budget.seed}"))


def _times(other: Wire, seconds: float) -> list[float]:
    until_then = time.monotonic() + seconds
    found = [call(other) for _ in range(20)]
    while time.monotonic() < until_then:
        found.append(call(other))
    return found


def _compare(result: Result, budget: Budget, what: str, quiet: list[float], loud: list[float]) -> None:
    """The row's bound: others' p99 within twice what it was."""
    result.counts[f"others' p99 in quiet, ms ({what})"] = late(quiet) * 1000
    result.counts[f"others' p99 meanwhile, ms ({what})"] = late(loud) * 1000
    if late(loud) > max(LATE_FACTOR * late(quiet), LATE_FLOOR_SECONDS):
        _wrong(result, budget, f"{what}: others' p99 went from {late(quiet) * 1000:.1f} to {late(loud) * 1000:.1f} ms")


def _no_trouble(result: Result, budget: Budget, daemon: Daemon, allowed: set[str]) -> None:
    trouble = [line for line in daemon.log if line["level"] != "info" and line["event"] not in allowed]
    if trouble:
        _wrong(result, budget, f"the log says {trouble[0]}")


def ten_thousand(budget: Budget, result: Result) -> None:
    """10,000 connections that have said hello; quiet is before they come and after they went."""
    room = raise_descriptors(CONNECTIONS + 500) - 500
    count = min(CONNECTIONS, room)
    if count < CONNECTIONS:
        result.left_out.append(f"{CONNECTIONS - count} of {CONNECTIONS} connections: no more descriptors are allowed")
    with running_daemon(connections=count + 1) as daemon, good_client(daemon) as other:
        quiet = _times(other, 2)
        descriptors, resident = daemon.descriptors, daemon.resident_bytes
        with many(daemon, count):
            budget.tell(f"{count} connections")
            loud = _times(other, 4)
            result.counts["connections at once"] = count
            result.counts["bytes of memory for each"] = (daemon.resident_bytes - resident) // count
            with silent(daemon) as refused:
                (answer,) = cut_frames(bytearray(refused.recv(4096)))
                if answer.get("code") != "overloaded":
                    _wrong(result, budget, f"one connection too many was answered {answer}")
        until(lambda: daemon.descriptors == descriptors, 30, "descriptors are kept")
        quiet += _times(other, 2)
        _compare(result, budget, "10,000 connections", quiet, loud)
        _no_trouble(result, budget, daemon, {"connection_refused"})


@contextlib.contextmanager
def _flood(daemon: Daemon) -> Iterator[Callable[[int], None]]:
    script = Path(__file__).with_name("flood.py")
    process = subprocess.Popen([sys.executable, str(script), str(daemon.socket)])
    try:
        yield process.send_signal
    finally:
        process.kill()
        process.wait()


def flood_of_connects(budget: Budget, result: Result) -> None:
    """Connects without end, in rounds with quiet between them; how many came is told by the daemon's own work."""
    with running_daemon(log_level="debug") as daemon, good_client(daemon) as other:
        quiet, loud = _times(other, 1), []
        with _flood(daemon) as say:
            for _ in range(ROUNDS):
                say(signal.SIGCONT)
                loud += _times(other, 1)
                say(signal.SIGSTOP)
                quiet += _times(other, 1)
                budget.tell("a flood of connects")
        call(other)
        result.count("connects in floods", len(daemon.said("connection_ended")))
        _compare(result, budget, "a flood of connects", quiet, loud)


def never_complete(budget: Budget, result: Result) -> None:
    """Half a frame, a byte a second, no hello: each is closed by its own deadline, and others are answered as ever."""
    greeting = frame({"op": "hello", "id": 1, "versions": [1], "client": "slow"})
    half = frame({"op": "relays", "id": 2})[:7]
    with running_daemon() as daemon, good_client(daemon) as other:
        quiet = _times(other, 3)
        descriptors = daemon.descriptors
        began = time.monotonic()
        peers = [silent(daemon) for _ in range(900)]
        try:
            for at, peer in enumerate(peers):
                peer.sendall((b"", greeting + half, greeting + frame(bytes(100))[:4])[at % 3])
            loud = []
            while time.monotonic() - began < 28:
                for peer in peers[2::3]:
                    peer.sendall(b"\x80")
                loud += _times(other, 1)
                budget.tell("half frames, a byte a second, no hello")
            if daemon.descriptors != descriptors + 600:
                _wrong(result, budget, f"{daemon.descriptors - descriptors} of 900 were open after 28 s, not 600")
            until(lambda: daemon.descriptors == descriptors, 10, "a frame that is not complete keeps its connection")
        finally:
            for peer in peers:
                peer.close()
        result.count("connections without hello or with half a frame, closed in their time", len(peers))
        _compare(result, budget, "900 slow peers", quiet, loud)
        _no_trouble(result, budget, daemon, set())


def mutated_over_sockets(budget: Budget, result: Result, seconds: float, frames: int) -> None:
    """Mutated frames to a real daemon: each answered, nothing untyped, memory and descriptors as before."""
    mutator = Mutator(Random(f"{budget.seed}:sockets"), Model(0))
    ends = time.monotonic() + seconds
    # Without its caches, so that what it has more is kept by something else.
    small = {"idle_relay": 5, "tail_bytes": 0, "page_cache_bytes": 0}
    with running_daemon(**small) as daemon, good_client(daemon) as other:
        for name in "a", "b-2", "c.3":
            other.done("open", relay=name, create=True)
        sent = _send(mutator, daemon, 10_000)
        before, descriptors = daemon.resident_bytes, daemon.descriptors
        while sent < frames and time.monotonic() < ends:
            sent += _send(mutator, daemon, 1000)
            call(other)
            budget.tell(f"{sent} mutated frames over sockets")
        result.count("mutated frames over sockets", sent)
        grown = (daemon.resident_bytes - before) / MIB
        result.counts["memory that the daemon has more of after them, MiB"] = grown
        if daemon.resident_bytes - before > RSS_BYTES_MAX:
            _wrong(result, budget, f"the daemon has {grown:.1f} MiB more after {sent} mutated frames")
        # Relays that mutated names made are closed again when nobody uses them.
        until(lambda: daemon.descriptors <= descriptors, 30, "descriptors are kept")
        _no_trouble(result, budget, daemon, set())


def _send(mutator: Mutator, daemon: Daemon, frames: int) -> int:
    """Batches over connections of their own; every frame has one answer, of a shape that protocol.md knows."""
    count = 0
    while count < frames:
        stream = b"".join(draw(mutator, 50))
        cut = cut_stream(stream)
        if cut.lost is None:
            # Framing is always lost at the end: what waits for a minute is ended by that.
            stream = b"".join(map(frame, cut.frames)) + bytes(4)
            cut = cut_stream(stream)
        answers = exchange(daemon, stream)
        for answer in answers:
            check_shape(answer)
        list(matched_answers(cut, [judge(one) for one in cut.frames], answers))
        count += len(cut.frames)
    return count


def exchange(daemon: Daemon, stream: bytes) -> list[dict]:
    """Sends all, and gives every answer up to the end; takes them while it sends, as the daemon owes them."""
    buffer, left = bytearray(), memoryview(stream)
    with silent(daemon) as peer, contextlib.suppress(ConnectionError):
        peer.setblocking(False)
        while True:
            readable, writable, _ = select.select([peer], [peer] if left else [], [], 30)
            assert readable or writable, "it is neither read nor answered"
            if readable:
                data = peer.recv(1 << 18)
                if not data:
                    break
                buffer += data
            elif writable:
                left = left[peer.send(left) :]
    return cut_frames(buffer)
