"""Clients that take one step when they are told to: deterministic where tests/chaos/load.py is not."""

from pathlib import Path

import msgspec
from chaos.history import Checked, Said, check, read_relay
from chaos.load import Producer, Reader
from support.wire import Wire


class Author(Producer):
    """A producer."""

    def resume(self, wire: Wire) -> None:
        """Asks where it stands, and sends again all that was not answered."""
        self._ask(wire)
        for first, events in list(self._unanswered):
            self._take(wire, self._send(wire, first, events), first, events)

    def send(self, wire: Wire) -> tuple[int, int, list]:
        """Sends one more batch, and does not wait for the answer."""
        first, events = self._batch()
        self._unanswered.append((first, events))
        return self._send(wire, first, events), first, events

    def take(self, wire: Wire, sent: tuple[int, int, list]) -> None:
        self._take(wire, *sent)

    def record(self, wire: Wire) -> None:
        """A batch, answered."""
        self.take(wire, self.send(wire))

    @property
    def last(self) -> int:
        return max(self.said.sent)

    @property
    def last_answered(self) -> int:
        return self._unanswered[0][0] - 1 if self._unanswered else self._next - 1


class Follower(Reader):
    """A reader."""

    def read(self, wire: Wire) -> None:
        """Up to what is the latest by now."""
        while True:
            page = wire.call("attach", relay=self.relay, after=self.cursor)
            if page["re"] == "error":
                self.refused(page)
            self._take(page)
            if page["latest"] == self.cursor:
                return

    def acknowledge(self, wire: Wire) -> None:
        self._acknowledge(wire)


class Told(msgspec.Struct):
    """All that a relay's clients were told: with the disk's image, it is the proof of a violation."""

    relays: dict[str, list[Said]]

    def check_disk(self, state: Path) -> list[Checked]:
        """I1 to I6, from the files as they are. Raises AssertionError."""
        found = []
        for relay, said in self.relays.items():
            for one in said:
                assert not one.wrong, f"{one.client}: {one.wrong[:5]}"
            found.append(check(relay, read_relay(state / "relays" / relay), said))
        return found

    def save(self, file: Path) -> None:
        file.write_bytes(msgspec.msgpack.encode(self))

    @classmethod
    def load(cls, file: Path) -> "Told":
        return msgspec.msgpack.decode(file.read_bytes(), type=cls)
