"""The command lane of one open relay: what connections submit, claim and finish.

Decides with the pure rules of relayd/relay/ (docs/reference/protocol.md, "Commands"), and keeps what leaves no event:
who holds what, who waits, and leases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from relayd.daemon.deadlines import Deadline
from relayd.daemon.environment import Environment
from relayd.daemon.hands import ConnectionHands, Holders, Leases
from relayd.daemon.holding import Holding
from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Answering, Reply
from relayd.protocol.commands import (
    AdvanceFloor,
    BeginCheckpoint,
    Close,
    CompleteCheckpoint,
    Notice,
    ReleaseCheckpoint,
    read_command,
)
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import ForbiddenError, RelaydError
from relayd.protocol.kinds import CommandInterrupted
from relayd.protocol.messages import Accepted, Claim, Claimed, Finish, Finished, Submit
from relayd.relay.closed import closed_error
from relayd.relay.endings import end_bodies, loss_bodies
from relayd.relay.submitting import Submission, decide_submit, read_submission, repeat_of
from relayd.relay.working import HandOver, decide_claim, decide_finish

FULL_AGAIN_SECONDS = 1.0
"""A lease that runs out while the disk has no room is looked at again after so long."""


class Owner(Protocol):
    """The host whose lane this is."""

    full_bytes: int | None

    def record_own(self, bodies: Sequence[bytes]) -> tuple[int, Cursor]:
        """Records events of relayd's own, and what follows from them; the first ordinal and the last cursor."""
        ...

    def look_up(self, ordinal: int, reply: Reply, then: Callable[[bytes | None], None]) -> None:
        """Calls `then` with the digest at `ordinal` as the files have it; what comes later is decided later."""
        ...


@dataclass(eq=False)
class _Claimer:
    request: Claim
    reply: Reply
    worker: str
    deadline: Deadline | None = None


