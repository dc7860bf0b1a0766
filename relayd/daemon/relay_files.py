"""A relay's files as its entry uses them: each call runs in a thread (docs/reference/journal.md, "Layout")."""

import errno
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from relayd.daemon.environment import Environment
from relayd.journal.active import SyncedEnd
from relayd.journal.probe import has_room
from relayd.journal.storage import Directory
from relayd.protocol.errors import NameDetail, NotFoundError, RelaydError, UnavailableDetail, UnavailableError
from relayd.protocol.kinds import RETENTION_DEFAULT, Retention
from relayd.recovery.making import delete_removed, make_relay, remove_relay
from relayd.recovery.opening import Opened, open_relay
from relayd.relay.state import MAX_ACTIVE_DEFAULT


class RelayFiles:
    """Opens, makes and removes relays below `relays`, the state directory's `relays/`."""

    def __init__(self, relays: Directory, environment: Environment) -> None:
        self._relays = relays
        self._environment = environment
        self._log: FilteringBoundLogger = environment.log
        self._unsynced: set[str] = set()
        """Names that may be there in memory and not on disk, or the reverse: the sync behind their change failed."""

    async def open(self, name: str, synced: SyncedEnd | None) -> Opened:
        """Opens a relay and takes its lock. Raises NotFoundError, UnavailableError, OSError."""
        began = self._environment.now_ms()
        try:
            opened = await self._environment.files.run(self._open, name, synced)
        except (RelaydError, OSError):
            await self.check_state()
            raise
        self._log.info(
            "relay_opened",
            relay=name,
            frontier=opened.state.frontier.ordinal,
            milliseconds=self._environment.now_ms() - began,
            **opened.report._asdict(),
        )
        return opened

    async def check_state(self) -> None:
        """After a relay was found missing or failing: the daemon ends where its whole state directory is gone.

        A disk that does not say it is no reason to end, nor to forget why this was asked. Raises nothing.
        """
        try:
            there = await self._environment.files.run(self._relays.still_there)
        except OSError as error:
            self._log.warning("state_directory_unseen", error=str(error))
            return
        if not there:
            self._environment.state_gone.set()

    def _open(self, name: str, synced: SyncedEnd | None) -> Opened:
        try:
            relay = self._relays.directory(name)
        except FileNotFoundError:
            self._sync_name(name)
            message = f"there is no relay `{name}`; `relayd open --create {name}` makes it, `relayd relays` lists all"
            raise NotFoundError(message, NameDetail("relay", name)) from None
        try:
            _lock(relay, name)
            self._sync_name(name)
            return open_relay(
                relay,
                name,
                segment_bytes=self._environment.settings.segment_bytes,
                new_id=self._environment.new_id,
                watermark_failed=self._watermark_failed(name),
                synced=synced,
                tail_bytes=self._environment.settings.tail_bytes,
            )
        except BaseException:
            relay.close()
            raise

    def _sync_name(self, name: str) -> None:
        """Nothing is told by way of a name, or of its absence, before that is on disk. Raises OSError."""
        if name in self._unsynced:
            self._relays.sync()
            self._unsynced.discard(name)

    def _watermark_failed(self, name: str) -> Callable[[OSError], None]:
        return lambda error: self._log.warning("watermark_failed", relay=name, error=str(error))

    async def make(self, name: str, retention: Retention | None, max_active: int | None) -> bool:
        """Makes a relay, durably; False where there is one of that name. Raises OSError."""
        try:
            return await self._environment.files.run(self._make, name, retention, max_active)
        except OSError:
            await self.check_state()
            raise

    def _make(self, name: str, retention: Retention | None, max_active: int | None) -> bool:
        if self._relays.stat(name) is not None:
            return False
        self._unsynced.add(name)
        make_relay(
            self._relays,
            name,
            store=self._environment.new_id(),
            retention=RETENTION_DEFAULT if retention is None else retention,
            max_active=MAX_ACTIVE_DEFAULT if max_active is None else max_active,
            now_ms=self._environment.now_ms(),
            new_id=self._environment.new_id,
        )
        self._prove_state()
        self._unsynced.discard(name)
        return True

    def _prove_state(self) -> None:
        """What was made or removed in a directory that is no longer at its path is not answered."""
        if not self._relays.still_there():
            gone = "the state directory was deleted, moved or replaced"
            raise FileNotFoundError(errno.ENOENT, gone, self._relays.path)

    async def remove(self, name: str, store: bytes) -> None:
        """Takes a closed relay away for good; `free` gives its room back. Raises NotFoundError, OSError."""
        await self._environment.files.run(self._remove, name, store)

    def _remove(self, name: str, store: bytes) -> None:
        """The caller has seen the store in the open relay, or the relay does not open: then any store is believed."""
        self._unsynced.add(name)
        try:
            remove_relay(self._relays, name, store)
        except FileNotFoundError:
            self._sync_name(name)
            message = f"there is no relay `{name}`, so nothing was deleted"
            raise NotFoundError(message, NameDetail("relay", name)) from None
        self._prove_state()
        self._unsynced.discard(name)

    async def free(self, name: str, store: bytes) -> None:
        """Gives the room of a removed relay back. Raises OSError."""
        await self._environment.files.run(delete_removed, self._relays, name, store)

    async def has_room(self, relay: Directory, size: int) -> bool:
        """Whether `size` bytes can be written in a relay's directory. Raises OSError for other trouble."""
        return await self._environment.files.run(has_room, relay, size)


def _lock(relay: Directory, name: str) -> None:
    """Offline tools that write take this lock too, so that a relay is mended beside a running daemon."""
    if not relay.lock():
        hint = "wait until the tool that mends it has ended, then open the relay again"
        message = f"relay {name} is locked by another process: {hint}"
        raise UnavailableError(message, UnavailableDetail(reason="locked", hint=hint))
