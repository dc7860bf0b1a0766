"""Clients of a real daemon: good ones with their answers' times, and ones that hold connections open."""

import contextlib
import resource
import socket
import statistics
import time
from collections.abc import Iterator

from support.daemon import Daemon
from support.wire import Wire, frame

MIB = 1 << 20


def raise_descriptors(wanted: int) -> int:
    """Takes as many descriptors as the system lets this process have; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(wanted, 1024)), hard))
    return min(hard, wanted)


def good_client(daemon: Daemon) -> Wire:
    """A client with a relay."""
    wire = daemon.connect(client="good")
    wire.done("open", relay="good", create=True)
    return wire


def call(wire: Wire) -> float:
    """Records an event and reads it back, and says how long that took."""
    began = time.perf_counter()
    recorded = wire.done("record", relay="good", events=[["x"]])
    page = wire.done("attach", relay="good", after=[recorded["first"] - 1, None])
    assert page["through"] == recorded["through"]
    return time.perf_counter() - began


def late(times: list[float]) -> float:
    """The 99th of 100."""
    return statistics.quantiles(times, n=100)[98]


def hello(daemon: Daemon) -> Wire:
    """A client that said hello."""
    return daemon.connect(client="peer")


def silent(daemon: Daemon) -> socket.socket:
    """A connection on which nothing was said."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Without a timeout: where more come than the daemon has taken yet, this one waits for its turn.
        connection.connect(str(daemon.socket))
        connection.settimeout(20)
    except BaseException:
        connection.close()
        raise
    return connection


def drained(wire: Wire) -> list[dict]:
    """Everything up to the end of the connection; a reset is one, where what was sent had not all been read."""
    found = []
    with contextlib.suppress(ConnectionError):
        while True:
            found.append(wire.receive())
    return found


@contextlib.contextmanager
def many(daemon: Daemon, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that have said hello, and were welcomed."""
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connections.append(silent(daemon))
            connections[-1].sendall(frame({"op": "hello", "id": 1, "versions": [1], "client": "one of many"}))
        for connection in connections:
            assert connection.recv(4096)
        yield connections
    finally:
        for connection in connections:
            connection.close()
