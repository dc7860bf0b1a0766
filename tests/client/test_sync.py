"""The synchronous client against a daemon on a real socket."""

import signal
import socket
import threading
from itertools import islice

import msgspec
import pytest
from fake_daemon import CUT, SILENCE, STOPPING, STORE, _Sender, for_kind, once, ordinals, record_bytes

from relayd.client.errors import ConnectionLostError, NoAnswerError, NotConnectedError, ProtocolViolationError
from relayd.client.events import Gap
from relayd.client.sync import Client
from relayd.protocol.cursor import Cursor, Span, format_cursor
from relayd.protocol.errors import (
    DesynchronizedError,
    IncompatibleProtocolError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    StorageFailedError,
    StorageFullError,
    to_wire,
)
from relayd.protocol.frame import encode_frame
from relayd.protocol.kinds import RetentionBytes
from relayd.protocol.messages import (
    Attach,
    CancelRequest,
    DeleteRelay,
    Done,
    NewEvent,
    Page,
    Record,
    Status,
)


def test_each_operation_asks_and_answers(daemon, client):
    assert client.welcome.daemon == "fake"
    assert [entry.relay for entry in client.relays()] == ["r"]
    assert client.open("r", create=True).created
    assert client.record("r", [("a", {"x": 1}), ("b", None, "command-1")]).first == 1
    assert client.status("r").latest == daemon.latest
    page = client.attach("r", "earliest", max_bytes=1000)
    assert [(event.kind, event.data, event.command_id) for event in page.events] == [
        ("a", {"x": 1}, None),
        ("b", None, "command-1"),
    ]
    assert ordinals(client.attach("r", format_cursor(daemon.cursor(1))).events) == [2]
    assert client.acknowledge("r", page.through, "c").through == page.through
    assert client.await_acknowledged("r", "c", page.through, 100).through == page.through
    assert client.attach("r", {"consumer": "c"}).events == []
    client.forget_consumer("r", "c")
    client.delete_relay("r")
    client.leave()
    assert next(one for one in daemon.seen if isinstance(one, DeleteRelay)).store == STORE
    assert daemon.hellos[0].client == "test"


def test_refusals_are_raised_as_they_are(client):
    with pytest.raises(NotFoundError, match="no relay other"):
        client.status("other")
    with pytest.raises(InvalidRequestError, match="cannot be a relay's name"):
        client.status("../r")
    with pytest.raises(InvalidRequestError, match="data cannot be sent"):
        client.record("r", [("k", object())])
    assert client.relays(), "the connection lives"


def test_encoded_events_are_sent_as_they_are(daemon, client):
    client.record("r", [NewEvent("k", msgspec.Raw(b"\xc3"))])
    assert next(client.follow("r", live=False)).data is True


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_is_no_socket_is_named_so(tmp_path, kind):
    path = tmp_path / "s"
    path.mkdir() if kind == "directory" else path.write_text("")
    with pytest.raises(NotConnectedError) as raised:
        Client(str(path))
    hint = "say where the daemon listens with RELAYD_SOCKET or --socket"
    assert raised.value.message == f"{path} is there and is no socket; {hint}"


@pytest.mark.parametrize("retention", ["foo", 5, RetentionBytes(0), RetentionBytes("x")])
def test_what_is_no_retention_is_refused_in_one_sentence(client, retention):
    with pytest.raises(InvalidRequestError, match='is no retention; one is "checkpointed", "acknowledged", or'):
        client.open("r", create=True, retention=retention)


@pytest.mark.parametrize("events", [("x", 1), "ab", [("x",)], [(1, 2)], [["k", 1, None, 4]], [None]])
def test_what_is_no_list_of_events_is_told(client, events):
    with pytest.raises(InvalidRequestError, match=r"is no event; what is recorded is a list of \(kind, data\)"):
        client.record("r", events)


def test_a_mapping_that_names_no_consumer_is_no_place(client):
    with pytest.raises(InvalidRequestError, match="is no place to begin"):
        client.attach("r", {"name": "x"})


