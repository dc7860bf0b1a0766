"""Kills a real daemon at random moments under load, and proves that nothing answered was lost or done twice.

    python tests/chaos/kills.py --kills 200 --seed 1

Eight clients go on through every crash. What is on disk afterwards is compared with what they were told; the check
reads the files by itself (tests/chaos/history.py).
"""

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos.history import Checked, Said, check, read_relay
from chaos.load import RELAYS, Client, Producer, make_clients
from support.daemon import Daemon, short_place
from support.wire import Wire

REOPEN_SECONDS_MAX = 1.0
SETTINGS = {
    "segment_bytes": 24 * 1024,
    "snapshot_bytes": 40_000,
    "snapshot_events": 150,
    "tail_bytes": 8 * 1024,
    "idle_relay": 5,
}


@dataclass
class Result:
    """What a campaign found. Times are seconds."""

    kills: int
    seed: int
    seconds: float = 0.0
    serving: list[float] = field(default_factory=list)
    reopening: list[float] = field(default_factory=list)
    while_opening: int = 0
    torn: int = 0
    rewritten: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    snapshots: int = 0
    relays: list[Checked] = field(default_factory=list)
    gaps: int = 0

    def table(self) -> str:
        """For people."""
        times = sorted(self.reopening)
        sources = ", ".join(f"{name} {count}" for name, count in sorted(self.sources.items()))
        late = times[int(len(times) * 0.99)]
        reopening = f"median {_ms(statistics.median(times))}, 99th of 100 {_ms(late)}, max {_ms(times[-1])}"
        lines = [
            f"{self.kills} kills (seed {self.seed}) in {self.seconds:.0f} s",
            f"further kills while relays were being opened: {self.while_opening}",
            f"reopening, from serving to the last relay's answer: {reopening}",
            f"process start to serving: median {_ms(statistics.median(self.serving))}, max {_ms(max(self.serving))}",
            f"openings that cut a torn group: {self.torn}; that wrote bytes over themselves: {self.rewritten}",
            f"openings by what they began from: {sources}",
            "",
            "| relay | events | answered | on disk | collected | sealed files | shown | answered as duplicates |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {one.relay} | {one.events} | {one.answered} | {one.on_disk} | {one.collected} | {one.sealed}"
            f" | {one.shown} | {one.duplicates} |"
            for one in self.relays
        ]
        lines += [
            "",
            f"lost 0, twice 0, holes 0, out of order 0, shown and gone 0; evictions told to readers: {self.gaps}",
        ]
        return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


