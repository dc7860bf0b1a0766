"""Clients that record: by sequence, without one, and in relays that they make and delete."""

from collections import deque

import trio
from chaos.history import Said
from chaos.simulated.actor import RETRY_SECONDS, Actor, Line, brief


class Producer(Actor):
    """Sends batches by sequence; what is not answered is sent again, and some of what is, twice, at once, or late."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.next = 1
        self.unanswered: deque[tuple[int, list]] = deque()
        self._failed = False

    @property
    def answered_through(self) -> int:
        return self.unanswered[0][0] - 1 if self.unanswered else self.next - 1

    async def act(self, line: Line, steps: int) -> None:
        await self._ask_where_it_stands(line)
        while steps > 0 or self.unanswered:
            if self._failed:
                self._failed = False
                await trio.sleep(RETRY_SECONDS)
                await self._ask_where_it_stands(line)
            depth = self.random.choice((1, 1, 2, 3))
            while steps > 0 and len(self.unanswered) < depth:
                self._begin_batch()
                steps -= 1
            if depth == 1 and len(self.unanswered) == 1:
                await self._send_twice(line)
            else:
                await line.answered(*[self._send(line, *batch) for batch in self.unanswered])

    def _begin_batch(self) -> None:
        first, count = self.next, self.random.choice((1, 1, 2, 4))
        self.next += count
        self.unanswered.append((first, [self._event(number) for number in range(first, first + count)]))

    def _event(self, number: int) -> list:
        text = self.said.sent[number] if number in self.said.sent else self.text(number)
        return ["work", [self.name, number, text]]

    async def _send_twice(self, line: Line) -> None:
        """One batch once, or twice: behind itself, by another connection at once, with what was answered before it."""
        first, events = self.unanswered[0]
        sent = [(line, self._send(line, first, events))]
        match self.random.choice(("once", "once", "same", "other", "overlapping")):
            case "same":
                sent.append((line, self._send(line, first, events)))
            case "other":
                other = Line(self)
                sent.append((other, self._send(other, first, events)))
            case "overlapping" if first > 1:
                sent.append((line, self._send(line, first - 1, [self._event(first - 1), *events])))
        for each, request in sent:
            await each.answered(request)

    def _send(self, line: Line, first: int, events: list) -> int:
        take = lambda response: self._take(first, len(events), response)  # noqa: E731
        return line.send("record", take, relay=self.relay, events=events, producer=self.name, sequence=first)

    def _take(self, first: int, count: int, response: dict) -> None:
        last = first + count - 1
        if response["re"] == "error":
            self._failed = True
            return
        sequence, (ordinal, digest) = response["sequence"], response["through"]
        if response.get("duplicate"):
            self.said.duplicates += 1
            self._stands(sequence, ordinal, digest)
            if sequence < last:
                self.said.wrong.append(f"a duplicate of {last} stands at {sequence}")
        else:
            came = ordinal - response["first"] + 1
            if not 1 <= came <= count or sequence != last:
                self.said.wrong.append(f"{first} to {last} were answered as {brief(response)}")
            self.said.answered.update({response["first"] + at: last - came + 1 + at for at in range(came)})
            self.said.through[ordinal] = digest
        while self.unanswered and self.unanswered[0][0] + len(self.unanswered[0][1]) - 1 <= last:
            self.unanswered.popleft()

    async def _ask_where_it_stands(self, line: Line) -> None:
        at_least = self.answered_through
        response = await self.insist(line, "record", relay=self.relay, producer=self.name)
        sequence = response.get("sequence") or 0
        if not at_least <= sequence < self.next:
            self.said.wrong.append(f"stands at {sequence}, but {at_least} to {self.next - 1} is what can be")
        if sequence:
            self._stands(sequence, *response["through"])

    def _stands(self, sequence: int, ordinal: int, digest: bytes) -> None:
        self.said.stood.append((sequence, ordinal, digest))

    def may_be_told(self, op: str, response: dict) -> bool:
        # What was sent behind a batch that failed is decided without it.
        behind = op == "record" and response["code"] == "invalid_state" and self._failed
        return behind or super().may_be_told(op, response)

    async def send_all_again(self, line: Line) -> None:
        """I6: everything it ever sent is there, and is not stored again."""
        if not self.said.sent:
            return
        events = [self._event(number) for number in range(1, self.next)]
        response = await line.ask(
            "record", relay=self.relay, events=events, producer=self.name, sequence=1
        )  # fmt: skip
        if response.get("duplicate") is not True or response["sequence"] != self.next - 1:
            self.said.wrong.append(f"all of 1 to {self.next - 1} again was answered {brief(response)}")
            return
        self.said.duplicates += 1
        self._stands(self.next - 1, *response["through"])


class Recorder(Actor):
    """Records without a sequence: what is not answered is not sent again."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self._next = 1

    async def act(self, line: Line, steps: int) -> None:
        while steps > 0:
            together = min(steps, self.random.choice((1, 2, 3)))
            steps -= together
            await line.answered(*[self._send(line) for _ in range(together)])

    def _send(self, line: Line) -> int:
        first, count = self._next, self.random.choice((1, 1, 3))
        self._next += count
        events = [["note", [self.name, number, self.text(number)]] for number in range(first, first + count)]
        return line.send("record", lambda response: self._take(first, count, response), relay=self.relay, events=events)

    def _take(self, first: int, count: int, response: dict) -> None:
        if response["re"] == "error":
            return
        ordinal, digest = response["through"]
        if ordinal - response["first"] + 1 != count:
            self.said.wrong.append(f"{count} events were answered as {brief(response)}")
        self.said.answered.update({response["first"] + at: first + at for at in range(count)})
        self.said.through[ordinal] = digest


