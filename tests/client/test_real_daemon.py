"""Both clients against the daemon itself, started as a process, stopped and killed in the middle of things."""

import os
import select
import signal
import subprocess
import sys
import threading

import anyio
import pytest

from relayd.client.aclient import connect
from relayd.client.events import Gap
from relayd.client.sync import Client
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import (
    AlreadyExistsError,
    DesynchronizedError,
    InvalidRequestError,
    NotFoundError,
    WaitTimeoutError,
)
from relayd.protocol.kinds import RetentionBytes


class Process:
    """`relayd serve` in a directory of its own; `start` returns once it says that it serves."""

    def __init__(self, directory, *flags):
        self.socket = str(directory / "s")
        self._flags = ["--state", str(directory / "state"), "--socket", self.socket, "--log-format", "json", *flags]
        self._process = None

    def start(self):
        """Starts the daemon and waits until it serves."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RELAYD_")}
        command = [sys.executable, "-m", "relayd", "serve", *self._flags]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environ)
        said = b""
        while b'"serving"' not in said:
            assert select.select([self._process.stderr], [], [], 20)[0], said
            more = os.read(self._process.stderr.fileno(), 65536)
            assert more, said
            said += more
        # Its log must not fill the pipe.
        self._drain = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._drain.start()

    def stop(self, how=signal.SIGTERM):
        """Ends it, cleanly or not."""
        if self._process is not None:
            self._process.send_signal(how)
            status = self._process.wait(20)
            self._drain.join()
            self._process.stderr.close()
            assert status == (0 if how == signal.SIGTERM else -how)
            self._process = None

    def restart(self, how=signal.SIGTERM):
        """Ends it and starts it again on the same state."""
        self.stop(how)
        self.start()


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    one = Process(tmp_path_factory.mktemp("daemon"))
    one.start()
    yield one
    one.stop(signal.SIGKILL)


@pytest.fixture
def relay(request, process):
    """A relay of the test's own."""
    name = request.node.name.lower().replace("[", "-").replace("]", "")[-60:].strip("_")
    with Client(process.socket) as client:
        client.open(name, create=True)
    return name


def data_of(events):
    return [event.data for event in events if event.kind == "k"]


def test_a_relay_from_making_to_deleting(process):
    with Client(process.socket) as client:
        with pytest.raises(NotFoundError):
            client.open("whole")
        made = client.open("whole", create=True, retention="acknowledged")
        assert made.created
        assert not client.open("whole").created
        with pytest.raises(AlreadyExistsError):
            client.open("whole", create=True, retention="checkpointed")
        recorded = client.record("whole", [("k", {"n": 1}), ("k", None, "command-1")])
        assert (recorded.first, recorded.through.ordinal) == (2, 3)
        page = client.attach("whole", status=True)
        assert [(event.ordinal, event.kind) for event in page.events] == [(1, "relay.created"), (2, "k"), (3, "k")]
        assert page.through == recorded.through
        assert page.status.latest == recorded.through
        assert client.attach("whole", page.through).verified
        assert client.acknowledge("whole", page.through, "c").through == page.through
        assert client.await_acknowledged("whole", "c", page.through, 1000).through == page.through
        with pytest.raises(WaitTimeoutError):
            client.await_acknowledged("whole", "other", page.through, 10)
        assert client.attach("whole", {"consumer": "c"}).through == page.through
        client.forget_consumer("whole", "c")
        assert client.status("whole").consumers == {}
        assert "whole" in [entry.relay for entry in client.relays()]
        client.delete_relay("whole")
        with pytest.raises(NotFoundError):
            client.status("whole")


def test_what_it_refuses(process, relay):
    with Client(process.socket) as client:
        client.record(relay, [("k", 1)])
        with pytest.raises(InvalidRequestError):
            client.record(relay, [("relay.created", 1)])
        for after in (Cursor(9), Cursor(1, bytes(16))):
            with pytest.raises(DesynchronizedError):
                next(client.follow(relay, after))
            with pytest.raises(DesynchronizedError):
                client.attach(relay, after)


