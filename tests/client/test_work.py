"""A worker of the synchronous client: one command at a time, through lost answers, lost connections, and deaths."""

import signal
import subprocess
import sys

import pytest
from support.daemon import REPOSITORY, until

from relayd import Client
from relayd.client.errors import ConnectionLostError, NoAnswerError
from relayd.protocol.errors import ForbiddenError, InvalidRequestError, InvalidStateError


@pytest.fixture
def build(served, relay):
    """The relay, for a controller."""
    with Client(str(served.socket)) as client:
        yield client.relay(relay)


@pytest.fixture
def controller(served):
    with Client(str(served.socket)) as client:
        yield client


@pytest.fixture
def worker(way):
    with Client(way.path, worker="w") as client:
        yield client


def kinds(client, relay, command_id):
    """What the history says of a command."""
    return [event.kind for event in client.follow(relay, live=False) if event.command_id == command_id]


ONCE = ["command.queued", "command.started", "command.claimed", "command.completed"]
CLAIMED_AGAIN = [*ONCE[:3], *ONCE[2:]]


def test_leaving_the_block_completes_with_the_result(build, worker, relay):
    handles = [build.submit(number) for number in range(3)]
    seen = []
    for command in worker.relay(relay).work():
        with command:
            seen.append((command.type, command.payload, command.delivery))
            command.result = command.payload + 1
        assert command.end == "completed"
        if len(seen) == 3:
            break
    assert seen == [("task", 0, 1), ("task", 1, 1), ("task", 2, 1)]
    assert [handle.result(0) for handle in handles] == [1, 2, 3]


def test_what_is_said_is_the_end_at_once(build, worker, relay):
    handles = [build.submit() for _ in range(4)]
    work = worker.relay(relay).work()
    assert next(work).complete(1)
    assert next(work).reject("not today")
    assert next(work).interrupt("half done")
    with next(work) as command:
        command.complete(2)
        assert handles[3].result(0) == 2
    ends = [handle.outcome(0) for handle in handles]
    assert [(end.state, end.result, end.message) for end in ends] == [
        ("completed", 1, None),
        ("rejected", None, "not today"),
        ("interrupted", None, "half done"),
        ("completed", 2, None),
    ]


def test_an_exception_rejects_and_goes_on(build, worker, relay):
    handle = build.submit()
    with pytest.raises(ZeroDivisionError), next(worker.relay(relay).work()):
        raise ZeroDivisionError("by nought")
    assert handle.outcome(0).message == "ZeroDivisionError: by nought"


def test_a_result_that_cannot_be_sent_rejects(build, worker, relay):
    handle = build.submit()
    with pytest.raises(InvalidRequestError), next(worker.relay(relay).work()) as command:
        command.result = object()
    assert handle.outcome(0).state == "rejected"


def test_one_that_has_not_ended_is_not_left_behind(build, worker, relay):
    build.submit()
    work = worker.relay(relay).work()
    command = next(work)
    with pytest.raises(InvalidStateError, match=command.command_id):
        next(work)


def test_a_worker_that_is_interrupted_says_nothing_and_its_identity_may_go_on(build, worker, relay):
    handle = build.submit()
    work = worker.relay(relay).work()
    with pytest.raises(KeyboardInterrupt), next(work) as command:
        raise KeyboardInterrupt
    assert command.end is None
    with next(worker.relay(relay).work()) as command:
        assert command.delivery == 2
    assert handle.outcome(0).completed


def test_a_cancel_is_seen_when_it_is_asked_for(build, worker, relay):
    handle = build.submit()
    with next(worker.relay(relay).work()) as command:
        assert not command.check()
        cancel = handle.cancel()
        assert not command.cancelled
        assert command.check()
        assert command.cancelled
    assert command.end == "rejected"
    assert handle.outcome(0).message == "cancelled"
    assert cancel.outcome(0).completed


def test_a_cancel_that_was_seen_may_be_answered_otherwise(build, worker, relay):
    handle = build.submit()
    with next(worker.relay(relay).work()) as command:
        handle.cancel()
        assert command.check()
        command.complete("what there was")
    assert handle.result(0) == "what there was"


