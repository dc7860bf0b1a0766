"""The end of a history: what is on disk and what was said, compared by an oracle that is not relayd's."""

from contextlib import closing

import msgspec
import trio
from chaos.history import Stored, check, read_journal
from chaos.simulated.actor import Actor, Line
from chaos.simulated.lives import Lives
from chaos.simulated.plans import Life
from chaos.simulated.readers import Reader
from chaos.simulated.senders import Maker, Producer
from support.wire import records

from relayd.recovery.opening import open_relay

QUIET_SECONDS = 1.0


def prove(history: Lives, relays: list[str]) -> None:
    """Raises AssertionError where I1 to I7 do not hold. The clients have finished, and the power was cut."""
    look = _Look(history, relays)
    history.live(Life(end="kill"), look.look)
    for relay in look.relays:
        _prove_files(history, relay)
        _prove_opening(history, relay, look.said[relay])
    assert history.disk.open_handles == 0


def _prove_opening(history: Lives, relay: str, said: dict) -> None:
    """I7: however often it is opened, the state is that which clients were told, and the last time no byte changes."""
    first, _ = _open(history, relay)
    second, tree = _open(history, relay)
    third, tree_after = _open(history, relay)
    assert first == second == third, f"I7: {relay} opens again, to another state"
    assert tree == tree_after, f"I7: {relay} opens again, and changes files"
    assert first["frontier"] == said["latest"], f"I7: {relay} opens again, at another ordinal"
    assert first["base"] == said["evicted"], f"I7: {relay} opens again, with another base"
    assert first["consumers"] == said["consumers"], f"I7: {relay} opens again, with other consumers"


def _open(history: Lives, relay: str) -> tuple[dict, dict[str, bytes]]:
    """The state, and the files as they are then."""
    with closing(history.disk.state()) as state, closing(state.directory("relays")) as relays:
        directory = relays.directory(relay)
    opened = open_relay(directory, relay, segment_bytes=1 << 20, new_id=lambda: bytes(16))
    parts = (opened.state, opened.base, opened.acknowledgements.consumers)
    state, base, consumers = map(_as_on_the_wire, parts)
    opened.close()
    return {**state, "base": base, "consumers": consumers}, history.disk.tree("relays", relay)


def _as_on_the_wire(value: object) -> dict | list:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


class _Look:
    """What the relays show when they are asked."""

    def __init__(self, history: Lives, relays: list[str]) -> None:
        self._history = history
        self.said: dict[str, dict] = {}
        makers = [actor for actor in history.actors if isinstance(actor, Maker)]
        self.relays = relays + [maker.relay for maker in makers if maker.there]

    async def look(self) -> None:
        for actor in self._history.actors:
            line = Line(actor)
            if isinstance(actor, Maker):
                await actor._find_out(line)
            if isinstance(actor, Producer):
                await actor.send_all_again(line)
        # Sealing, snapshots and collection come to an end meanwhile.
        await trio.sleep(QUIET_SECONDS)
        for relay in self.relays:
            await self._look_at(relay, self._anybody(relay))
        await trio.sleep(QUIET_SECONDS)

    def _anybody(self, relay: str) -> Actor:
        return next(actor for actor in self._history.actors if actor.relay == relay)

    async def _look_at(self, relay: str, actor: Actor) -> None:
        line = Line(actor)
        before = await line.ask("status", relay=relay)
        shown, after = {}, "earliest"
        while True:
            page = await line.ask("attach", relay=relay, after=after)
            assert page["re"] == "page", page
            for stored in records(page["records"]):
                shown[stored.ordinal] = stored.digest
            after = page["through"]
            if after[0] >= page["latest"][0]:
                break
        status = await line.ask("status", relay=relay)
        assert status["latest"] == before["latest"] or relay == "short", "a duplicate was stored"
        self.said[relay] = status
        for each in self._history.actors:
            for ordinal, digest in each.said.shown.items() if each.relay == relay else ():
                assert shown.get(ordinal, digest) == digest, f"I5: {relay} shows another event at {ordinal}"


def _prove_files(history: Lives, relay: str) -> None:
    tree = history.disk.tree("relays", relay)
    unfinished = [path for path in tree if path.endswith(".new")]
    assert not unfinished, f"{relay}: left over: {unfinished}"
    journal = {path.removeprefix("journal/"): content for path, content in tree.items() if path.startswith("journal/")}
    disk = read_journal({name: content for name, content in journal.items() if name})
    assert disk.rotated == 0, f"{relay}: what was rotated is not sealed"
    checked = check(relay, disk, [actor.said for actor in history.actors if actor.relay == relay])
    _prove_collected(history, relay, checked.collected, disk.records)
    outcome = history.outcome
    outcome.answered += checked.answered
    outcome.shown += checked.shown
    outcome.duplicates += checked.duplicates
    outcome.sealed += checked.sealed
    outcome.collected += checked.collected


def _prove_collected(history: Lives, relay: str, collected: int, records: dict[int, Stored]) -> None:
    """What is gone was acknowledged by everybody, or an event says that it went."""
    evictions = [stored.fields[2]["through"][0] for stored in records.values() if stored.fields[1] == "relay.evicted"]
    readers = [actor for actor in history.actors if isinstance(actor, Reader) and actor.relay == relay]
    acknowledged = min((reader.asked_to_keep for reader in readers if reader.acknowledges), default=0)
    let_go = 0 if relay in ("kept", "made") else max([acknowledged, *evictions])
    assert collected <= let_go, f"{relay}: {collected} events are gone, {let_go} may be"