def test_the_whole_history_in_small_pages(process, relay):
    with Client(process.socket) as client:
        with client.producer(relay, "p", batch_events=50) as stream:
            for number in range(2000):
                stream.record("k", number)
        assert data_of(client.follow(relay, live=False, max_bytes=3000)) == list(range(2000))
        assert sum(len(page.events) for page in client.pages(relay, live=False)) == 2001


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_stream_goes_through_restarts_once_and_in_order(process, relay, how):
    with Client(process.socket) as client:
        with client.producer(relay, "p", batch_events=20, in_flight=4) as stream:
            for number in range(3000):
                stream.record("k", number)
                if number in (700, 1900):
                    process.restart(how)
        assert data_of(client.follow(relay, live=False)) == list(range(3000))
        with client.producer(relay, "p") as stream:
            assert stream.position == 3000


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_producer_and_live_reader_go_through_a_restart(process, relay, backend, how):
    async def main():
        seen = []

        async def follow(client):
            async for event in client.follow(relay):
                assert not isinstance(event, Gap)
                if event.kind == "k":
                    seen.append(event.data)
                if len(seen) == 1000:
                    return

        with anyio.fail_after(30):
            async with connect(process.socket) as client, anyio.create_task_group() as tasks:
                tasks.start_soon(follow, client)
                async with client.producer(relay, "p", batch_events=20) as stream:
                    for number in range(1000):
                        await stream.record("k", number)
                        if number == 500:
                            await anyio.to_thread.run_sync(process.restart, how)
        assert seen == list(range(1000))

    anyio.run(main, backend=backend)


def test_a_cancelled_wait_is_taken_back(process, relay, backend):
    async def main():
        async with connect(process.socket) as client:
            # More than may wait on one connection at once.
            for _ in range(300):
                with anyio.move_on_after(0.001):
                    await client.attach(relay, "latest", wait_ms=60_000)
            assert (await client.attach(relay, "latest", wait_ms=1)).events == []

    anyio.run(main, backend=backend)


def test_large_events_are_clamped_and_the_stream_goes_on(process, relay):
    with Client(process.socket) as client:
        with client.producer(relay, "p") as stream:
            for size in (10, 3 << 20, 10):
                stream.record("k", {"text": "x" * size})
        first, large, last = data_of(client.follow(relay, live=False, max_bytes=4 << 20))
        assert len(first["text"]) == len(last["text"]) == 10
        assert 1 << 20 < len(large["text"]) < 2 << 20


def test_a_reader_left_behind_by_bounded_retention_is_told(tmp_path):
    process = Process(tmp_path, "--segment-bytes", "65536")
    process.start()
    try:
        with Client(process.socket) as client:
            client.open("r", create=True, retention=RetentionBytes(150_000))
            with client.producer("r", "p", batch_events=50) as stream:
                number = 0
                while client.status("r").evicted.ordinal == 0:
                    for _ in range(200):
                        stream.record("k", number)
                        number += 1
                    stream.flush()
                    assert number < 100_000
            # Collection may go on meanwhile: what counts is that each ordinal is either shown or told as lost.
            for after in (Cursor(1), "earliest"):
                position, gaps, last = (1 if after != "earliest" else 0), 0, None
                for one in client.follow("r", after, live=False):
                    if isinstance(one, Gap):
                        assert (one.reason, one.lost.first, one.resume.ordinal) == (
                            "evicted",
                            position + 1,
                            one.lost.last,
                        )
                        position, gaps = one.lost.last, gaps + 1
                    else:
                        position, last = position + 1, one.data if one.kind == "k" else last
                        assert one.ordinal == position
                assert gaps
                assert last == number - 1
    finally:
        process.stop(signal.SIGKILL)
