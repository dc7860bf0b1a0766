"""The command lane's figures: submitting beside recording, and appends beside a long queue.

    python bench/commands.py            about a minute; prints, and writes bench/COMMANDS.md
    python bench/commands.py --quick    a few seconds; prints only

One client in Python pipelines requests, 256 in flight, each with one task or one event of the same 300 bytes; every
answer waits for its sync. Rounds alternate and ratios are of each pair, so that a slow minute slows both.
"""

import argparse
import os
import platform
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec
from daemon_process import Daemon, serving

import relayd
from relayd.protocol.frame import FrameBuffer, encode_frame
from relayd.protocol.messages import Hello, NewEvent, Record, Request, Submit

IN_FLIGHT = 256
TASK_BYTES = 300
QUEUED_BYTES = 1024


def payload(size: int, number: int) -> dict[str, object]:
    """A map of about `size` bytes, as a task or an event would have."""
    return {"number": number, "target": f"build/{number}", "text": "x" * (size - 48)}


def submits(relay: str, prefix: str, count: int, size: int) -> list[Request]:
    """One request for each task."""
    return [
        Submit(0, relay, f"{prefix}-{number:08}", raw({"type": "task", "payload": payload(size, number)}))
        for number in range(count)
    ]


def records(relay: str, count: int, size: int) -> list[Request]:
    """One request for each event."""
    return [Record(0, relay, [NewEvent("task", raw(payload(size, number)))]) for number in range(count)]


def raw(value: object) -> msgspec.Raw:
    """One MessagePack value."""
    return msgspec.Raw(msgspec.msgpack.encode(value))


class Pipe:
    """A connection that keeps IN_FLIGHT requests on their way."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._frames = FrameBuffer()
        self._socket.sendall(encode_frame(Hello(1, [1], "bench")))
        self._take(1)

    def _take(self, count: int) -> int:
        """Answers that came, at least `count`."""
        came = 0
        while came < count:
            data = self._socket.recv(1 << 18)
            assert data, "the daemon closed the connection"
            for frame in self._frames.feed(data):
                assert b"\xa5error" not in frame[:12], frame[:200]
                came += 1
        return came

    def rate(self, requests: list[Request]) -> float:
        """Requests answered a second."""
        for number, request in enumerate(requests, 1):
            request.id = number
        frames = [bytes(encode_frame(request)) for request in requests]
        began = time.perf_counter()
        sent = answered = 0
        while answered < len(frames):
            more = frames[sent : answered + IN_FLIGHT]
            if more:
                self._socket.sendall(b"".join(more))
                sent += len(more)
            answered += self._take(1)
        return len(frames) / (time.perf_counter() - began)

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def submitting(daemon: Daemon, rounds: int, count: int) -> list[tuple[float, float]]:
    """Rates of records and of submits, pair by pair."""
    pairs: list[tuple[float, float]] = []
    with relayd.Client(daemon.socket) as client, closing(Pipe(daemon.socket)) as pipe:
        for number in range(rounds):
            for kind in ("r", "s"):
                client.open(f"{kind}{number}", create=True)
            recorded = pipe.rate(records(f"r{number}", count, TASK_BYTES))
            pairs.append((recorded, pipe.rate(submits(f"s{number}", "task", count, TASK_BYTES))))
    return pairs


def appending(daemon: Daemon, rounds: int, count: int, queued: int) -> tuple[list[tuple[float, float]], int]:
    """Rates of records into a relay with nothing queued and into one with `queued` tasks of 1 KiB; its disk bytes."""
    pairs: list[tuple[float, float]] = []
    with relayd.Client(daemon.socket) as client, closing(Pipe(daemon.socket)) as pipe:
        for name in ("none", "long"):
            client.open(name, create=True)
        pipe.rate(submits("long", "queued", queued, QUEUED_BYTES))
        for _ in range(rounds):
            without = pipe.rate(records("none", count, TASK_BYTES))
            pairs.append((without, pipe.rate(records("long", count, TASK_BYTES))))
    snapshot = daemon.directory / "state" / "relays" / "long" / "snapshot"
    return pairs, snapshot.stat().st_size if snapshot.exists() else 0


def ratio(pairs: Iterable[tuple[float, float]]) -> str:
    """Median, least and most of the second by the first."""
    ratios = [second / first for first, second in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def median(pairs: Iterable[tuple[float, float]], at: int) -> str:
    """The median of one side."""
    return f"{statistics.median(pair[at] for pair in pairs):,.0f}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a few seconds, prints only")
    quick = parser.parse_args().quick
    rounds, count = (2, 1000) if quick else (9, 6000)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place, serving(Path(place)) as daemon:
        pairs = submitting(daemon, rounds, count)
        beside, snapshot_bytes = appending(daemon, rounds, count, 1000 if quick else 10_000)
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    lines = [
        "# Figures of the command lane",
        "",
        "Written by `python bench/commands.py`. One client in Python, 256 requests in flight, each with one event or",
        "task of 300 bytes, every answer behind its sync. Rounds alternate; a ratio is of one pair, and medians are",
        "quoted.",
        "",
        (
            f"relayd {relayd.__version__} at {git.stdout.strip()}, CPython {platform.python_version()},"
            f" {os.cpu_count()} cores."
        ),
        "",
        "| what | records/s | the other/s | ratio (min to max) | to reach |",
        "| --- | ---: | ---: | ---: | ---: |",
        f"| submitting beside recording | {median(pairs, 0)} | {median(pairs, 1)} | {ratio(pairs)} | 0.5 |",
        (
            f"| recording with 10,000 tasks of 1 KiB queued beside none | {median(beside, 0)} | {median(beside, 1)} |"
            f" {ratio(beside)} | 0.8 |"
        ),
        "",
        f"The snapshot with all of them queued: {snapshot_bytes / (1 << 20):.1f} MiB (at most 16).",
        "",
    ]
    print("\n".join(lines))
    if not quick:
        (Path(__file__).parent / "COMMANDS.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