def test_a_trouble_that_is_waited_out_is_told_and_its_end_too(daemon):
    told = []
    with Client(daemon.path, waiting=told.append) as client:
        client.relays()
        daemon.hooks.append(for_kind(Attach, StorageFullError("x")))
        daemon.append("k")
        assert len(list(client.follow("r", live=False))) == 1
        daemon.stop()
        threading.Timer(0.05, daemon.start).start()
        client.relays()
    assert [type(one) for one in told[:2]] == [StorageFullError, type(None)]
    assert {type(one) for one in told[2:-1]} == {NotConnectedError}
    assert told[-1] is None


@pytest.mark.parametrize("make", [None, "dead socket"])
def test_where_nobody_listens_it_says_what_to_do(tmp_path, make):
    path = tmp_path / "s"
    if make:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.close()
    with pytest.raises(NotConnectedError, match=r"the way it .* started .*`make run`, your supervisor"):
        Client(str(path))


def test_a_path_too_long_is_told(tmp_path):
    with pytest.raises(NotConnectedError, match=r"has [0-9]+ bytes, the system takes at most 107"):
        Client(str(tmp_path / ("x" * 200)))


def test_the_refusal_of_hello_is_raised(daemon, monkeypatch):
    monkeypatch.setattr(daemon, "answer", lambda *_: IncompatibleProtocolError("speaks 2"))
    with pytest.raises(IncompatibleProtocolError):
        Client(daemon.path)


def test_whoever_says_nothing_is_no_daemon(daemon, monkeypatch):
    monkeypatch.setattr("relayd.client.sync_link.WELCOME_SECONDS_MAX", 0.05)
    monkeypatch.setattr(daemon, "answer", lambda *_: SILENCE)
    with pytest.raises(NotConnectedError, match=r"did not answer within 0\.05 s") as raised:
        Client(daemon.path)
    assert raised.value.silent


UNDER_ID_0 = bytes(encode_frame(to_wire(OverloadedError("x"), 0)))


@pytest.mark.parametrize("failure", [CUT, STOPPING, UNDER_ID_0], ids=["cut", "stop", "id 0"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.status("r"),
        lambda client: client.relays(),
        lambda client: client.open("r", create=True),
        lambda client: client.attach("r"),
        lambda client: client.acknowledge("r", Cursor(0)),
        lambda client: client.record("r", [("k", 1)], producer="p", sequence=1),
    ],
)
def test_what_is_safe_to_repeat_is_repeated(daemon, client, ask, failure):
    daemon.hooks.extend([once(failure)] * 3)
    ask(client)
    assert len(daemon.hellos) == 4


@pytest.mark.parametrize(
    "ask", [lambda client: client.record("r", [("k", 1)]), lambda client: client.delete_relay("r", STORE)]
)
def test_what_is_not_safe_to_repeat_is_told(daemon, client, ask):
    daemon.hooks.append(once(CUT))
    with pytest.raises(ConnectionLostError, match="may have been done or not") as caught:
        ask(client)
    assert caught.value.retryable
    assert sum(isinstance(one, (Record, DeleteRelay)) for one in daemon.seen) == 1
    ask(client)


def test_what_never_left_may_be_sent(daemon, client):
    client.relays()
    client._link.close()
    assert client.record("r", [("k", 1)]).first == 1


def test_without_reconnect_a_lost_connection_is_the_end(daemon):
    client = Client(daemon.path, reconnect=False)
    daemon.hooks.append(once(CUT))
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            client.relays()
    assert len(daemon.hellos) == 1


def test_a_closed_client_says_so(client):
    client.close()
    with pytest.raises(NotConnectedError, match="this client is closed"):
        client.relays()
    with pytest.raises(NotConnectedError, match="this client is closed"):
        list(client.follow("r"))


def test_it_waits_for_a_daemon_that_restarts(daemon, client):
    client.relays()
    daemon.stop()
    threading.Timer(0.05, daemon.start).start()
    assert client.relays()


def test_the_timeout_bounds_a_call_and_its_reconnecting(daemon):
    with Client(daemon.path, timeout=0.05) as client:
        daemon.hooks.append(once(SILENCE))
        with pytest.raises(NoAnswerError, match=r"within 0\.05 s"):
            client.relays()
        daemon.wait_for(lambda: any(isinstance(one, CancelRequest) for one in daemon.seen))
        assert client.relays(), "the connection lives"
        daemon.stop()
        with pytest.raises(NoAnswerError):
            client.relays()
        with pytest.raises(NoAnswerError):
            list(client.follow("r"))


