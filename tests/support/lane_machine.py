"""Random life of a relay's command lane, compared with the model after every step: answers, and events on disk.

    Machine(random.Random(7), steps=120).run()

Several lives of the daemon on one simulated disk, each a block of one Trio run; connections that come and go, some of
them under one worker identity; valid and invalid requests; time that passes; syncs that are held back or fail; deaths
and power cuts at any moment.
A step is one request or one thing that happens, then everything settles.
"""

import errno
from pathlib import Path
from random import Random

import msgspec
import trio
from chaos.simulated.disk import Disk
from chaos.simulated.handles import STATE
from support import oracle
from support.faults import Fail, Faults, Kill, Short, changing, named
from support.inside import Client, Inside, run_virtually
from support.lane_choices import Choices
from support.lane_ledger import At
from support.lane_model import LaneModel
from support.lane_words import same
from trio.testing import wait_all_tasks_blocked

from relayd.journal.storage import Directory

LEASE, BARRIER = 30.0, 45.0
WORKERS = (None, None, "w1", "w1", "w2")
"""One for each place of a connection."""


class MismatchError(AssertionError):
    """The daemon and the model differ."""


class Machine:
    """One history, all of it drawn from `chance`. `counts`: what has happened in it."""

    def __init__(self, chance: Random, *, steps: int, queue: int = 12) -> None:
        self.chance, self.steps = chance, steps
        self.disk = Disk(Random(chance.random()))
        self.closes_idle = chance.random() < 0.3
        idle = 60 if self.closes_idle else 86_400
        self.settings = {"lease": LEASE, "barrier": BARRIER, "queue": queue, "idle_relay": idle}
        self.max_active = chance.choice([1, 1, 2, 3])
        self.model = LaneModel(max_active=self.max_active, queue=queue, lease=LEASE, barrier=BARRIER)
        self.choices = Choices(chance, self.model)
        self.connections: list[tuple[int, Client] | None] = [None] * len(WORKERS)
        self.connected = 0
        self.synced = 0
        self.gated = False
        self.log: list[str] = []
        self.counts: dict[str, int] = {}
        self._read: tuple[bytes, list[bytes]] = (b"", [])
        self.daemon: Inside
        self.faults: Faults

    def run(self) -> None:
        """Raises MismatchError, with the history that led there."""
        try:
            run_virtually(self._lives)
        except BaseException as error:
            told = "\n".join(self.log[-60:])
            raise MismatchError(f"{what_was_wrong(error)}\nafter\n{told}") from error

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def _lives(self) -> None:
        while self.steps > 0:
            self.faults = Faults(None, changing)
            state = self.disk.state()
            if "relays" not in {entry.name for entry in state.entries()}:
                state.make_directory("relays")
                state.sync()
            try:
                await self._one_life(self.faults.wrap(state.directory("relays")))
            except BaseException:
                if not self.faults.dead:
                    raise
            self._look_at_what_is_left()

    async def _one_life(self, relays: Directory) -> None:
        async with trio.open_nursery() as nursery:
            self.daemon = Inside(
                Path(STATE), nursery, faults=self.faults, threads=False, settings=self.settings, relays=relays
            )
            try:
                await self._live()
                if self.gated and self.chance.random() < 0.5:
                    self.faults.dead = True
            finally:
                nursery.cancel_scope.cancel()
                self.daemon.gate.open()

    def _look_at_what_is_left(self) -> None:
        """The daemon is dead: what was answered is there, anything else as a whole request or not at all."""
        if self.chance.random() < 0.5:
            self.disk = self.disk.cut(self.chance)
            self.count("power cuts")
        else:
            self.disk = self.disk.crash()
        events = self._events()
        count = len(events)
        self.log.append(f"died: {count} events are there, {self.synced} were durable, {self.model.frontier} decided")
        if count < self.synced:
            raise MismatchError(f"{count} events are left, {self.synced} were durable")
        if count not in self.model.points:
            raise MismatchError(f"{count} events are left, which is in the middle of a request's group")
        self._compare(events)
        # What is there without having been answered may still be lost: it shows, and is synced at the next opening.
        self.model.died(count)
        self.connections = [None] * len(WORKERS)
        self.gated = False
        self.count("deaths")

    # One life

    async def _live(self) -> None:
        self.model.now = trio.current_time()
        if self.synced and self.chance.random() < 0.2:
            self.faults.plan = Kill(self.chance.randint(1, 25), after=self.chance.random() < 0.5)
            self.log.append(f"to be killed at the opening: {self.faults.plan}")
        await self._connect(0)
        client = self.connections[0][1]
        opening = client.send("open", relay="a", create=True, max_active=self.max_active)
        self.model.opened()
        await wait_all_tasks_blocked()
        answer = client.answered(opening)
        if answer is None or answer["re"] != "opened":
            raise MismatchError(f"the relay did not open: {answer}")
        await self._settle()
        self.faults.plan = None
        while self.steps > 0:
            self.steps -= 1
            await self._time(self.chance.choice([0.001, 0.013, 0.2]) * (1 + self.steps / 997))
            step = self.choices.step({at: one[0] for at, one in enumerate(self.connections) if one is not None})
            self.count(step[0])
            self.log.append(f"{trio.current_time():.3f} {step}")
            if step[0] == "die":
                return
            await getattr(self, f"_{step[0]}")(*step[1:])

    async def _connect(self, at: int) -> None:
        if self.connections[at] is not None:
            return
        client = self.daemon.connect_silent()
        identity = {} if WORKERS[at] is None else {"worker": WORKERS[at]}
        await client.done("hello", versions=[1], client="machine", **identity)
        self.connected += 1
        self.connections[at] = (self.connected, client)

    async def _disconnect(self, at: int) -> None:
        number, client = self.connections[at]
        self.connections[at] = None
        client.stream.vanish()
        self.model.disconnect(number)
        await self._settle()

    async def _request(self, *step: object) -> None:
        self._send(*step)
        await self._settle()

    async def _burst(self, at: int, count: int) -> None:
        """Several requests of one connection, sent before any of them is answered."""
        number, _ = self.connections[at]
        for _ in range(1 if isinstance(self.faults.plan, Fail) else count):
            step = self.choices.step({at: number})
            if step[0] == "request":
                self.log.append(f"    {step}")
                self._send(*step[1:])
        await self._settle()

    def _send(self, at: int, op: str, wire: dict, said: tuple) -> None:
        """Sends one, and lets the model decide it too."""
        number, client = self.connections[at]
        identity = (WORKERS[at],) if op == "claim" else ()
        relay = {} if op == "cancel_request" else {"relay": "a"}
        request = client.send(op, **relay, **wire)
        getattr(self.model, op)((number, request), *identity, *said)
        self.choices.sent(number, request)

    async def _gate(self) -> None:
        """Syncs are held back until the next."""
        if self.gated:
            self.gated = False
            self.daemon.gate.open()
        else:
            self.gated = True
            self.daemon.gate.hold("commit")
        await self._settle()

    async def _sync_fails(self) -> None:
        """The sync of what waits fails, or else of what is recorded next, where that cannot be an opening's own."""
        if self.closes_idle:
            return
        self.faults.counted = named("sync active.log")
        self.faults.count = 0
        self.faults.met = False
        self.faults.plan = Fail(1, errno.EIO)
        if self.gated:
            await self._gate()

    async def _killed_soon(self, n: int, way: str) -> None:
        self.faults.counted, self.faults.count = changing, 0
        if way == "torn":
            self.faults.counted = named("write active.log")
            self.faults.plan = Short(1, taken=n * 37, kill=True)
        else:
            self.faults.plan = Kill(n, after=way == "after")

    async def _time(self, seconds: float) -> None:
        """Time passes, from one moment at which something is due to the next."""
        until = trio.current_time() + seconds
        while True:
            at = min(until, self.model.next_time())
            self.model.time_comes(at)
            await trio.sleep_until(at)
            await self._settle()
            if at >= until:
                return

    # Comparing

    async def _settle(self) -> None:
        await wait_all_tasks_blocked()
        if self.faults.met and isinstance(self.faults.plan, Fail):
            self.faults.plan, self.faults.met = None, False
            self.log.append(f"a sync failed: {self.synced} events were durable, {self.model.frontier} decided")
            self.count("failed syncs met")
            self.model.failed(self.synced, "storage_failed")
            self.model.opened()
            await wait_all_tasks_blocked()
        events = self._events()
        self._compare(events)
        if not self.gated and len(events) != self.model.frontier:
            more = self.model.events[len(events) :]
            raise MismatchError(f"{len(events)} events are on disk; the model has recorded further {more}")
        self.synced = len(events)
        self._compare_answers()

    def _events(self) -> list[bytes]:
        try:
            files = self.disk.tree("relays", "a", "journal")
        except KeyError:
            return []
        written = files.get("active.log", b"")
        if written != self._read[0]:
            bodies = oracle.read_segment(written)[1]
            self._read = (written, [bodies[ordinal] for ordinal in range(1, len(bodies) + 1)])
        return self._read[1]

    def _compare(self, bodies: list[bytes]) -> None:
        digests = self.model.digests
        del digests[len(bodies) + 1 :]
        for ordinal, body in enumerate(bodies[len(digests) - 1 :], len(digests)):
            digests.append(oracle.record(ordinal, body)[12:28])
            if ordinal > self.model.frontier:
                raise MismatchError(f"event {ordinal} is more than the model has: {msgspec.msgpack.decode(body)}")
            _, kind, data, command_id, producer = [*msgspec.msgpack.decode(body), None, None, None][:5]
            if kind.startswith("command.") and data is not None:
                # Null means absent.
                data = {name: value for name, value in data.items() if value is not None}
            told = [kind, command_id, data, producer]
            expected = [*self.model.events[ordinal - 1]]
            if ordinal == 1:
                continue
            if not same(told, self._resolve(expected)):
                raise MismatchError(f"event {ordinal} is {told}; the model has {expected}")

    def _resolve(self, value: object) -> object:
        """Cursors in the place of `At`."""
        if isinstance(value, At):
            return [value.ordinal, self.model.digests[value.ordinal]]
        if isinstance(value, dict):
            return {key: self._resolve(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._resolve(one) for one in value]
        return value

    def _compare_answers(self) -> None:
        expected = {answer.key: answer for answer in self.model.durable(self.synced)}
        later = {answer.key: answer for answer in self.model.pending}
        for one in self.connections:
            if one is None:
                continue
            number, client = one
            told, client.stream.answers = client.stream.answers, []
            for response in told:
                key = (number, response.pop("id"))
                if key in later:
                    raise MismatchError(f"{response} came before event {later[key].frontier} is durable")
                answer = expected.pop(key, None)
                if answer is None:
                    raise MismatchError(f"request {key} is answered {response}; nothing was to be answered")
                self._compare_answer(key, response, self._resolve(answer.response))
        if expected:
            raise MismatchError(f"not answered: {expected}")

    def _compare_answer(self, key: tuple, response: dict, expected: dict) -> None:
        if response["re"] == "error":
            assert response.pop("message")
            response.pop("retryable"), response.pop("detail", None)
        if response["re"] == "status":
            response = {name: response.get(name) for name in expected}
        if not same(response, expected):
            raise MismatchError(f"request {key} is answered {response}; the model says {expected}")
        self.count(f"answer {response['re']} {response.get('code', '')}".strip())


def what_was_wrong(error: BaseException) -> str:
    """The innermost error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
