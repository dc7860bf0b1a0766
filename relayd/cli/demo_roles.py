"""Who talks to the demo's daemon: the worker that records, and the readers."""

from collections.abc import AsyncIterator
from typing import Final

import trio

from relayd.cli.demo_account import OUTPUT, data_of, line_of
from relayd.client.aclient import connect
from relayd.client.aproducer import AsyncProducer
from relayd.client.events import Event
from relayd.protocol.cursor import GENESIS, Cursor

RELAY: Final = "build"
PRODUCER: Final = "compileall"


class Worker:
    """Records lines through the idempotent producer; `latest` is the last one's cursor once all are durable."""

    def __init__(self, socket: str) -> None:
        self.sent = 0
        self.latest: Cursor | None = None
        self._socket = socket
        self._producer: AsyncProducer | None = None
        self._took = trio.Event()

    @property
    def answered(self) -> int:
        """Lines that the daemon has answered for."""
        return 0 if self._producer is None else self._producer.position

    @property
    def unanswered(self) -> int:
        """Lines that are on their way."""
        return self.sent - self.answered

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Records all lines; returns when they are durable."""
        async with connect(self._socket, worker="demo") as client:
            await client.open(RELAY, create=True)
            # Without a linger, whatever is not answered has really been sent.
            async with client.producer(RELAY, PRODUCER, linger_ms=0) as producer:
                self._producer = producer
                async for line in lines:
                    self.sent = await producer.record(OUTPUT, data_of(line))
                    self._took.set()
                self.latest = await producer.flush()

    async def took(self) -> None:
        """Waits until one more line is on its way."""
        self._took = trio.Event()
        await self._took.wait()


class Reader:
    """Reads lines in order; cut off at any time, it goes on after the last one it has."""

    def __init__(self, socket: str) -> None:
        self.lines: list[bytes] = []
        self.through = GENESIS
        self._socket = socket
        self._scope = trio.CancelScope()

    async def follow(self) -> None:
        """Reads what it has not, then live, until it is cut off."""
        with trio.CancelScope() as self._scope:
            await self._read(live=True)

    async def read_all(self) -> None:
        """Reads what there is."""
        await self._read(live=False)

    def cut_off(self) -> None:
        """Ends `follow` and its connection, wherever it is."""
        self._scope.cancel()

    async def _read(self, *, live: bool) -> None:
        async with connect(self._socket) as client:
            async for found in client.follow(RELAY, self.through, live=live):
                # What a gap hides is missing from the lines, and so found by whoever compares them.
                if isinstance(found, Event):
                    self._take(found)

    def _take(self, event: Event) -> None:
        line = line_of(event)
        if line is not None:
            self.lines.append(line)
        self.through = event.cursor
