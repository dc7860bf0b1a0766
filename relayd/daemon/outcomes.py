"""`command`: what became of a command, told now or when it has ended (docs/reference/protocol.md, "Commands").

State is told from memory; a terminal command's message and result are read from its event, and are gone with it.
"""

from dataclasses import dataclass

import msgspec
import trio

from relayd.daemon.deadlines import Deadline
from relayd.daemon.environment import Environment
from relayd.daemon.looking_up import REPLANS_MAX
from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Reply
from relayd.journal.pages import Replan
from relayd.journal.trouble import storage_error
from relayd.protocol.errors import NameDetail, NotFoundError, RelaydError, StorageFailedError, WaitTimeoutError
from relayd.protocol.event import decode_body, iter_records
from relayd.protocol.kinds import CommandEnded
from relayd.protocol.messages import CommandQuery, CommandReport

_decode_ended = msgspec.msgpack.Decoder(CommandEnded).decode


@dataclass(eq=False)
class _Asker:
    request: CommandQuery
    reply: Reply
    deadline: Deadline | None = None


class Outcomes:
    """Answers `command` for one relay. `nursery` is the host's."""

    def __init__(self, memory: RelayMemory, environment: Environment, nursery: trio.Nursery) -> None:
        self._memory = memory
        self._environment = environment
        self._nursery = nursery
        self._waiting: dict[str, dict[_Asker, None]] = {}

    @property
    def busy(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def ask(self, request: CommandQuery, reply: Reply) -> None:
        """Answers with what is known, or waits for the end. Raises NotFoundError, OverloadedError."""
        if self._is_settled(request.command_id) or request.wait_ms == 0:
            self._answer(request, reply)
            return
        asker = _Asker(request, reply)
        reply.wait(lambda: self._no_longer_waits(asker))
        asker.deadline = self._environment.deadlines.after(request.wait_ms / 1000, lambda: self._time_is_up(asker))
        self._waiting.setdefault(request.command_id, {})[asker] = None

    def recorded(self) -> None:
        """The state has changed: whoever waited for that is answered."""
        for command_id in list(self._waiting):
            try:
                settled = self._is_settled(command_id)
            except NotFoundError as error:
                # It has ended with so many others that it is forgotten already.
                for asker in self._take_waiting(command_id):
                    self._memory.output.hold(self._memory.state.frontier.ordinal, asker.reply, error)
                continue
            if settled:
                for asker in self._take_waiting(command_id):
                    self._answer(asker.request, asker.reply)

    def _take_waiting(self, command_id: str) -> list[_Asker]:
        askers = list(self._waiting.get(command_id, ()))
        for asker in askers:
            self._no_longer_waits(asker)
        return askers

    def end_waiting(self, error: RelaydError) -> None:
        """Nobody waits any longer."""
        for askers in list(self._waiting.values()):
            for asker in list(askers):
                self._no_longer_waits(asker)
                asker.reply.refuse(error)

    def _is_settled(self, command_id: str) -> bool:
        """Whether it has ended, or is a checkpoint with its cut. Raises NotFoundError."""
        lane = self._memory.state.lane
        if command_id in lane.ended:
            return True
        if lane.live(command_id) is None:
            message = f"this relay knows no command `{command_id}`; it remembers those that run and the last that ended"
            raise NotFoundError(message, NameDetail("command", command_id))
        barrier = lane.barrier
        return barrier is not None and barrier.command_id == command_id and barrier.cut is not None

    def _time_is_up(self, asker: _Asker) -> None:
        self._no_longer_waits(asker)
        name = asker.request.command_id
        message = f"command `{name}` has not ended within {asker.request.wait_ms} ms; ask again to wait longer"
        frontier = self._memory.state.frontier.ordinal
        self._memory.output.hold(frontier, asker.reply, WaitTimeoutError(message))

    def _no_longer_waits(self, asker: _Asker) -> None:
        askers = self._waiting.get(asker.request.command_id, {})
        askers.pop(asker, None)
        if not askers:
            self._waiting.pop(asker.request.command_id, None)
        if asker.deadline is not None:
            asker.deadline.cancel()

    def _answer(self, request: CommandQuery, reply: Reply) -> None:
        report, frontier = self._report(request), self._memory.state.frontier.ordinal
        if report.terminal is None:
            self._memory.output.hold(frontier, reply, report)
            return
        terminal = report.terminal
        self._memory.output.hold(
            frontier, reply, lambda: self._nursery.start_soon(self._answer_ended, report, terminal, reply)
        )

    def _report(self, request: CommandQuery) -> CommandReport:
        lane, name = self._memory.state.lane, request.command_id
        ended = lane.ended.get(name)
        if ended is not None:
            return CommandReport(request.id, name, ended.type, ended.state, ended.ordinal, ended.terminal, ended.reason)
        entry = lane.live(name)
        assert entry is not None, "it was there a moment ago"
        cut = lane.barrier.cut if lane.barrier is not None and lane.barrier.command_id == name else None
        return CommandReport(request.id, name, entry.type, entry.state, entry.ordinal, cut=cut)

    # The terminal event's own words

    async def _answer_ended(self, report: CommandReport, terminal: int, reply: Reply) -> None:
        try:
            ended = await self._read(terminal)
            if ended is not None:
                report = msgspec.structs.replace(report, message=ended.message, result=ended.result)
            reply.answer(report)
        except OSError as error:
            reply.refuse(storage_error(error, f"reading the outcome of a command of relay {self._memory.name}"))
        except RelaydError as error:
            reply.refuse(error)
        except trio.Cancelled:
            reply.refuse(StorageFailedError("the relay was closed while the outcome was read; ask again"))
            raise
        finally:
            self._environment.outbox.flush()

    async def _read(self, ordinal: int) -> CommandEnded | None:
        """The data of the event at `ordinal`; None where it is gone or cannot be read."""
        memory = self._memory
        records = memory.tail.page(ordinal - 1, memory.synced.ordinal, 1)
        for _ in range(REPLANS_MAX):
            if ordinal <= memory.base.ordinal:
                return None
            if records is not None:
                break
            try:
                read = memory.reader.read
                found = await self._environment.files.run(read, memory.catalogue.view(), ordinal - 1, ordinal, 1)
            except Replan:
                continue
            if not isinstance(found, bytes):
                return None
            records = found
        if not records:
            return None
        record = next(iter_records(records))
        return _decode_ended(decode_body(record.body).data) if record.ordinal == ordinal else None
