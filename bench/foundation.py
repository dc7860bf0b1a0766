"""The foundation's figures: relayd beside SQLite in process, round by round, and its own start and memory.

    python bench/foundation.py            about three minutes; writes bench/RESULTS.md and bench/results.json
    python bench/foundation.py --quick    about half a minute; prints only

Both sides store the same payload bytes and sync each batch: SQLite (standard library, WAL, synchronous=FULL,
executemany) in this process, relayd over its socket with a client in Python. Rounds alternate, ratios are of each
pair, and medians are quoted: disks and neighbours change from minute to minute, and ratios do so least.
"""

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
from daemon_process import Daemon, serving
from foundation_table import table
from workload import encoded, make_events

import relayd

BATCH = 256
MIB = 1 << 20


def sqlite_writer(path: Path) -> sqlite3.Connection:
    """A database that syncs each commit."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE IF NOT EXISTS event (ordinal INTEGER PRIMARY KEY, kind TEXT, data BLOB)")
    return database


def sqlite_batches(database: sqlite3.Connection, payloads: list[bytes]) -> float:
    """Events a second, in synced transactions of BATCH."""
    rows = [("output", payload) for payload in payloads]
    began = time.perf_counter()
    for start in range(0, len(rows), BATCH):
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO event (kind, data) VALUES (?, ?)", rows[start : start + BATCH])
        database.execute("COMMIT")
    return len(rows) / (time.perf_counter() - began)


def relayd_batches(client: relayd.Client, relay: str, payloads: list[bytes]) -> float:
    """Events a second, in requests of BATCH, each answered when it is synced."""
    events = [("output", msgspec.Raw(payload)) for payload in payloads]
    began = time.perf_counter()
    for start in range(0, len(events), BATCH):
        client.record(relay, events[start : start + BATCH])
    return len(events) / (time.perf_counter() - began)


def relayd_pipelined(client: relayd.Client, relay: str, producer: str, data: list[dict[str, object]]) -> float:
    """Events a second through the idempotent producer, batches of BATCH in flight while the next gathers."""
    began = time.perf_counter()
    with client.producer(relay, producer, batch_events=BATCH) as recording:
        for one in data:
            recording.record("output", one)
        recording.flush()
    return len(data) / (time.perf_counter() - began)


def sqlite_replay(database: sqlite3.Connection) -> float:
    """Rows a second of a whole SELECT."""
    began = time.perf_counter()
    count = sum(1 for _ in database.execute("SELECT ordinal, kind, data FROM event ORDER BY ordinal"))
    return count / (time.perf_counter() - began)


def relayd_replay(client: relayd.Client, relay: str) -> float:
    """Events a second, every ordinal and digest verified, bodies not looked at."""
    began = time.perf_counter()
    count = sum(1 for _ in client.follow(relay, live=False))
    return count / (time.perf_counter() - began)


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def throughput(directory: Path, rounds: int, events: int) -> dict[str, object]:
    """Batches and replay, SQLite and relayd in turn."""
    data = make_events(events)
    payloads = encoded(data)
    pairs: dict[str, list[tuple[float, float]]] = {"batches": [], "pipelined": [], "replay": []}
    with serving(directory) as daemon, relayd.Client(daemon.socket) as client:
        client.open("bench", create=True)
        with closing(sqlite_writer(directory / "bench.sqlite")) as database:
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}: {events:,} events of {len(payloads[0])} bytes")
                theirs = sqlite_batches(database, payloads)
                pairs["batches"].append((relayd_batches(client, "bench", payloads), theirs))
                pairs["pipelined"].append((relayd_pipelined(client, "bench", f"p{number}", data), theirs))
                rows = sqlite_replay(database)
                pairs["replay"].append((relayd_replay(client, "bench"), rows))
    return {
        name: {
            "relayd_events_per_second": round(statistics.median(ours for ours, _ in found)),
            "sqlite_events_per_second": round(statistics.median(theirs for _, theirs in found)),
            "ratio_median": round(statistics.median(ours / theirs for ours, theirs in found), 2),
            "ratio_min": round(min(ours / theirs for ours, theirs in found), 2),
            "ratio_max": round(max(ours / theirs for ours, theirs in found), 2),
        }
        for name, found in pairs.items()
    }


def fill(daemon: Daemon, relay: str, size: int) -> int:
    """Records until the journal's records have `size` bytes before compression; gives the number of events."""
    data = make_events(20_000, seed=7)
    payloads = encoded(data)
    step = sum(map(len, payloads)) + 60 * len(payloads)
    recorded = written = 0
    with relayd.Client(daemon.socket) as client:
        client.open(relay, create=True)
        with client.producer(relay, "fill", batch_events=2048, batch_bytes=MIB) as producer:
            while written < size:
                for one in data:
                    producer.record("output", one)
                recorded, written = recorded + len(data), written + step
                say(f"filling {relay}: {written // MIB} of {size // MIB} MiB")
            producer.flush()
        return recorded


