"""`decide`: what a request does to a relay, before anything is written. Pure; raises a RelaydError as its refusal.

A Decision says which events are recorded, in one group, and how to answer once they have their cursors. Decisions build
on folded state, durable or not; that their answers stay inside until it is durable is the daemon's output commit.
"""

from collections.abc import Callable
from typing import NamedTuple

from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import InvalidStateError, StateDetail
from relayd.protocol.limits import ORDINAL_MAX
from relayd.protocol.messages import AnyResponse, Record
from relayd.relay.fold import Run
from relayd.relay.recording import Recording, decide_record
from relayd.relay.state import RelayState


class Decision(NamedTuple):
    """Event bodies to record as one group (none: nothing is recorded), and the answer.

    `respond` takes the first event's ordinal and the last one's cursor. `run` is the fold of all `bodies` at once,
    where they are an application's; without it each is folded by itself.
    """

    bodies: list[bytes]
    respond: Callable[[int, Cursor], AnyResponse]
    run: Run | None = None


def decide(state: RelayState, request: Record, now_ms: int) -> Decision:
    """Decides `request` at `now_ms`, milliseconds since 1970. Raises RelaydError where it is refused."""
    recording = decide_record(state, request, now_ms)
    if state.frontier.ordinal + len(recording.bodies) > ORDINAL_MAX:
        message = "this relay has given out its last ordinal; make a new relay"
        raise InvalidStateError(message, StateDetail(state="exhausted"))
    return Decision(recording.bodies, _respond(request.id, recording), recording.run)


def _respond(request: int, recording: Recording) -> Callable[[int, Cursor], AnyResponse]:
    def respond(first: int, through: Cursor) -> AnyResponse:
        return recording.answer(request, first, through)

    return respond
