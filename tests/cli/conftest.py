"""A client that answers from a script instead of a daemon, so that what is printed can be stated exactly."""

import io
import sys
from types import SimpleNamespace

import msgspec
import pytest
from support.oracle import record

from relayd.cli import options, run
from relayd.client.events import Event, EventPage, verify_events
from relayd.client.producing import Producing
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.event import encode_body
from relayd.protocol.messages import Acknowledged, Exported, Opened, RelayEntry, RelayStatus
from relayd.relay.state import RelayState, encode_state


def event(ordinal, kind="output", data=None, at=1_700_000_000_123, **more):
    """An Event as a page would hold it."""
    body = encode_body(at, kind, msgspec.Raw(msgspec.msgpack.encode(data)), **more)
    (found,) = verify_events(record(ordinal, body), ordinal - 1)
    return found


def page(*events: Event, gap=None):
    """A page of these events, with a gap before them."""
    through = events[-1].cursor if events else GENESIS if gap is None else gap.resume
    return EventPage(list(events), through, through, gap=gap)


class FakeProducer:
    """Keeps what it is given, where a real one would take it; stands at `position` from the start."""

    def __init__(self, position=0):
        self.position = position
        self.recorded = []
        self.real = Producing("build", "someone", batch_events=10_000)
        self.flushes = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def record(self, kind, data=None, command_id=None):
        self.real.add(kind, data, command_id)
        self.recorded.append((kind, data, command_id))

    @property
    def through(self):
        return Cursor(len(self.recorded) + 1, bytes(16)) if self.recorded else None

    def flush(self):
        self.flushes += 1
        return Cursor(len(self.recorded) + 1, bytes(16)) if self.recorded else None


class FakeClient:
    """The methods that commands call; `calls` is what was asked, in order."""

    store = bytes(range(16))

    def __init__(self):
        self.calls = []
        self.entries = []
        self.pages_given = []
        self.producer_given = FakeProducer()
        self.latest = Cursor(3, bytes(16))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def relays(self):
        return self.entries

    def open(self, relay, *, create=False, retention=None, max_active=None):
        self.calls.append(("open", relay, create, retention, max_active))
        return Opened(1, relay, self.store, self.latest, create)

    def status(self, relay):
        return RelayStatus(
            relay=relay, store=self.store, execution="idle", execution_since=1_700_000_000_000, latest=self.latest,
            acknowledged=Cursor(2, bytes(16)), retained=GENESIS, evicted=GENESIS, retention="checkpointed",
            max_active=1, consumers={"archive": Cursor(2, bytes(16))}, readers=1,
            last_event_at=1_700_000_000_123, disk_bytes=4096, journal_bytes=2048,
        )  # fmt: skip

    def call(self, call):
        """`export`: the state that these relays have."""
        assert type(call.request).__name__ == "Export"
        encoded = encode_state(RelayState(self.store, frontier=self.latest))
        return Exported(1, self.latest, len(encoded), encoded)

    def delete_relay(self, relay, store):
        self.calls.append(("delete_relay", relay, store))

    def acknowledge(self, relay, through, consumer):
        self.calls.append(("acknowledge", relay, through, consumer))
        return Acknowledged(1, through, GENESIS)

    def forget_consumer(self, relay, consumer):
        self.calls.append(("forget_consumer", relay, consumer))

    def attach(self, relay, after):
        self.calls.append(("attach", relay, after))
        return EventPage([], self.latest, self.latest)

    def pages(self, relay, after, *, live=True):
        self.calls.append(("pages", relay, after, live))
        yield from self.pages_given

    def producer(self, relay, name):
        self.calls.append(("producer", relay, name))
        return self.producer_given


@pytest.fixture
def make_event():
    """Makes an Event."""
    return event


@pytest.fixture
def make_page():
    """Makes an EventPage."""
    return page


@pytest.fixture
def client(monkeypatch):
    """Every command talks to this one."""
    fake = FakeClient()
    fake.entries = [
        RelayEntry("build", open=True, latest=12, execution="idle", disk_bytes=2048),
        RelayEntry("x", open=False),
    ]
    monkeypatch.setattr(options, "Client", lambda *_args, **_more: fake)
    return fake


@pytest.fixture
def command(monkeypatch):
    """Runs a command in this process: exit code, standard output, standard error."""

    def command(*arguments, stdin=b""):
        out, err = io.BytesIO(), io.BytesIO()
        with monkeypatch.context() as patch:
            for name, buffer in (("stdin", io.BytesIO(stdin)), ("stdout", out), ("stderr", err)):
                patch.setattr(sys, name, io.TextIOWrapper(buffer, "utf-8", write_through=True))
            code = run.run(arguments)
            sys.stdout.flush()
            return SimpleNamespace(code=code, out=out.getvalue().decode(), err=err.getvalue().decode())

    return command
