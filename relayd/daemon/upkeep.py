"""Side work of one relay: snapshots, sealing, eviction, collection (docs/reference/journal.md).

It answers nobody and never stands in the way of an append. What fails is tried again after 1 s, doubling to 60 s, and
said in `status` meanwhile.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio
from structlog.typing import FilteringBoundLogger

from relayd.daemon.environment import Environment
from relayd.daemon.memory import RelayMemory
from relayd.journal.collection import collectable, evictable, sync_watermark, unlink_segments
from relayd.journal.groups import GroupDamageError
from relayd.journal.names import SegmentKind
from relayd.journal.pages import Replan
from relayd.journal.sealed import SealedError
from relayd.journal.sealer import install_sealed, prepare_sealed
from relayd.journal.storage import Directory
from relayd.journal.watermark import Watermark
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.errors import RelaydError
from relayd.protocol.event import RecordError
from relayd.protocol.kinds import RetentionBytes
from relayd.recovery.checked_map import CheckedMapError
from relayd.recovery.opening import Opened
from relayd.recovery.quarantine import set_aside
from relayd.recovery.snapshot import encode_snapshot, install, write_new

RETRY_SECONDS_FIRST: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0


class Owner(Protocol):
    """The host whose relay is kept up."""

    lane: trio.Lock
    full_bytes: int | None

    async def durable(self, ordinal: int) -> None:
        """Waits until `ordinal` is synced."""
        ...

    def record_eviction(self, through: Cursor) -> None:
        """Records that bounded retention drops everything up to `through`, which happens once that is durable."""
        ...


class Upkeep:
    """Keeps up one open relay. `trouble` is a sentence while something fails, else None."""

    def __init__(
        self,
        owner: Owner,
        memory: RelayMemory,
        environment: Environment,
        opened: Opened,
        log: FilteringBoundLogger,
    ) -> None:
        self._owner = owner
        self._memory = memory
        self._environment = environment
        self._relay: Directory = opened.relay
        self._journal: Directory = opened.journal
        self._writer = opened.writer
        self._log = log
        self._generations = opened.generations
        self._events = opened.unsnapshotted_events
        self._bytes = opened.unsnapshotted_bytes
        snapshot_trouble = opened.report.snapshot_trouble
        self._overdue = snapshot_trouble is not None
        """The opening could not write the snapshot that was due at its end, and none was written since."""
        self._wake = trio.Event()
        self._seconds = RETRY_SECONDS_FIRST
        self._snapshotting = trio.Lock()
        self._going: list[str] = []
        """Files that readers find no longer, and that are still to be unlinked."""
        self._has_recorded = False
        """Whether this opening has written anything; until then it says nothing of its own, so as not to fail again."""
        self.busy = False
        self.trouble = _again("writing a snapshot", snapshot_trouble) if snapshot_trouble is not None else None

    @property
    def lag(self) -> int:
        """Events that the newest snapshot does not know."""
        return self._events

    def recorded(self, events: int, size: int) -> None:
        """So much more is in the journal and in no snapshot."""
        self._events += events
        self._bytes += size
        if not self._has_recorded:
            self._has_recorded = True
            self._wake.set()
        if self._snapshot_is_due:
            self._wake.set()

    def want_snapshot(self) -> None:
        """A checkpoint was completed: a snapshot is due, however little came since the last."""
        self._overdue = self._events > 0
        self._wake.set()

    def look(self) -> None:
        """Something changed: a rotation, an acknowledgement, an eviction that is durable."""
        self._wake.set()

    async def run(self) -> None:
        """Does what is to be done, for ever."""
        if self.trouble is not None:
            await self._rest(self.trouble)
        while True:
            self._wake = trio.Event()
            self.busy = True
            failed = await self._do_all()
            self.busy = False
            if failed is None:
                self.trouble, self._seconds = None, RETRY_SECONDS_FIRST
                await self._wake.wait()
            else:
                await self._rest(failed)

    async def _rest(self, failed: str) -> None:
        self.trouble = failed
        self._log.warning("upkeep_failed", trouble=failed, again_in_seconds=self._seconds)
        await trio.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, RETRY_SECONDS_MAX)

    async def _do_all(self) -> str | None:
        """One round; a sentence where something failed. What one job meets keeps no other one back."""
        failed: str | None = None
        jobs: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            ("writing a snapshot", self._snapshot_if_due),
            ("sealing a segment", self._seal_all),
            ("bounding retention", self._evict),
            ("collecting segments", self._collect),
        )
        for doing, job in jobs:
            try:
                await job()
            except (OSError, RelaydError, Replan, GroupDamageError, SealedError, RecordError, CheckedMapError) as error:
                failed = _again(doing, error)
        return failed

    # Snapshots

    @property
    def _snapshot_is_due(self) -> bool:
        settings = self._environment.settings
        many = self._events >= settings.snapshot_events or self._bytes >= settings.snapshot_bytes
        return many or self._overdue

    async def _snapshot_if_due(self) -> None:
        if self._snapshot_is_due:
            async with self._snapshotting:
                # Another may have been written while this one waited for its turn.
                if self._snapshot_is_due:
                    await self._write_snapshot()

    async def snapshot(self) -> None:
        """Writes a snapshot of the folded state; it gets its name once its frontier is durable. Raises OSError."""
        # One at a time: they share the name snapshot.new, also where the relay is closed while upkeep writes one.
        async with self._snapshotting:
            await self._write_snapshot()

    async def _write_snapshot(self) -> None:
        memory, files = self._memory, self._environment.files
        captured, base, events, size = memory.state.capture(), memory.base, self._events, self._bytes
        content = await files.run(encode_snapshot, memory.name, captured, base)
        await files.run(write_new, self._relay, content)
        await self._owner.durable(captured.frontier.ordinal)
        if memory.synced.ordinal < captured.frontier.ordinal:
            # The relay has failed, and what it held that was not durable is void.
            return
        async with self._owner.lane:
            await files.run(install, self._relay)
        self._generations = (base, self._generations[0])
        self._overdue = False
        self._events -= events
        self._bytes -= size

    # Sealing

    async def _seal_all(self) -> None:
        files, catalogue = self._environment.files, self._memory.catalogue
        rotated = [segment.span for segment in catalogue.view().settled if segment.kind is SegmentKind.ROTATED]
        for name in rotated:
            prepared = await files.run(prepare_sealed, self._journal, name, self._memory.state.store)
            async with self._owner.lane:
                installed = await files.run(install_sealed, self._journal, prepared, self._quarantine)
            if installed:
                catalogue.sealed(name, prepared.size)

    def _quarantine(self, name: str) -> None:
        set_aside(self._relay, self._journal, name)

    # Letting go

    async def _evict(self) -> None:
        """Bounded retention: says what goes, as an event; it goes once that is durable."""
        memory, retention = self._memory, self._memory.state.retention
        if not isinstance(retention, RetentionBytes) or self._owner.full_bytes is not None or not self._has_recorded:
            # An eviction is an event: without room for it, it waits for the room that lets others record again.
            return
        view = memory.catalogue.view()
        through = evictable(view, retention.bytes)
        if through is None or through <= max(memory.state.evicted.ordinal, memory.base.ordinal):
            return
        digest = await self._environment.files.run(memory.reader.digest_at, view, through)
        if digest is None:
            self._log.warning("eviction_digest_unreadable", ordinal=through)
        self._owner.record_eviction(Cursor(through, digest))
        await self._owner.durable(memory.state.frontier.ordinal)

    async def _collect(self) -> None:
        """Unlinks what both snapshot generations say may be gone; writes them first where they do not say it yet."""
        memory = self._memory
        await self._unlink_going()
        while collectable(memory.catalogue.view(), memory.base.ordinal):
            names = collectable(memory.catalogue.view(), self._collected_base)
            if names:
                memory.catalogue.dropped(names)
                self._going += names
                await self._unlink_going()
            else:
                await self.snapshot()

    async def _unlink_going(self) -> None:
        if self._going:
            async with self._owner.lane:
                writer = self._writer
                assert writer is not None, "a relay without room is not kept up"
                await self._environment.files.run(sync_watermark, self._relay, Watermark(*writer.synced_end))
                await self._environment.files.run(unlink_segments, self._journal, self._going)
            self._going = []

    @property
    def _collected_base(self) -> int:
        return min((base or GENESIS).ordinal for base in self._generations)


def _again(doing: str, error: object) -> str:
    return f"{doing} failed and is tried again: {error}"