class Commanding:
    """The lane of one host. `holding` is what its checkpoint holds back."""

    def __init__(
        self, owner: Owner, memory: RelayMemory, environment: Environment, holders: Holders, holding: Holding
    ) -> None:
        self._owner = owner
        self._memory = memory
        self._environment = environment
        self._holders = holders
        self._holding = holding
        self._leases = Leases(environment.deadlines, self._run_out)
        self._claimers: dict[_Claimer, None] = {}
        self._untold: set[str] = set()
        """Handed over, and not answered yet: their connection does not hold them if that fails."""
        self._barrier_owner: Answering | None = None
        self._barrier_timer: Deadline | None = None
        self._serving = False
        holders.lost = self._connection_ended

    @property
    def busy(self) -> bool:
        """Whether somebody waits for a command, holds one, or has a checkpoint."""
        return bool(self._claimers or self.unsettled)

    @property
    def unsettled(self) -> bool:
        """Whether time alone will change something: a lease or a checkpoint will run out."""
        lane = self._memory.state.lane
        return lane.barrier is not None or any(entry.state == "in_flight" for entry in lane.started.values())

    def begin(self) -> None:
        """After an opening: checkpoints have lost their owner, leases begin anew, the head of the queue starts."""
        lane = self._memory.state.lane
        if lane.barrier is not None:
            self._interrupt_barrier("owner_lost")
        in_flight = {
            command_id: entry
            for entries in (lane.started, lane.cancels)
            for command_id, entry in entries.items()
            if entry.state == "in_flight"
        }
        self._holders.retain(in_flight)
        orphans = [name for name in lane.started if name in in_flight and self._holders.holder(name) is None]
        self._leases.begin(orphans, self._environment.settings.lease)
        self._owner.record_own([])

    # Submitting

    def submit(self, request: Submit, reply: Reply) -> None:
        """Accepts a command. Raises RelaydError to refuse it."""
        command = read_command(request.command)
        notice = isinstance(command, Notice)
        if self._holding.holds(request, notice=notice):
            self._holding.hold(request, reply, notice=notice)
            return
        submission = read_submission(request, command)
        if not isinstance(command, AdvanceFloor):
            self._submit(submission, reply)
            return
        memory, ordinal = self._memory, command.cursor.ordinal
        found = memory.digest_of(ordinal)
        if found is None and memory.base.ordinal < ordinal < memory.synced.ordinal:
            self._owner.look_up(ordinal, reply, lambda found: self._submit(submission, reply, found))
        else:
            self._submit(submission, reply, found)

    def _submit(self, submission: Submission, reply: Reply, found: bytes | None = None) -> None:
        memory, request = self._memory, submission.request
        repeat = repeat_of(memory.state, submission)
        if repeat is not None:
            memory.output.hold(memory.state.frontier.ordinal, reply, repeat)
            return
        bodies = self._decide(submission, found)
        if len(self._holding) and not isinstance(submission.command, Close | CompleteCheckpoint | ReleaseCheckpoint):
            # It ends the hold: what is held comes first, and then it is decided again.
            self._holding.release()
            bodies = self._decide(submission, found)
        first, last = self._owner.record_own(bodies)
        memory.output.hold(last.ordinal, reply, Accepted(request.id, request.command_id, first))
        if isinstance(submission.command, BeginCheckpoint):
            self._own_barrier(request.command_id, reply)

    def _decide(self, submission: Submission, found: bytes | None) -> list[bytes]:
        return decide_submit(
            self._memory.state,
            submission,
            self._environment.now_ms(),
            queue_max=self._environment.settings.queue,
            found=found,
        )

    # Checkpoints

    def _own_barrier(self, command_id: str, reply: Reply) -> None:
        barrier = self._memory.state.lane.barrier
        if barrier is None or barrier.command_id != command_id:
            return
        if reply.over:
            # Its connection ended while it waited for the relay to open, or for a look into the files.
            self._interrupt_barrier("owner_lost")
            return
        self._barrier_owner = reply.connection
        self._holders.watch(reply.connection)
        if self._barrier_timer is not None:
            self._barrier_timer.cancel()
        self._barrier_timer = self._environment.deadlines.after(
            self._environment.settings.barrier, lambda: self._barrier_expired(command_id)
        )

    def _barrier_expired(self, command_id: str) -> None:
        barrier = self._memory.state.lane.barrier
        if barrier is None or barrier.command_id != command_id:
            return
        if self._owner.full_bytes is not None:
            self._barrier_timer = self._environment.deadlines.after(
                FULL_AGAIN_SECONDS, lambda: self._barrier_expired(command_id)
            )
            return
        self._interrupt_barrier("expired")

    def _interrupt_barrier(self, reason: str) -> None:
        lane = self._memory.state.lane
        assert lane.barrier is not None, "there is a checkpoint"
        end = CommandInterrupted("begin_checkpoint", reason)
        self._owner.record_own(end_bodies(lane, lane.barrier.command_id, end, self._environment.now_ms()))

    # Working

    def claim(self, request: Claim, reply: Reply) -> None:
        """Hands over what there is, now or when there is some. Raises RelaydError to refuse it."""
        worker = reply.connection.worker
        if worker is None:
            text = "`claim` is for connections that named a `worker` in their `hello`; connect again, with one"
            raise ForbiddenError(text)
        if self._memory.state.lane.closed is not None:
            raise closed_error()
        claimer = _Claimer(request, reply, worker)
        if self._serve(claimer):
            return
        if request.wait_ms == 0:
            self._memory.output.hold(self._memory.state.frontier.ordinal, reply, Claimed(request.id, []))
            return
        reply.wait(lambda: self._no_longer_waits(claimer))
        claimer.deadline = self._environment.deadlines.after(
            request.wait_ms / 1000, lambda: self._nothing_came(claimer)
        )
        self._claimers[claimer] = None

    def _serve(self, claimer: _Claimer) -> bool:
        """Whether there was something to hand over."""
        connection = claimer.reply.connection
        hands = ConnectionHands(self._holders, self._leases, connection)
        handed = decide_claim(
            self._memory.state, claimer.request.capacity, claimer.worker, hands, self._environment.now_ms()
        )
        if not handed.commands:
            return False
        self._no_longer_waits(claimer)
        self._hand_over(handed, claimer.reply)
        return True

    def _hand_over(self, handed: HandOver, reply: Reply) -> None:
        names = [command.command_id for command in handed.commands]
        self._holders.take(names, reply.connection)
        self._leases.end(names)
        self._untold.update(names)
        _, last = self._owner.record_own(handed.bodies)
        answer = Claimed(reply.id, handed.commands)
        self._memory.output.hold(last.ordinal, reply, lambda: self._tell(answer, reply))

    def _tell(self, answer: Claimed, reply: Reply) -> None:
        """The hand-over is durable. What cannot be told has reached nobody, and is orphaned at once."""
        names = [command.command_id for command in answer.commands]
        self._untold.difference_update(names)
        if reply.over:
            mine = [name for name in names if self._holders.holder(name) is reply.connection]
            self._holders.drop(mine)
            self._orphan(mine)
            self._serve_waiting()
        else:
            reply.answer(answer)

    def _no_longer_waits(self, claimer: _Claimer) -> None:
        self._claimers.pop(claimer, None)
        if claimer.deadline is not None:
            claimer.deadline.cancel()
            claimer.deadline = None

    def _nothing_came(self, claimer: _Claimer) -> None:
        self._no_longer_waits(claimer)
        answer = Claimed(claimer.request.id, [])
        self._memory.output.hold(self._memory.state.frontier.ordinal, claimer.reply, answer)

    def finish(self, request: Finish, reply: Reply) -> None:
        """Takes the outcome of a command. Raises RelaydError to refuse it."""
        memory = self._memory
        hands = ConnectionHands(self._holders, self._leases, reply.connection)
        decided = decide_finish(memory.state, request, hands, self._environment.now_ms())
        if decided.answer is not None:
            memory.output.hold(memory.state.frontier.ordinal, reply, decided.answer)
            return
        ended = [request.command_id, *memory.state.lane.cancels_of(request.command_id)]
        first, last = self._owner.record_own(decided.bodies)
        answer = Finished(request.id, first)
        memory.output.hold(last.ordinal, reply, lambda: self._tell_finished(answer, ended, reply))

    def _tell_finished(self, answer: Finished, ended: list[str], reply: Reply) -> None:
        """The end is durable; until then its connection holds the command, as the end may yet be lost."""
        self._holders.drop(ended)
        reply.answer(answer)

    # What follows

    def recorded(self) -> None:
        """The state has changed: whoever waits for work is served, in the order of asking."""
        if self._memory.state.lane.barrier is None:
            self._barrier_owner = None
            if self._barrier_timer is not None:
                self._barrier_timer.cancel()
                self._barrier_timer = None
        self._holding.settle()
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        if self._serving or not self._claimers:
            return
        self._serving = True
        try:
            if self._memory.state.lane.closed is not None:
                self._refuse_waiting(closed_error())
            for claimer in list(self._claimers):
                if claimer in self._claimers:
                    self._serve(claimer)
        finally:
            self._serving = False

    def _refuse_waiting(self, error: RelaydError) -> None:
        """Nobody can be given work any longer, which is told when it is durable."""
        for claimer in list(self._claimers):
            self._no_longer_waits(claimer)
            self._memory.output.hold(self._memory.state.frontier.ordinal, claimer.reply, error)

    # Connections that end

    def _connection_ended(self, connection: Answering, held: list[str]) -> None:
        self._orphan(held)
        if held and self._owner.full_bytes is None:
            # Their identity may wait on another connection already.
            self._serve_waiting()
            self._environment.outbox.flush()
        if connection is self._barrier_owner and self._owner.full_bytes is None:
            self._barrier_owner = None
            self._interrupt_barrier("owner_lost")
            self._environment.outbox.flush()

    def _orphan(self, command_ids: list[str]) -> None:
        started = self._memory.state.lane.started
        self._leases.begin([name for name in command_ids if name in started], self._environment.settings.lease)

    def _run_out(self, command_ids: list[str]) -> None:
        """Leases have run out together: they end in order of acceptance."""
        lane = self._memory.state.lane
        due = sorted(
            (name for name in command_ids if name in lane.started), key=lambda name: lane.started[name].ordinal
        )
        if self._owner.full_bytes is not None:
            self._leases.begin(due, FULL_AGAIN_SECONDS)
            return
        for name in due:
            self._holders.drop(lane.cancels_of(name))
            self._owner.record_own(loss_bodies(lane, name, self._environment.now_ms()))

    # Its end

    def end_waiting(self, error: RelaydError) -> None:
        """Nobody waits for work any longer."""
        for claimer in list(self._claimers):
            self._no_longer_waits(claimer)
            claimer.reply.refuse(error)

    def stop(self, error: RelaydError) -> None:
        """Nothing more is recorded by the lane; who holds what is kept for the next host."""
        self.end_waiting(error)
        self._holding.end(error)
        self._leases.end_all()
        self._holders.drop(self._untold)
        self._untold.clear()
        if self._barrier_timer is not None:
            self._barrier_timer.cancel()
        if self._holders.lost == self._connection_ended:
            self._holders.lost = None