class Maker(Actor):
    """Makes a relay, records in it, deletes it, and makes it again; after a crash it is there whole, or not there."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.store: bytes | None = None
        self.there: bool | None = False
        """None: it may be either."""
        self._number = 0

    async def act(self, line: Line, steps: int) -> None:
        await self._find_out(line)
        for _ in range(steps):
            if not self.there:
                await self._create(line)
            elif self.random.random() < 0.4:
                await self._delete(line)
            else:
                await self._record(line)

    async def _find_out(self, line: Line) -> None:
        """Whether it is there, after a crash or a failure."""
        while True:
            there, store = self.there, self.store
            response = await line.ask("open", relay=self.relay)
            if response["re"] != "error" or response["code"] == "not_found":
                break
            await trio.sleep(RETRY_SECONDS)
        found = response["re"] != "error"
        if there is not None and found != there:
            self.said.wrong.append(f"it was {'there' if there else 'gone'}, and is {'there' if found else 'gone'}")
        if found and store is not None and response["store"] != store:
            self.said.wrong.append("it is another relay than the one that was made")
        if found and store is None:
            self._forget()
        self.there, self.store = found, response["store"] if found else None

    def _forget(self) -> None:
        """Another relay under the name begins with nothing."""
        self.said = Said(self.name, self.relay, wrong=self.said.wrong)

    async def _create(self, line: Line) -> None:
        self.there, self.store = None, None
        self._forget()
        await line.ask("open", self._created, relay=self.relay, create=True)
        if self.there is None:
            await self._find_out(line)

    def _created(self, response: dict) -> None:
        if response["re"] != "error":
            self.there, self.store = True, response["store"]
            if not response["created"]:
                self.said.wrong.append("it was gone, and yet not made")

    async def _delete(self, line: Line) -> None:
        store, self.there = self.store, None
        await line.ask("delete_relay", self._deleted, relay=self.relay, store=store)
        if self.there is None:
            await self._find_out(line)

    def _deleted(self, response: dict) -> None:
        if response["re"] != "error":
            self.there, self.store = False, None

    async def _record(self, line: Line) -> None:
        self._number += 1
        number, events = self._number, [["note", [self.name, self._number, self.text(self._number)]]]
        await line.ask("record", lambda response: self._recorded(number, response), relay=self.relay, events=events)

    def _recorded(self, number: int, response: dict) -> None:
        if response["re"] != "error":
            self.said.answered[response["first"]] = number
            self.said.through[response["first"]] = response["through"][1]

    def may_be_told(self, op: str, response: dict) -> bool:
        if op == "open" and response["code"] == "not_found":
            return True
        return super().may_be_told(op, response)
