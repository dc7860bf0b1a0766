"""`export`: everything a relay's events add up to, as of one frontier (docs/reference/protocol.md, "Operations").

One that is too large for a part is kept until its last part has long been there to ask for, so that all parts are of
one moment.
"""

from typing import NamedTuple

import trio

from relayd.daemon.deadlines import Deadline
from relayd.daemon.environment import Environment
from relayd.daemon.memory import RelayMemory
from relayd.daemon.reply import Reply
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import (
    FieldDetail,
    InvalidRequestError,
    InvalidStateError,
    StateDetail,
    StorageFailedError,
)
from relayd.protocol.limits import EXPORT_PART_BYTES, EXPORT_SECONDS
from relayd.protocol.messages import Export, Exported
from relayd.relay.state import RelayState, encode_state


class _Kept(NamedTuple):
    at: Cursor
    encoded: bytes


class Exporting:
    """Answers `export` for one relay. `nursery` is the host's."""

    def __init__(self, memory: RelayMemory, environment: Environment, nursery: trio.Nursery) -> None:
        self._memory = memory
        self._environment = environment
        self._nursery = nursery
        self._kept: _Kept | None = None
        self._forgetting: Deadline | None = None

    def export(self, request: Export, reply: Reply) -> None:
        """Answers with the state as it is now, or goes on with the one that is kept. Raises RelaydError to refuse."""
        if request.at is not None:
            reply.answer(self._part(request, self._kept_at(request.at)))
            return
        if request.offset:
            expected = "with `offset`, the cursor that the first part came with"
            raise InvalidRequestError(f"`export` has an offset and no `at`; {expected}", FieldDetail("at", expected))
        state = self._memory.state.capture()
        self._memory.output.hold(
            state.frontier.ordinal, reply, lambda: self._nursery.start_soon(self._begin, request, reply, state)
        )

    def end(self) -> None:
        """Nothing is kept any longer."""
        self._kept = None
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None

    async def _begin(self, request: Export, reply: Reply, state: RelayState) -> None:
        try:
            kept = _Kept(state.frontier, await self._environment.files.run(encode_state, state))
            if len(kept.encoded) > EXPORT_PART_BYTES:
                self._keep(kept)
            reply.answer(self._part(request, kept))
        except trio.Cancelled:
            reply.refuse(StorageFailedError("the relay was closed while its state was taken; ask again"))
            raise
        finally:
            self._environment.outbox.flush()

    def _keep(self, kept: _Kept) -> None:
        self.end()
        self._kept = kept
        self._forgetting = self._environment.deadlines.after(EXPORT_SECONDS, self.end)

    def _kept_at(self, at: Cursor) -> _Kept:
        kept = self._kept
        if kept is None or kept.at != at:
            message = f"the state at {at.ordinal} is not kept any longer: begin again, without `at`"
            raise InvalidStateError(message, StateDetail("not kept"))
        self._keep(kept)
        return kept

    @staticmethod
    def _part(request: Export, kept: _Kept) -> Exported:
        part = kept.encoded[request.offset : request.offset + EXPORT_PART_BYTES]
        return Exported(request.id, kept.at, len(kept.encoded), part)