def test_a_wait_is_not_counted_as_silence(daemon):
    with Client(daemon.path, timeout=0.05) as client:
        threading.Timer(0.1, daemon.append, ["k"]).start()
        assert ordinals(client.attach("r", "earliest", wait_ms=5000).events) == [1]


def test_an_answer_of_another_type_is_not_believed(daemon, client):
    daemon.hooks.append(once(Done(0)))
    with pytest.raises(ProtocolViolationError, match="answered Status with Done"):
        client.status("r")


def test_garbage_ends_the_connection_and_is_told(daemon, client):
    daemon.hooks.append(once(b"GET / HTTP/1.1\r\n"))
    with pytest.raises(ProtocolViolationError):
        client.status("r")
    assert client.status("r"), "the next call has a new connection"


def test_an_interrupt_leaves_a_client_that_works(daemon, client):
    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        daemon.hooks.append(once(SILENCE))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            client.status("r")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert client.status("r")


# Following.


def test_follow_gives_each_event_once_in_order_across_pages(daemon, client):
    for number in range(10):
        daemon.append("k", number)
    daemon.page_events = 3
    assert [event.data for event in client.follow("r", live=False)] == list(range(10))
    assert ordinals(client.follow("r", daemon.cursor(7), live=False)) == [8, 9, 10]
    assert list(client.follow("r", "latest", live=False)) == []


def test_it_follows_live(daemon, client):
    daemon.append("k", 0)
    events = client.follow("r")
    assert next(events).data == 0
    threading.Timer(0.02, daemon.append, ["k", 1]).start()
    assert next(events).data == 1
    events.close()


def test_other_calls_go_on_between_events(daemon, client):
    for number in range(6):
        daemon.append("k", number)
    daemon.page_events = 2
    for event in client.follow("r", live=False):
        client.acknowledge("r", event.cursor)
    assert daemon.consumers["controller"] == daemon.latest


def test_who_stops_reading_leaves_no_answer_behind(daemon, client):
    for number in range(6):
        daemon.append("k", number)
    daemon.page_events = 2
    assert ordinals(islice(client.follow("r", live=False), 1)) == [1]
    client.relays()
    assert client._link._answers == {}
    assert client._link._session.in_flight <= 1


def test_a_gap_is_told_and_reading_goes_on(daemon, client):
    for number in range(9):
        daemon.append("k", number)
    daemon.evicted = 5
    daemon.unreadable = (7, 8)
    lost, six, unreadable, nine = client.follow("r", daemon.cursor(2), live=False)
    assert lost == Gap("evicted", Span(3, 5), daemon.cursor(5))
    assert unreadable == Gap("unreadable", Span(7, 8), Cursor(8))
    assert ordinals([six, nine]) == [6, 9]


def test_a_gap_at_the_beginning_comes_first(daemon, client):
    for number in range(4):
        daemon.append("k", number)
    daemon.evicted = 2
    first, *rest = client.follow("r", live=False)
    assert first == Gap("evicted", Span(1, 2), Cursor(2))
    assert ordinals(rest) == [3, 4]


def test_the_same_damage_twice_is_raised(daemon, client):
    for number in range(4):
        daemon.append("k", number)
    daemon.evicted = 2
    daemon.hooks.extend(
        [for_kind(Attach, daemon.desynchronized("evicted", daemon.cursor(1), (2, 2))) for _ in range(2)]
    )
    found = []
    with pytest.raises(DesynchronizedError):
        found.extend(client.follow("r", daemon.cursor(1)))
    assert found == [] or isinstance(found[0], Gap)


@pytest.mark.parametrize("reason", ["ahead", "digest_mismatch"])
def test_another_history_is_raised(daemon, client, reason):
    daemon.append("k")
    after = Cursor(7) if reason == "ahead" else Cursor(1, bytes(16))
    with pytest.raises(DesynchronizedError) as caught:
        next(client.follow("r", after))
    assert caught.value.detail.reason == reason


