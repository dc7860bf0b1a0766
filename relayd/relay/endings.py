"""How commands end: the terminal event, with those of the cancels that stood. Pure."""

from relayd.protocol.commands import Task, read_stored
from relayd.protocol.kinds import CommandCompleted, CommandEnded, CommandInterrupted, CommandRejected, CommandRequeued
from relayd.relay.ledger import Lane
from relayd.relay.own import own_body, raw


def end_bodies(lane: Lane, command_id: str, end: CommandEnded, now_ms: int, *, but: str = "") -> list[bytes]:
    """The end of a command, and in the same group of every cancel that waited for it; `but` ends by itself."""
    bodies = [own_body(now_ms, end, command_id)]
    bodies += [
        own_body(now_ms, CommandCompleted("cancel"), cancel) for cancel in lane.cancels_of(command_id) if cancel != but
    ]
    return bodies


def loss_bodies(lane: Lane, command_id: str, now_ms: int) -> list[bytes]:
    """What becomes of a command in flight whose lease has run out.

    One whose cancel stands is never run again. Else a task is repeated where that was asked for.
    """
    entry = lane.started[command_id]
    if lane.cancels_of(command_id):
        return end_bodies(lane, command_id, CommandRejected(entry.type, "cancelled"), now_ms)
    if entry.type == "side_task":
        end = CommandCompleted("side_task", "lease_expired", result=raw({"status": "interrupted"}))
        return end_bodies(lane, command_id, end, now_ms)
    command = read_stored(entry.command)
    if isinstance(command, Task) and command.on_loss == "requeue":
        return [own_body(now_ms, CommandRequeued("lease_expired"), command_id)]
    return end_bodies(lane, command_id, CommandInterrupted(entry.type, "lease_expired"), now_ms)
