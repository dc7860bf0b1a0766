"""`status` of an open relay: state at one frontier, told when that frontier is durable."""

from collections.abc import Callable
from itertools import chain, islice
from typing import Final, Protocol

import msgspec
import trio

from relayd.daemon.attaching import Attaching, Reading
from relayd.daemon.environment import Environment
from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Reply
from relayd.daemon.upkeep import Upkeep
from relayd.journal.place import prove_place
from relayd.journal.storage import Directory
from relayd.journal.trouble import storage_error
from relayd.journal.usage import Usage, measure
from relayd.protocol.errors import RelaydError, RelayRemovedError, StorageFailedError
from relayd.protocol.messages import Attach, BarrierStatus, HeldCommand, RelayStatus, Status, StatusResponse

QUEUED_SHOWN_MAX: Final = 100


class Owner(Protocol):
    """The host that is asked."""

    memory: RelayMemory
    upkeep: Upkeep
    attaching: Attaching
    full_bytes: int | None

    def removed(self, error: RelayRemovedError) -> None:
        """The relay's directory is no longer at its place."""
        ...


class StatusReporter:
    """Answers `status`, and `attach` with a status."""

    def __init__(self, owner: Owner, environment: Environment, relay: Directory, nursery: trio.Nursery) -> None:
        self._owner = owner
        self._environment = environment
        self._relay = relay
        self._nursery = nursery

    def status(self, request: Status, reply: Reply) -> None:
        """Answers with the state as it is now, once that is durable."""

        def answer(status: RelayStatus) -> None:
            reply.answer(StatusResponse(id=request.id, **msgspec.structs.asdict(status)))

        self._begin(reply, answer)

    def attach(self, request: Attach, reply: Reply) -> None:
        """Answers with a page and the state at one frontier."""
        reading = self._owner.attaching.begin(request, reply)
        reading.again = self._attach
        self._attach(reading)

    def _attach(self, reading: Reading) -> None:
        """Takes the status anew; what is read still begins where the reading stands."""
        self._begin(reading.reply, lambda status: self._owner.attaching.attach_with_status(reading, status))

    def _begin(self, reply: Reply, answer: Callable[[RelayStatus], None]) -> None:
        status = self._capture()
        ordinal = status.latest.ordinal
        self._owner.memory.output.hold(
            ordinal, reply, lambda: self._nursery.start_soon(self._finish, reply, status, answer)
        )

    async def _finish(self, reply: Reply, status: RelayStatus, answer: Callable[[RelayStatus], None]) -> None:
        """Adds what the disk says, and answers."""
        try:
            try:
                usage = await self._environment.files.run(self._measure)
            except RelayRemovedError as error:
                self._owner.removed(error)
                raise
            answer(_with_usage(status, usage))
        except OSError as error:
            reply.refuse(storage_error(error, f"measuring relay {status.relay}"))
        except RelaydError as error:
            reply.refuse(error)
        except trio.Cancelled:
            reply.refuse(StorageFailedError("the relay was closed while its status was taken; ask again"))
            raise
        finally:
            self._environment.outbox.flush()

    def _measure(self) -> Usage:
        usage = measure(self._relay)
        prove_place(self._relay)
        return usage

    def _capture(self) -> RelayStatus:
        memory, state = self._owner.memory, self._owner.memory.state
        lane = state.lane
        return RelayStatus(
            relay=memory.name,
            store=state.store,
            execution=state.execution,
            execution_since=state.execution_since,
            latest=state.frontier,
            acknowledged=memory.acknowledgements.acknowledged,
            retained=memory.retained,
            evicted=memory.base,
            retention=state.retention,
            max_active=state.max_active,
            consumers=dict(memory.acknowledgements.consumers),
            readers=self._owner.attaching.readers,
            last_event_at=state.last_event_at,
            disk_bytes=0,
            journal_bytes=0,
            floor=state.floor,
            trouble=self._trouble(),
            active=list(lane.started),
            queued=list(islice(chain(lane.queue, lane.side), QUEUED_SHOWN_MAX)),
            queued_count=len(lane.queue) + len(lane.side),
            in_flight=[
                HeldCommand(name, entry.worker or "", entry.delivery)
                for name, entry in lane.started.items()
                if entry.state == "in_flight"
            ],
            barrier=None if lane.barrier is None else BarrierStatus(lane.barrier.command_id, lane.barrier.cut),
            config=dict(lane.config),
        )

    def _trouble(self) -> str | None:
        if self._owner.full_bytes is not None:
            return "the disk has no room: reads are served, and recording resumes by itself once there is room"
        return self._owner.upkeep.trouble


def _with_usage(status: RelayStatus, usage: Usage) -> RelayStatus:
    return msgspec.structs.replace(status, disk_bytes=usage.disk_bytes, journal_bytes=usage.journal_bytes)