def wrong_page(daemon, records):
    return Page(0, b"".join(records), len(records), daemon.latest, daemon.latest, verified=True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda records: [records[0], records[2]],
        lambda records: [records[1], records[2]],
        lambda records: [records[0], records[1][:-1] + b"\0", records[2]],
        lambda records: [*records, record_bytes(5, "k", None)[0]],
    ],
    ids=["hole", "begins late", "wrong digest", "hole at the end"],
)
def test_a_page_that_does_not_verify_is_raised_and_nothing_of_it_shown(daemon, client, spoil):
    for number in range(3):
        daemon.append("k", number)
    daemon.hooks.append(for_kind(Attach, wrong_page(daemon, spoil(daemon.records))))
    with pytest.raises(ProtocolViolationError):
        next(client.follow("r"))


def test_it_asks_again_after_what_time_lifts(daemon, client):
    daemon.append("k", 0)
    daemon.hooks.extend(
        [once(OverloadedError("x")), once(StorageFailedError("x")), once(InternalError("x")), once(CUT)]
    )
    assert ordinals(client.follow("r", live=False)) == [1]


@pytest.mark.parametrize("failure", [CUT, STOPPING, OverloadedError("x")], ids=["cut", "stop", "full"])
def test_a_page_that_was_asked_for_ahead_is_asked_for_again(daemon, client, failure):
    for number in range(9):
        daemon.append("k", number)
    daemon.page_events = 3
    daemon.hooks.append(for_kind(Attach, failure, number=2))
    daemon.hooks.append(for_kind(Attach, failure, number=1))
    assert [event.data for event in client.follow("r", live=False)] == list(range(9))


def test_between_pages_the_connection_may_end(daemon, client):
    for number in range(9):
        daemon.append("k", number)
    daemon.page_events = 3
    seen = []
    for page in client.pages("r", live=False):
        client._link.close()
        seen += [event.data for event in page.events]
    assert seen == list(range(9))


def test_without_reconnect_it_does_not(daemon):
    with Client(daemon.path, reconnect=False) as client:
        daemon.hooks.append(once(OverloadedError("x")))
        with pytest.raises(OverloadedError):
            next(client.follow("r"))


# Every way to break off.


def story(client):
    """A producer and a reader; gives what the reader saw."""
    with client.producer("r", "p", batch_events=2) as stream:
        for number in range(5):
            stream.record("k", number)
    return [event.data for event in client.follow("r", live=False)]


def answer_bytes(daemon):
    """How many bytes the daemon answers in the story, hello's included."""
    sent = []
    original = _Sender._send

    def counting(self, data):
        sent.append(len(data))
        original(self, data)

    _Sender._send = counting
    try:
        with Client(daemon.path) as client:
            story(client)
    finally:
        _Sender._send = original
    return sum(sent)


def test_answers_may_come_a_byte_at_a_time(daemon):
    daemon.byte_by_byte = True
    with Client(daemon.path) as client:
        assert story(client) == list(range(5))


def test_a_connection_cut_at_any_byte_of_the_answers_changes_nothing(daemon):
    total = answer_bytes(daemon)
    assert total > 300
    for cut in range(total + 1):
        daemon.records.clear()
        del daemon.digests[1:]
        daemon.producers.clear()
        client = None
        daemon.cut_after = cut
        while client is None:
            try:
                client = Client(daemon.path)
            except (ConnectionLostError, NotConnectedError):
                continue
        with client:
            assert story(client) == list(range(5)), cut


def test_status_of_a_page_comes_with_it(daemon, client):
    def with_status(request):
        page = daemon.page(request)
        page.status = daemon.answer(None, Status(1, "r"))
        return msgspec.structs.replace(page, id=0)

    daemon.hooks.append(with_status)
    assert client.attach("r", status=True).status.execution == "idle"
    assert daemon.seen[-1].status


@pytest.mark.parametrize("failure", [CUT, SILENCE])
def test_where_it_may_be_there_the_message_says_what_can_be_sent_again(daemon, failure):
    rule = "what has a producer's number can be sent again as it is, anything else is looked for first"
    with Client(daemon.path, timeout=0.2) as client:
        daemon.hooks.append(for_kind(Record, failure))
        with pytest.raises((ConnectionLostError, NoAnswerError), match=rule):
            client.record("r", [("k", 1)])
