"""A controller of the synchronous client: what it submits is accepted once, and it learns the end, whatever breaks."""

import threading

import pytest
from support.daemon import until

from relayd import Client, CommandFailedError
from relayd.client.outcome import Outcome
from relayd.client.sync_checkpoint import Checkpoint
from relayd.protocol.commands import ClearQueue, Notice
from relayd.protocol.errors import (
    ConflictError,
    InvalidRequestError,
    InvalidStateError,
    NotFoundError,
    WaitTimeoutError,
)


@pytest.fixture
def controller(served):
    with Client(str(served.socket)) as client:
        yield client


@pytest.fixture
def worker(served):
    with Client(str(served.socket), worker="w") as client:
        yield client


def kinds(client, relay, command_id):
    """What the history says of a command."""
    return [event.kind for event in client.follow(relay, live=False) if event.command_id == command_id]


def work_off(worker, relay, number, **said):
    """Ends the next commands."""
    work = worker.relay(relay).work()
    for _ in range(number):
        command = next(work)
        command.complete({"did": command.payload}, **said)


def test_a_task_and_its_outcome(controller, worker, relay):
    handle = controller.relay(relay).submit({"x": 1})
    work_off(worker, relay, 1)
    outcome = handle.outcome()
    assert outcome == Outcome(handle.command_id, "task", "completed", 5, {"did": {"x": 1}})
    assert outcome.completed
    assert handle.result() == {"did": {"x": 1}}
    assert controller.relay(relay).handle(handle.command_id).outcome() == outcome


def test_a_rejection_is_an_outcome_and_no_exception_until_the_result_is_asked_for(controller, worker, relay):
    handle = controller.relay(relay).submit()
    next(worker.relay(relay).work()).reject("no such target", result=[1])
    outcome = handle.outcome()
    assert (outcome.state, outcome.reason, outcome.message, outcome.result) == (
        "rejected",
        "by_worker",
        "no such target",
        [1],
    )
    assert not outcome.completed
    with pytest.raises(CommandFailedError, match=r"was rejected \(by_worker\): no such target") as raised:
        handle.result()
    assert raised.value.outcome == outcome


def test_waiting_ends_with_its_timeout_and_can_begin_again(controller, worker, relay):
    handle = controller.relay(relay).submit()
    for timeout in (0.0, 0.05):
        with pytest.raises(WaitTimeoutError):
            handle.outcome(timeout)
    work_off(worker, relay, 1)
    assert handle.outcome(5).completed


def test_an_unknown_command_is_told(controller, relay):
    with pytest.raises(NotFoundError):
        controller.relay(relay).handle("no-such-command").outcome()


def test_a_submit_whose_answer_was_lost_is_one_command(way, controller, relay):
    way.lose("accepted")
    with Client(way.path) as client:
        handle = client.relay(relay).submit("once")
        assert way.lost_all
        handle.submit(client, relay, Notice("over"))
    assert kinds(controller, relay, handle.command_id) == ["command.queued", "command.started"]
    assert controller.status(relay).active == [handle.command_id]


def test_an_id_of_ones_own_makes_one_command_of_two_submits(controller, relay):
    build = controller.relay(relay)
    assert build.submit(1, command_id="nightly-1").command_id == "nightly-1"
    build.submit(1, command_id="nightly-1")
    with pytest.raises(ConflictError):
        build.submit(2, command_id="nightly-1")
    assert controller.status(relay).active == ["nightly-1"]


def test_a_command_says_its_own_on_loss(controller, relay):
    assert controller.relay(relay).submit(Notice("hello")).outcome().completed
    with pytest.raises(InvalidRequestError, match="on_loss"):
        controller.relay(relay).submit(ClearQueue(), on_loss="requeue")


def test_waiting_goes_through_the_death_of_the_daemon(served, controller, relay):
    handle = controller.relay(relay).submit("x")
    outcomes = []
    waiting = threading.Thread(target=lambda: outcomes.append(handle.outcome()))
    waiting.start()
    served.kill()
    served.start()
    with Client(str(served.socket), worker="w") as worker:
        work_off(worker, relay, 1)
    waiting.join(20)
    assert outcomes == [Outcome(handle.command_id, "task", "completed", 5, {"did": "x"})]


