"""The clients of a history: each knows what it sent, keeps what it was told, and goes on through every crash."""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio
from chaos.history import Said, Sent
from support.inside import Client, Stream
from support.wire import GENESIS, records

RETRY_SECONDS = 1.5
Take = Callable[[dict], None]


class Scene(Protocol):
    """What the clients act in: one life of the daemon after the other."""

    seed: int
    allowed: frozenset[str]
    """Codes of errors that somebody may be told in this life."""

    def connect(self) -> Client:
        """A connection that has not said hello."""
        ...

    traced: bool

    def tell(self, text: str) -> None:
        """A line of the trace."""
        ...


class Line:
    """One connection. What is answered is taken in order, also what came last before the daemon died."""

    def __init__(self, actor: "Actor") -> None:
        self._actor = actor
        self._client = actor.scene.connect()
        self._takes: dict[int, tuple[str, Take]] = {}
        actor.lines.append(self)
        self.send("hello", lambda _: None, versions=[1], client=actor.name)

    @property
    def stream(self) -> Stream:
        return self._client.stream

    def send(self, op: str, take: Take, /, **fields: object) -> int:
        """Sends a request; `take` is given its answer."""
        request = self._client.send(op, **fields)
        self._takes[request] = (op, take)
        self._tell(request, "->", {"op": op, **fields})
        return request

    def pump(self) -> None:
        """Takes what has been answered."""
        answers, self.stream.answers[:] = list(self.stream.answers), []
        for response in answers:
            op, take = self._takes.pop(response["id"])
            self._tell(response["id"], "<-", response)
            if response["re"] == "error" and not self._actor.may_be_told(op, response):
                self._actor.said.wrong.append(f"{op}: {response['code']}: {response['message']}")
            take(response)

    def _tell(self, request: int, way: str, message: dict) -> None:
        if self._actor.scene.traced:
            self._actor.scene.tell(f"{self._actor.name} {request} {way} {_brief(message)}")

    async def answered(self, *requests: int) -> None:
        """Waits until these requests are answered."""
        while True:
            self.pump()
            if not any(request in self._takes for request in requests):
                return
            await self.stream.answered.wait()

    async def ask(self, op: str, take: Take | None = None, /, **fields: object) -> dict:
        """Sends a request and waits for its answer, which `take` is given first."""
        answers: list[dict] = []
        steps = (answers.append,) if take is None else (take, answers.append)
        await self.answered(self.send(op, lambda response: [step(response) for step in steps], **fields))
        return answers[0]


class Actor(ABC):
    """One client of one relay."""

    def __init__(self, name: str, relay: str, scene: Scene) -> None:
        self.name, self.relay, self.scene = name, relay, scene
        self.said = Said(name, relay)
        self.random = random.Random(f"{scene.seed} {name}")
        self.lines: list[Line] = []

    async def live(self, steps: int) -> None:
        """One life of the daemon: `steps` things are done, then nothing more."""
        await self.act(Line(self), steps)

    @abstractmethod
    async def act(self, line: Line, steps: int) -> None:
        """Does it; everything that was left undone in an earlier life first."""

    def settle(self) -> None:
        """The daemon is gone: what it had answered by then was answered."""
        for line in self.lines:
            line.pump()
        self.lines.clear()

    def may_be_told(self, op: str, response: dict) -> bool:
        """Whether an error has its reason. A damaged journal never has, on a disk that is honest."""
        code = response["code"]
        if code == "unavailable" and response["detail"]["reason"] != "storage_failed":
            return False
        return code in self.scene.allowed

    def text(self, number: int) -> str:
        """A text of its own for event `number`, of any bytes that a scanner might take for something else."""
        size = self.random.choice((4, 16, 40, 120, 300, 700))
        text = f"{number}:" + self.random.choice(("RLYG", "\0" * 30, "é")) + self.random.randbytes(size // 2).hex()
        self.said.sent[number] = text
        return text

    async def insist(self, line: Line, op: str, take: Take | None = None, /, **fields: object) -> dict:
        """Asks until it is not refused."""
        while (response := await line.ask(op, take, **fields))["re"] == "error":
            await trio.sleep(RETRY_SECONDS)
            if response["code"] == "unavailable":
                await line.ask("open", relay=self.relay)
        return response


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
                self.said.wrong.append(f"{first} to {last} were answered as {_brief(response)}")
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
            self.said.wrong.append(f"all of 1 to {self.next - 1} again was answered {_brief(response)}")
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
            self.said.wrong.append(f"{count} events were answered as {_brief(response)}")
        self.said.answered.update({response["first"] + at: first + at for at in range(count)})
        self.said.through[ordinal] = digest


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

    def _saw(self, stored) -> None:
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


def _brief(message: dict) -> str:
    """A message for a person: what is long is cut."""
    said = []
    for key, value in message.items():
        if key in {"id", "message"} and "code" not in message:
            continue
        match value:
            case [int(ordinal), bytes(digest)]:
                text = f"{ordinal}-{digest.hex()[:6]}"
            case bytes():
                text = f"{len(value)} bytes {value.hex()[:8]}"
            case list() if key == "events":
                text = f"{len(value)} from {value[0][1][1]}"
            case _:
                text = str(value)[:120]
        said.append(f"{key}={text}")
    return " ".join(said)
