"""All relays of the daemon: who is asked by which name, and which exist (docs/internals/architecture.md).

What a relay costs it costs while it is used: there is an entry only for those that are open, opening, or refused.
"""

from typing import Final

import trio

from relayd.daemon.entry import Entry, EntryRequest
from relayd.daemon.environment import Environment
from relayd.daemon.relay_files import RelayFiles
from relayd.daemon.reply import Reply
from relayd.journal.storage import Directory
from relayd.journal.trouble import storage_error
from relayd.journal.usage import measure
from relayd.protocol.errors import ShuttingDownError, StorageFailedError
from relayd.protocol.messages import RelayEntry, RelayList, Relays
from relayd.protocol.names import is_relay_name
from relayd.recovery.idle import is_idle

OPENING_AT_START: Final = 4
"""Relays that are opened side by side in the background at start."""


class Registry:
    """The relays below `relays`, the state directory's `relays/`."""

    def __init__(self, relays: Directory, environment: Environment, nursery: trio.Nursery) -> None:
        self._relays = relays
        self._environment = environment
        self._nursery = nursery
        self._files = RelayFiles(relays, environment)
        self._entries: dict[str, Entry] = {}
        self._emptied = trio.Event()
        self._stopping = False

    def submit(self, request: EntryRequest, reply: Reply) -> None:
        """Hands a request to its relay. Raises ShuttingDownError."""
        self._entry(request.relay).submit(request, reply)

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            if self._stopping:
                raise ShuttingDownError("relayd stops; connect again and send this again")
            entry = Entry(name, self._files, self._environment, self._gone)
            self._entries[name] = entry
            self._nursery.start_soon(self._run, entry)
        return entry

    async def _run(self, entry: Entry) -> None:
        """A bug in one relay's entry costs that relay's callers an answer, and nobody else."""
        try:
            await entry.run()
        except Exception:
            self._environment.log.exception("relay_entry_failed", relay=entry.name)

    def _gone(self, entry: Entry) -> None:
        if self._entries.get(entry.name) is entry:
            del self._entries[entry.name]
        if not self._entries:
            self._emptied.set()

    async def open_unfinished(self) -> None:
        """Opens, in the background, every relay that was not closed with nothing pending."""
        try:
            names = await self._environment.files.run(self._unfinished)
        except OSError as error:
            self._environment.log.warning("listing_failed", error=str(error))
            return
        slots = trio.Semaphore(OPENING_AT_START)
        for name in names:
            await slots.acquire()
            if self._stopping:
                return
            entry = self._entry(name)
            entry.open_anyway()
            self._nursery.start_soon(self._release_when_opened, entry, slots)

    async def _release_when_opened(self, entry: Entry, slots: trio.Semaphore) -> None:
        await entry.settled()
        slots.release()

    def _unfinished(self) -> list[str]:
        return [name for name in self._names() if not self._is_idle(name)]

    def _is_idle(self, name: str) -> bool:
        try:
            relay = self._relays.directory(name)
        except OSError:
            # Its opening says what is wrong with it.
            return False
        try:
            return is_idle(relay)
        except OSError:
            return False
        finally:
            relay.close()

    def _names(self) -> list[str]:
        return [
            entry.name for entry in self._relays.entries() if entry.kind == "directory" and is_relay_name(entry.name)
        ]

    async def answer_list(self, request: Relays, reply: Reply) -> None:
        """Answers with all relays; opens none."""
        try:
            sizes = await self._environment.files.run(self._sizes)
            reply.answer(RelayList(request.id, [self._listed(name, size) for name, size in sizes]))
        except OSError as error:
            reply.refuse(storage_error(error, "listing the relays"))
        except trio.Cancelled:
            reply.refuse(StorageFailedError("relayd stops; ask again"))
            raise
        finally:
            self._environment.outbox.flush()

    def _sizes(self) -> list[tuple[str, int | None]]:
        return [(name, self._size(name)) for name in self._names()]

    def _size(self, name: str) -> int | None:
        try:
            relay = self._relays.directory(name)
        except OSError:
            return None
        try:
            return measure(relay).disk_bytes
        except OSError:
            return None
        finally:
            relay.close()

    def _listed(self, name: str, size: int | None) -> RelayEntry:
        entry = self._entries.get(name)
        if entry is None or (entry.host is None and entry.refused is None):
            return RelayEntry(name, open=False, disk_bytes=size)
        if entry.host is None:
            return RelayEntry(name, open=False, execution="unavailable", disk_bytes=size)
        return RelayEntry(
            name,
            open=True,
            latest=entry.host.memory.synced.ordinal,
            execution=entry.host.memory.durable.execution,
            disk_bytes=size,
        )

    async def stop(self) -> None:
        """Closes every relay; when this returns, what was accepted is synced and all is given back."""
        self._stopping = True
        for entry in list(self._entries.values()):
            entry.stop()
        while self._entries:
            self._emptied = trio.Event()
            await self._emptied.wait()
