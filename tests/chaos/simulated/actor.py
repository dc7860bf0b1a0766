"""What every client of a history is: it goes on through every crash, and keeps what it was told."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import trio
from chaos.history import Said
from support.inside import Client, Stream

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
            self._actor.scene.tell(f"{self._actor.name} {request} {way} {brief(message)}")

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

    def may_be_told(self, op: str, response: dict) -> bool:  # noqa: ARG002 - some clients go by it
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


def brief(message: dict) -> str:
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
