"""What must be answered: a frame and its answer are compared with protocol.md, one after the other as they were sent.

Where protocol.md leaves it to time (whether a page shows what the same client has just sent, whether a wait ended by
data or by being taken back), each outcome that it allows is taken, and no other.
"""

from collections.abc import Callable
from random import Random

from chaos.peers.answers import expect, outcome, wrong
from chaos.peers.packing import data_of_events
from chaos.peers.relay_model import GENESIS, RelayModel
from chaos.peers.rules import Request
from support.wire import records

CONSUMERS_MAX = 64


class Model:
    """All relays, and the connection that is being judged."""

    def __init__(self, now_ms: int) -> None:
        self.relays: dict[str, RelayModel] = {}
        self._now_ms = now_ms
        self._asker = self._welcomed = self._framing_lost = False
        self._cancels: set[int] = set()
        self._stood: set[str] = set()
        self._made: set[str] = set()
        self._removed: set[str] = set()
        self._acknowledged: list[tuple[RelayModel, str, int]] = []
        self._later: list[Callable[[], None]] = []

    # What a client could know

    def cursor(self, relay: str, random: Random) -> list:
        known = self.relays.get(relay)
        return known.some_cursor(random) if known else [random.randrange(3), random.choice((None, bytes(16)))]

    def store(self, relay: str) -> bytes:
        known = self.relays.get(relay)
        return known.store if known else bytes(16)

    def next_sequence(self, relay: str, producer: str) -> int:
        known = self.relays.get(relay)
        return known.producers.get(producer, (0, None))[0] + 1 if known else 1

    # A connection

    def begin(self, *, cancels: set[int], framing_lost: bool) -> None:
        """A new connection: `cancels` are the requests that it takes back, all of them where framing is lost."""
        self._asker = self._welcomed = False
        self._cancels, self._framing_lost = cancels, framing_lost
        self._stood, self._made, self._removed = set(self.relays), set(), set()
        self._acknowledged.clear()
        for relay in self.relays.values():
            relay.durable = relay.latest[0]

    def end(self) -> None:
        """Everything was answered: what depends on how far relays had come by then is looked at."""
        later, self._later = self._later, []
        for look in later:
            look()

    def refused(self, answer: dict) -> None:
        """A frame that is no request."""
        expect(answer, "invalid_request", *(() if self._welcomed else ("hello_required",)))

    def answered(self, request: Request, frame: bytes, answer: dict) -> None:
        """Compares, and goes on from what was answered. Raises WrongAnswerError."""
        if request.op == "hello":
            self._hello(request, answer)
        elif not self._welcomed:
            expect(answer, "hello_required")
        elif request.op == "leave":
            expect(answer, "done" if self._asker else "invalid_state")
        elif request.op == "cancel_request":
            expect(answer, "done")
        elif request.op == "relays":
            self._list(answer)
        elif request.op == "open":
            self._open(request.fields, answer)
        else:
            self._of_relay(request, frame, answer)

    def _hello(self, request: Request, answer: dict) -> None:
        if self._welcomed:
            expect(answer, "invalid_state")
        elif 1 not in request.fields["versions"]:
            expect(answer, "incompatible_protocol")
            if answer["detail"] != {"supported": [1]}:
                raise wrong("the versions supported", answer)
        else:
            expect(answer, "welcome")
            self._welcomed, self._asker = True, "asker" in request.fields

    def _list(self, answer: dict) -> None:
        expect(answer, "relays")
        listed = {one["relay"] for one in answer["relays"]}

        def look() -> None:
            if not listed <= self._stood | self._made:
                raise wrong("only relays that were made", answer)
            if not self._stood - self._removed <= listed:
                raise wrong("every relay", answer)

        self._later.append(look)

    def _open(self, fields: dict, answer: dict) -> None:
        name = fields["relay"]
        known = self.relays.get(name)
        if known is None and not fields.get("create"):
            expect(answer, "not_found")
            return
        if known is None:
            expect(answer, "opened")
            retention, most = fields.get("retention", "checkpointed"), fields.get("max_active", 1)
            known = self.relays[name] = RelayModel(answer["store"], self._now_ms, retention, most)
            self._made.add(name)
            created = True
        else:
            created = False
            if fields.get("retention") not in (None, known.retention) or fields.get("max_active") not in (
                None,
                known.max_active,
            ):
                expect(answer, "already_exists")
                return
            expect(answer, "opened")
        said = {"relay": name, "store": known.store, "latest": known.latest, "created": created}
        if {key: answer[key] for key in said} != said:
            raise wrong(said, answer)

    def _of_relay(self, request: Request, frame: bytes, answer: dict) -> None:
        relay = self.relays.get(request.fields["relay"])
        if relay is None:
            expect(answer, "not_found")
            return
        match request.op:
            case "record":
                self._record(relay, request, frame, answer)
            case "delete_relay":
                if expect(answer, "done" if request.fields["store"] == relay.store else "not_found") == "done":
                    del self.relays[request.fields["relay"]]
                    self._removed.add(request.fields["relay"])
            case "status":
                self._status(relay, request, answer)
            case "attach":
                self._attach(relay, request, answer)
            case "acknowledge":
                self._acknowledge(relay, request, answer)
            case "await_acknowledged":
                self._await(relay, request, answer)
            case "forget_consumer":
                expect(answer, "done")
                relay.consumers.pop(request.fields["consumer"], None)

    def _record(self, relay: RelayModel, request: Request, frame: bytes, answer: dict) -> None:
        said = relay.record(self._now_ms, request.fields, data_of_events(frame))
        optional = {"through"} if "first" not in said and "duplicate" not in said else set()
        known = {"re", "code", "detail", "first", "through", "duplicate", "sequence"} - optional
        if {key: value for key, value in answer.items() if key in known} != {
            key: value for key, value in said.items() if key in known
        }:
            raise wrong(said, answer)

    def _status(self, relay: RelayModel, request: Request, answer: dict) -> None:
        at_least = relay.latest[0]
        self._ends(request, answer, "status")
        if answer["re"] != "status":
            return
        said = {"store": relay.store, "retention": relay.retention, "consumers": dict(relay.consumers)}
        if {key: answer[key] for key in said} != said:
            raise wrong(said, answer)

        def look() -> None:
            ordinal = answer["latest"][0]
            if ordinal < at_least or answer["latest"] != relay.cursors[ordinal]:
                raise wrong(f"a status at {at_least} or later", answer)

        self._later.append(look)

    def _ends(self, request: Request, answer: dict, *allowed: str) -> str:
        """The outcome of what may wait: it can also be taken back, or its relay be deleted."""
        taken_back = self._framing_lost or request.id in self._cancels
        waits = request.fields.get("wait_ms") or request.fields.get("status") is True
        more = ("cancelled",) if taken_back and waits else ()
        name = request.fields["relay"]
        found = outcome(answer)
        if found == "relay_removed":
            # It stood before a deletion that comes later in this batch.
            self._later.append(lambda: self._must_be_gone(name, answer))
            return found
        return expect(answer, *allowed, *more)

    def _must_be_gone(self, name: str, answer: dict) -> None:
        if name not in self._removed:
            raise wrong(f"{name} was not deleted; no such answer", answer)

    def _attach(self, relay: RelayModel, request: Request, answer: dict) -> None:
        after = request.fields["after"]
        allowed = ["page"]
        if type(after) is list:
            ordinal, digest = [*after, None][:2]
            if ordinal <= relay.durable and digest not in (None, relay.cursors[ordinal][1]):
                allowed = ["desynchronized"]
            elif ordinal > relay.durable or not relay.keeps_all:
                allowed = ["page", "desynchronized"]
        elif type(after) is dict and not relay.keeps_all:
            allowed = ["page", "desynchronized"]
        self._ends(request, answer, *allowed)
        if type(after) is dict:
            after = [relay.consumers.get(after["consumer"], GENESIS)[0], None]
        self._later.append(lambda: self._look_at_page(relay, after, answer))

    def _look_at_page(self, relay: RelayModel, after: object, answer: dict) -> None:
        """Now everything is durable: what the page shows is what was recorded, from where it was asked for."""
        if answer["re"] != "page":
            if outcome(answer) == "desynchronized" and relay.keeps_all:
                reason = answer["detail"]["reason"]
                ahead = type(after) is list and after[0] > relay.durable
                if reason not in (("ahead", "digest_mismatch") if ahead else ("digest_mismatch",)):
                    raise wrong("a reason that is true", answer)
            return
        if type(after) is list and (
            after[0] > relay.latest[0] or [*after, None][1] not in (None, relay.cursors[after[0]][1])
        ):
            raise wrong("no page", answer)
        shown = records(answer["records"])
        begin = shown[0].ordinal if shown else answer["through"][0] + 1
        if type(after) is list and begin != after[0] + 1 and relay.keeps_all:
            raise wrong(f"a page from {after[0] + 1}", answer)
        for ordinal, one in enumerate(shown, begin):
            if one.ordinal != ordinal or relay.bodies[ordinal] != one.body:
                raise wrong(f"{relay.bodies[ordinal]!r} at {ordinal}", {**answer, "records": one})
        through = answer["through"]
        if len(shown) != answer["count"] or (shown and through != relay.cursors[through[0]]):
            raise wrong("the count and the cursor of what is shown", answer)

    def _acknowledge(self, relay: RelayModel, request: Request, answer: dict) -> None:
        consumer = request.fields.get("consumer", "controller")
        ordinal, digest = [*request.fields["through"], None][:2]
        own = relay.consumers.get(consumer, GENESIS)
        known = relay.cursors[ordinal][1] if ordinal < len(relay.cursors) else None
        if digest is None:
            allowed = ("invalid_request",)
        elif ordinal < own[0]:
            # It changes nothing, whether or not it is right.
            allowed = ("acknowledged",)
        elif (ordinal > relay.durable and known is None) or digest != known:
            allowed = ("desynchronized",)
        elif consumer not in relay.consumers and len(relay.consumers) >= CONSUMERS_MAX:
            allowed = ("overloaded",)
        elif ordinal > relay.durable or not relay.keeps_all:
            allowed = ("acknowledged", "desynchronized")
        else:
            allowed = ("acknowledged",)
        if self._ends(request, answer, *allowed) == "acknowledged":
            stands = own if ordinal < own[0] else [ordinal, digest]
            if answer["through"] != stands:
                raise wrong(stands, answer)
            relay.consumers[consumer] = stands
            self._acknowledged.append((relay, consumer, stands[0]))

    def _await(self, relay: RelayModel, request: Request, answer: dict) -> None:
        consumer, wanted = request.fields["consumer"], request.fields["through"][0]
        reached = relay.consumers.get(consumer, GENESIS)[0] >= wanted
        if self._ends(request, answer, "acknowledged", *(() if reached else ("timeout",))) != "acknowledged":
            return

        since = len(self._acknowledged)
        stands = relay.consumers.get(consumer, GENESIS)

        def look() -> None:
            came = reached or any(
                (one, name) == (relay, consumer) and at >= wanted for one, name, at in self._acknowledged[since:]
            )
            through = answer["through"]
            if not came or through[0] < wanted or through not in (stands, relay.cursors[through[0]]):
                raise wrong(f"{consumer} at {wanted} or later", answer)

        self._later.append(look)
