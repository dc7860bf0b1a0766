"""A scene on the simulated disk that is written out, life by life, where a history draws it."""

import random
from collections.abc import Callable

from chaos.simulated.disk import Disk
from chaos.simulated.lives import Lives
from chaos.simulated.plans import Life
from support.faults import Fail, Kill, Short, named
from support.inside import Client
from support.wire import Stored


class NoChance(random.Random):
    """Of what may be chosen, always the first: a sync that fails has written nothing."""

    def choice(self, of):
        return of[0]


class Scripted(Lives):
    """Each life is given what happens in it, by clients that judge their answers themselves."""

    def __init__(self, seed: int = 1, *, disk: Callable[[random.Random], Disk] = lambda _: Disk(NoChance())) -> None:
        super().__init__(seed, disk=disk)

    async def client(self) -> Client:
        client = self.connect()
        await client.done("hello", versions=[1], client="scripted")
        return client

    async def relay(self, **fields: object) -> Client:
        """A client, and the relay `a`, made where it is not there."""
        client = await self.client()
        await client.done("open", relay="a", create=True, **fields)
        return client

    def plant(self, fault: Fail | Kill | Short, *names: str, then: tuple = ()) -> None:
        """At the n-th call of these names from now on; `then`: at the next call that can change anything."""
        faults, first, changing = self.faults, named(*names), Life().counted
        faults.counted = lambda call: changing(call) if faults.met_any else first(call)
        faults.plan, faults.then, faults.count, faults.met, faults.met_any = fault, list(then), 0, False, False

    def cut_power(self) -> None:
        """Between two lives: nothing that was not synced is kept."""
        self.disk = self.disk.cut(random.Random(0), "nothing")

    def file(self, *path: str) -> bytes:
        """A file of relay `a`, as the page cache has it."""
        return self.disk.tree("relays", "a")["/".join(path)]


async def record(client: Client, number: int) -> dict:
    """The answer to event `number` of producer `p`."""
    return await client.call("record", relay="a", events=[["x", number]], producer="p", sequence=number)


async def stored(client: Client) -> list[Stored]:
    """All events of relay `a` that are no events of relayd's own."""
    return [one for one in await client.read_all("a") if not one.kind.startswith("relay.")]