def test_a_cancel_ends_what_nobody_has_at_once(controller, relay):
    handle = controller.relay(relay).submit()
    cancel = handle.cancel()
    assert cancel.command_id != handle.command_id
    assert cancel.outcome().completed
    assert (handle.outcome().state, handle.outcome().reason) == ("rejected", "cancelled")
    with pytest.raises(InvalidStateError):
        handle.cancel()


def test_settings_and_side_tasks(controller, worker, relay):
    build = controller.relay(relay)
    side, setting = build.side_task("beside"), build.configure("colour", "red")
    seen = []
    work = worker.relay(relay).work()
    while len(seen) < 2:
        with next(work) as command:
            seen.append((command.type, command.payload))
    assert sorted(seen) == [("configure", {"colour": "red"}), ("side_task", "beside")]
    assert side.outcome().completed
    assert setting.outcome().completed
    assert list(controller.status(relay).config) == ["colour"]


def test_a_checkpoint_that_is_completed_moves_the_floor_to_its_cut(controller, relay):
    with controller.relay(relay).checkpoint(command_id="checkpoint-1") as checkpoint:
        assert checkpoint.command_id == "checkpoint-1"
        assert controller.status(relay).latest == checkpoint.cut
        assert controller.status(relay).barrier.command_id == "checkpoint-1"
        checkpoint.complete()
    status = controller.status(relay)
    assert (status.floor, status.barrier) == (checkpoint.cut, None)
    assert controller.relay(relay).handle("checkpoint-1").outcome().completed


def test_a_checkpoint_of_which_nothing_is_said_is_released(controller, relay):
    with controller.relay(relay).checkpoint():
        pass
    with pytest.raises(ZeroDivisionError), controller.relay(relay).checkpoint():
        raise ZeroDivisionError
    status = controller.status(relay)
    assert (status.floor, status.barrier) == (None, None)


def test_one_checkpoint_is_made_at_a_time(controller, served, relay):
    with (
        controller.relay(relay).checkpoint(),
        Client(str(served.socket)) as other,
        pytest.raises(InvalidStateError),
        other.relay(relay).checkpoint(),
    ):
        pass


def test_a_checkpoint_ends_with_its_connection(way, controller, relay):
    with Client(way.path) as client:
        checkpoint = client.relay(relay).checkpoint()
        checkpoint.__enter__()
        way.cut()
        outcome = controller.relay(relay).handle(checkpoint.command_id).outcome(10)
        assert (outcome.state, outcome.reason) == ("interrupted", "owner_lost")
        way.mend()
        with pytest.raises(InvalidStateError):
            checkpoint.complete()
        with pytest.raises(InvalidStateError):
            checkpoint.__exit__(None, None, None)


def test_a_checkpoint_that_comes_to_no_cut_is_told(controller, served, relay):
    build = controller.relay(relay)
    build.submit()
    with Client(str(served.socket)) as other:

        def cancel():
            until(lambda: other.status(relay).barrier, 10, "no checkpoint is begun")
            other.relay(relay).handle("checkpoint-1").cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(CommandFailedError, match="cancelled"), build.checkpoint(command_id="checkpoint-1"):
            pass
        canceller.join()


def test_close_seals_the_relay_at_its_cut(controller, worker, relay):
    build = controller.relay(relay)
    cut = build.close()
    assert controller.status(relay).execution == "closed"
    closing = next(iter(controller.follow(relay, cut, live=False)))
    assert (closing.kind, closing.ordinal) == ("command.queued", cut.ordinal + 1)
    with pytest.raises(InvalidStateError):
        build.submit()
    assert list(worker.relay(relay).work()) == []


def test_close_makes_another_cut_where_the_first_is_not_exact_any_more(controller, relay, monkeypatch):
    close, cuts = Checkpoint.close, []

    def disturbed(checkpoint):
        cuts.append(checkpoint.cut)
        if len(cuts) == 1:
            controller.submit(relay, ClearQueue())
        close(checkpoint)

    monkeypatch.setattr(Checkpoint, "close", disturbed)
    assert controller.relay(relay).close() == cuts[1]
    assert len(cuts) == 2