class Campaign:
    """One daemon, its clients, and who kills it."""

    def __init__(self, place: Path, kills: int, seed: int) -> None:
        self.daemon = Daemon(place, **SETTINGS)
        self.random = random.Random(seed)
        self.clients = make_clients(self.daemon.socket, seed)
        self.result = Result(kills, seed)

    def run(self) -> Result:
        began = time.monotonic()
        self.daemon.start()
        with self.daemon.connect() as wire:
            for relay, retention in RELAYS.items():
                wire.done("open", relay=relay, create=True, retention=retention)
        for client in self.clients:
            client.start()
        try:
            for _ in range(self.result.kills):
                self._once()
            self._let_everybody_step()
        finally:
            for client in self.clients:
                client.stop()
            for client in self.clients:
                client.join(15)
        self._ask_again()
        self.daemon.kill()
        self._look_at_log()
        self._check()
        self.result.seconds = time.monotonic() - began
        return self.result

    def _once(self) -> None:
        """A while of work, a kill, and a start; now and then the next kill comes while relays open."""
        time.sleep(self.random.uniform(0, 0.4))
        self._kill()
        while self.random.random() < 0.25:
            self.daemon.start()
            time.sleep(self.random.uniform(0, 0.05))
            self._kill()
            self.result.while_opening += 1
        self.daemon.start()
        self.result.serving.append(self.daemon.seconds_to_serve)
        began = time.monotonic()
        with self.daemon.connect() as wire:
            for request in [wire.send("status", relay=relay) for relay in RELAYS]:
                response = wire.answer(request)
                assert response["re"] == "status", response
        self.result.reopening.append(time.monotonic() - began)

    def _kill(self) -> None:
        self.daemon.kill()
        self._look_at_log()
        for client in self.clients:
            assert client.failed is None, f"{client.name}: {client.failed!r}"

    def _let_everybody_step(self) -> None:
        """Each client gets on once more after the last start, so that what it sends again is answered."""
        before = {client: client.steps for client in self.clients}
        deadline = time.monotonic() + 20
        while any(client.steps <= steps + 3 for client, steps in before.items()):
            assert time.monotonic() < deadline, "a client does not get on after the last start"
            time.sleep(0.02)

    def _look_at_log(self) -> None:
        """What the daemon said of its openings; a bug or trouble that it tells of fails the campaign."""
        for line in self.daemon.log:
            assert line.get("level") not in ("error", "critical"), line
            if line.get("event") == "relay_opened":
                self.result.torn += line["torn_bytes"] > 0
                self.result.rewritten += line["rewritten_bytes"] > 0
                self.result.sources[line["source"]] = self.result.sources.get(line["source"], 0) + 1
        self.daemon.log.clear()

    def _ask_again(self) -> None:
        """What carries a sequence is sent once more, and found to be there; readers start over and see the same."""
        with self.daemon.connect() as wire:
            for client in self.clients:
                if isinstance(client, Producer):
                    self._send_again(wire, client)
            for relay in RELAYS:
                for stored in wire.read_all(relay):
                    self._saw(relay, stored.ordinal, stored.digest)

    def _send_again(self, wire: Wire, client: Client) -> None:
        last = max(client.said.sent)
        numbers = range(max(1, last - 500), last + 1)
        events = [["work", [client.name, number, client.said.sent[number]]] for number in numbers]
        before = wire.done("status", relay=client.relay)["latest"]
        response = wire.done("record", relay=client.relay, events=events, producer=client.name, sequence=numbers[0])
        assert response.get("duplicate") is True, f"{client.name}: sent again, stored again: {response}"
        assert response["sequence"] == last, response
        # Bounded retention records an eviction when it will; nothing else may have come.
        came = [stored.fields[1] for stored in wire.read_all(client.relay, after=before)]
        assert set(came) <= {"relay.evicted"}, f"{client.name}: a duplicate was stored: {came}"
        client.said.duplicates += 1
        client.said.stood.append((last, *response["through"]))

    def _saw(self, relay: str, ordinal: int, digest: bytes) -> None:
        for client in self.clients:
            if client.relay == relay and ordinal in client.said.shown:
                assert client.said.shown[ordinal] == digest, f"{relay}: {ordinal} is shown otherwise after a crash"

    def _check(self) -> None:
        for client in self.clients:
            assert not client.is_alive(), f"{client.name} does not end"
            assert client.failed is None, f"{client.name}: {client.failed!r}"
            assert not client.said.wrong, f"{client.name}: {client.said.wrong[:5]}"
        for relay in RELAYS:
            said: list[Said] = [client.said for client in self.clients if client.relay == relay]
            self.result.relays.append(check(relay, read_relay(self.daemon.relay(relay)), said))
            self.result.gaps += sum(one.gaps for one in said)
        slow = [seconds for seconds in self.result.reopening if seconds >= REOPEN_SECONDS_MAX]
        assert not slow, f"reopening took {max(slow):.2f} s"


def run_campaign(kills: int, seed: int) -> Result:
    """Kills, checks, and says what was found. Raises AssertionError where anything is not as it has to be."""
    with short_place() as place:
        campaign = Campaign(place, kills, seed)
        try:
            return campaign.run()
        finally:
            campaign.daemon.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(run_campaign(arguments.kills, arguments.seed).table())  # noqa: T201 - it is a command


if __name__ == "__main__":
    main()