def settle(daemon: Daemon, relay: str) -> None:
    """Waits until nothing of the relay's journal is left to seal."""
    rotated = daemon.directory / "state" / "relays" / relay / "journal"
    while any(name.suffix == ".log" and name.name != "active.log" for name in rotated.iterdir()):
        time.sleep(0.1)


def first_answer(directory: Path, relay: str, rounds: int) -> tuple[list[float], int]:
    """Seconds from exec to the first page of a relay after a SIGKILL, and memory then."""
    times: list[float] = []
    rss = 0
    daemon = Daemon(directory)
    for _ in range(rounds):
        began = time.perf_counter()
        daemon.start()
        with relayd.Client(daemon.socket) as client:
            client.attach(relay, "earliest", max_bytes=1)
        times.append(time.perf_counter() - began)
        rss = daemon.rss_bytes
        daemon.kill()
    return times, rss


def replaying_readers(daemon: Daemon, relay: str, readers: int) -> tuple[int, int]:
    """The largest memory while `readers` processes replay a relay side by side, and the events each read."""
    code = (
        "import sys, relayd\n"
        "with relayd.Client(sys.argv[1]) as client:\n"
        "    print(sum(1 for _ in client.follow(sys.argv[2], live=False)))\n"
    )
    command = [sys.executable, "-c", code, daemon.socket, relay]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(readers)]
    highest = 0
    while any(one.poll() is None for one in running):
        highest = max(highest, daemon.rss_bytes)
        time.sleep(0.05)
    counts = {int(one.communicate()[0]) for one in running}
    assert len(counts) == 1, f"readers read different numbers of events: {counts}"
    return highest, counts.pop()


def history(directory: Path, large_mib: int, small_mib: int, rounds: int) -> dict[str, object]:
    """Start and memory with a long history, beside those with a short one."""
    for name in ("large", "small"):
        (directory / name).mkdir()
    sizes = {"large": large_mib, "small": small_mib}
    for name, size in sizes.items():
        with serving(directory / name) as daemon:
            fill(daemon, "history", size * MIB)
            settle(daemon, "history")
    pairs: list[float] = []
    starts: dict[str, list[float]] = {"large": [], "small": []}
    rss: dict[str, int] = {}
    for number in range(rounds):
        say(f"starting after a kill: round {number + 1} of {rounds}")
        for name in sizes:
            times, rss[name] = first_answer(directory / name, "history", 1)
            starts[name] += times
        pairs.append(starts["large"][-1] / starts["small"][-1])
    with serving(directory / "large") as daemon:
        say("one reader replays the long history")
        one, events = replaying_readers(daemon, "history", 1)
        say("ten readers replay the long history side by side")
        ten, _ = replaying_readers(daemon, "history", 10)
        after = daemon.rss_bytes
    used = sum(path.stat().st_size for path in (directory / "large" / "state").rglob("*") if path.is_file())
    return {
        "history_mib": large_mib,
        "short_history_mib": small_mib,
        "history_events": events,
        "history_disk_mib": round(used / MIB, 1),
        "start_seconds_median": round(statistics.median(starts["large"]), 4),
        "short_start_seconds_median": round(statistics.median(starts["small"]), 4),
        "start_ratio_median": round(statistics.median(pairs), 3),
        "rss_mib_after_first_answer": round(rss["large"] / MIB, 1),
        "rss_mib_one_reader_max": round(one / MIB, 1),
        "rss_mib_ten_readers_max": round(ten / MIB, 1),
        "rss_mib_after_readers": round(after / MIB, 1),
    }


def machine() -> dict[str, object]:
    """What was measured on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "relayd": relayd.__version__,
        "commit": commit.strip(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
    }


def main() -> None:
    """Measures, prints the table, and keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a history of 64 MiB, nothing kept")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--directory", help="where to measure (default: a temporary directory)")
    arguments = parser.parse_args()
    rounds, events, large = (3, 25_600, 64) if arguments.quick else (9, 51_200, 1024)
    with tempfile.TemporaryDirectory(prefix="relayd-bench-", dir=arguments.directory) as made:
        directory = Path(made)
        (directory / "speed").mkdir()
        steps: dict[str, Callable[[], dict[str, object]]] = {
            "machine": machine,
            "throughput": lambda: throughput(directory / "speed", rounds, events),
            "history": lambda: history(directory, large, 10, 3 if arguments.quick else 7),
        }
        results = {name: step() for name, step in steps.items()}
    print(json.dumps(results, indent=2) if arguments.json else table(results))
    if not arguments.quick:
        here = Path(__file__).parent
        (here / "RESULTS.md").write_text(table(results))
        (here / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