def test_a_command_that_was_cancelled_before_it_was_handed_over_is_given_to_nobody(build, served, relay):
    with Client(str(served.socket), worker="w") as gone:
        first = build.submit("first")
        next(gone.relay(relay).work())
        first.cancel()
    build.submit("second")
    with Client(str(served.socket), worker="w") as worker, next(worker.relay(relay).work()) as command:
        assert command.payload == "second"
    assert first.outcome(0).message == "cancelled"


def test_without_an_identity_there_is_no_work(controller, relay):
    with pytest.raises(ForbiddenError):
        next(controller.relay(relay).work())


def test_answers_that_were_lost_change_nothing(build, controller, worker, way, relay):
    handle = build.submit()
    way.lose("claimed", "finished", "finished")
    with next(worker.relay(relay).work()) as command:
        assert command.delivery == 2
        command.result = 7
    assert way.lost_all
    assert (command.end, handle.result(0)) == ("completed", 7)
    assert kinds(controller, relay, handle.command_id) == CLAIMED_AGAIN


def test_the_daemon_is_killed_while_a_worker_works(served, worker, relay):
    with Client(str(served.socket)) as controller:
        handle = controller.relay(relay).submit()
        with next(worker.relay(relay).work()) as command:
            served.kill()
            served.start()
            assert not command.check()
            assert command.delivery == 2
            served.kill()
            served.start()
        assert (command.end, command.delivery) == ("completed", 3)
        assert handle.outcome(0).completed


@pytest.mark.parametrize("how", ["checked", "finished"])
def test_what_did_not_come_back_within_its_lease_is_lost(build, worker, way, relay, how):
    handle = build.submit()
    with next(worker.relay(relay).work()) as command:
        way.cut()
        assert handle.outcome().reason == "lease_expired"
        way.mend()
        assert command.check() if how == "checked" else not command.complete()
    assert (command.lost, command.end) == (True, None)


def test_what_a_claim_brings_after_the_clients_own_timeout_is_not_lost(build, served, relay, monkeypatch):
    monkeypatch.setattr("relayd.client.sync_work.CLAIM_WAIT_MS", 0)
    handle = build.submit()
    with Client(str(served.socket), worker="w") as worker:
        worker.timeout = 0.2
        served.signal(signal.SIGSTOP)
        try:
            with pytest.raises(NoAnswerError):
                next(worker.relay(relay).work())
        finally:
            served.signal(signal.SIGCONT)
        worker.timeout = 10
        with next(worker.relay(relay).work()):
            pass
    assert handle.outcome(0).completed


def test_without_reconnect_a_lost_connection_is_raised(build, way, relay):
    build.submit()
    with (
        Client(way.path, worker="w", reconnect=False) as worker,
        pytest.raises(ConnectionLostError),
        next(worker.relay(relay).work()),
    ):
        way.cut()


WORKER = """
import sys, time, relayd

with relayd.Client(sys.argv[1], worker="w") as client:
    for command in client.relay(sys.argv[2]).work():
        with command:
            print(command.command_id, command.delivery, flush=True)
            if sys.argv[3] == "hangs":
                time.sleep(60)
        break
"""


def test_a_worker_that_was_killed_and_is_back_within_its_lease_gets_its_command_again(build, served, relay):
    def start(word):
        command = [sys.executable, "-c", WORKER, str(served.socket), relay, word]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)

    handle = build.submit()
    with start("hangs") as first:
        assert first.stdout.readline() == f"{handle.command_id} 1\n"
        first.kill()
    with start("works") as second:
        assert second.stdout.readline() == f"{handle.command_id} 2\n"
    assert handle.outcome(5).completed


def test_the_loop_waits_for_work(build, controller, worker, relay):
    import threading  # noqa: PLC0415 - here alone

    found = []

    def work():
        with next(worker.relay(relay).work()) as command:
            found.append(command.payload)

    working = threading.Thread(target=work)
    working.start()
    handle = build.submit("late")
    assert handle.outcome(10).completed
    working.join(10)
    until(lambda: found == ["late"], 1, "nothing was found")
