"""Clients that follow, and say how far they have come."""

import trio
from chaos.history import Sent
from chaos.simulated.actor import RETRY_SECONDS, Actor, Line
from support.wire import GENESIS, Stored, records


class Reader(Actor):
    """Follows from its own cursor through every crash; one with a consumer's name says how far it has come."""

    def __init__(self, *arguments, acknowledges: bool = False) -> None:
        super().__init__(*arguments)
        self.cursor: list = GENESIS
        self.acknowledges = acknowledges
        self.latest = 0
        self.asked_to_keep = 0
        """The greatest ordinal it said that it has, answered or not."""

    async def act(self, line: Line, steps: int) -> None:
        if self.acknowledges:
            await self._ask_where_it_stands(line)
        for _ in range(steps):
            await self._read(line, self.random.choice((0, 0, 300, 2000)))
            if self.random.random() < 0.2:
                await self._begin_anew(line)
            if self.acknowledges and self.cursor[0] and self.random.random() < 0.6:
                await self._acknowledge(line)

    async def catch_up(self, line: Line) -> None:
        """Reads up to what is there now."""
        while (page := await self._read(line, 0))["re"] == "error" or page["latest"][0] > self.cursor[0]:
            pass

    async def _read(self, line: Line, wait_ms: int) -> dict:
        size = self.random.choice((1, 400, 1 << 20))
        fields = {"relay": self.relay, "after": self.cursor, "wait_ms": wait_ms, "max_bytes": size}
        page = await line.ask("attach", self._take, **fields)
        if page["re"] == "error" and page["code"] != "desynchronized":
            await trio.sleep(RETRY_SECONDS)
        return page

    def _take(self, page: dict) -> None:
        if page["re"] == "error":
            if page["code"] == "desynchronized":
                self.said.gaps += 1
                self.cursor = page["detail"]["earliest"]
            return
        for stored in records(page["records"]):
            if stored.ordinal != self.cursor[0] + 1:
                self.said.wrong.append(f"{stored.ordinal} came after {self.cursor[0]}")
            self.cursor = stored.cursor
            self._saw(stored)
        if page["through"][0] != self.cursor[0] or page["latest"][0] < self.latest:
            self.said.wrong.append(f"a page through {page['through'][0]} of {page['latest'][0]} after {self.latest}")
        self.latest = page["latest"][0]

    def _saw(self, stored: Stored) -> None:
        if self.said.shown.setdefault(stored.ordinal, stored.digest) != stored.digest:
            self.said.wrong.append(f"ordinal {stored.ordinal} was shown in two ways")
        if not stored.kind.startswith("relay."):
            self.said.shown_events[stored.ordinal] = Sent(*stored.data)

    async def _begin_anew(self, line: Line) -> None:
        """What it was shown, it is shown again."""
        await line.ask("attach", self._take_again, relay=self.relay, after="earliest")

    def _take_again(self, page: dict) -> None:
        if page["re"] != "error":
            for stored in records(page["records"]):
                self._saw(stored)

    async def _acknowledge(self, line: Line) -> None:
        self.asked_to_keep = max(self.asked_to_keep, self.cursor[0])
        await line.ask("acknowledge", self._acknowledged, relay=self.relay, through=self.cursor, consumer=self.name)

    def _acknowledged(self, response: dict) -> None:
        if response["re"] != "error":
            if response["through"][0] < self.cursor[0]:
                self.said.wrong.append(f"acknowledged {self.cursor[0]}, stands at {response['through'][0]}")
            self.said.acknowledged = max(self.said.acknowledged, response["through"][0])

    async def _ask_where_it_stands(self, line: Line) -> None:
        at_least = self.said.acknowledged
        status = await self.insist(line, "status", relay=self.relay)
        stands = status["consumers"].get(self.name, GENESIS)[0]
        if not at_least <= stands <= self.asked_to_keep:
            self.said.wrong.append(f"consumer stands at {stands}; {at_least} was answered, {self.asked_to_keep} said")

    def may_be_told(self, op: str, response: dict) -> bool:
        # A gap is said to whom retention has left behind, and to nobody else.
        evicted = op == "attach" and response["code"] == "desynchronized" and response["detail"]["reason"] == "evicted"
        return (evicted and self.relay != "kept") or super().may_be_told(op, response)
