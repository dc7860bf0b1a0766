"""What follows by itself from the state: the heads of the lanes start, a checkpoint becomes ready. Pure."""

from relayd.protocol.kinds import CheckpointReady, CommandStarted
from relayd.protocol.limits import SIDE_TASKS_STARTED_MAX
from relayd.relay.ledger import Entry, Lane
from relayd.relay.own import own_body
from relayd.relay.state import RelayState


def next_body(state: RelayState, now_ms: int) -> bytes | None:
    """The next event that the relay records by itself; None where nothing is due. To be asked again after its fold."""
    lane = state.lane
    if lane.closed is not None:
        return None
    if lane.barrier is not None:
        if lane.barrier.cut is None and not lane.started:
            return own_body(now_ms, CheckpointReady(lane.barrier.command_id), lane.barrier.command_id)
        return None
    started = _head_of_side(lane) or _head_of_queue(state)
    return None if started is None else own_body(now_ms, CommandStarted(), started)


def _head_of_side(lane: Lane) -> str | None:
    running = sum(entry.type == "side_task" for entry in lane.started.values())
    return next(iter(lane.side), None) if running < SIDE_TASKS_STARTED_MAX else None


def _head_of_queue(state: RelayState) -> str | None:
    lane = state.lane
    head = next(iter(lane.queue.items()), None)
    if head is None:
        return None
    name, entry = head
    return name if _may_start(lane, entry, state.max_active) else None


def _may_start(lane: Lane, entry: Entry, max_active: int) -> bool:
    """Fewer than `max_active` run, no configure does, and no side task that was accepted before it."""
    running = 0
    for other in lane.started.values():
        if other.type == "configure" or (other.type == "side_task" and other.ordinal < entry.ordinal):
            return False
        running += other.type != "side_task"
    return running < max_active
