"""The life of a daemon: lock, leftovers, socket, serving, drain (docs/internals/architecture.md)."""

import gc
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import trio

from relayd.daemon.allocator import keep_memory_flat
from relayd.daemon.environment import Environment, FileWork
from relayd.daemon.listener import Listener, listen
from relayd.daemon.logs import LogFile, make_log
from relayd.daemon.registry import Registry
from relayd.daemon.server import Server
from relayd.daemon.settings import Settings, reload_settings
from relayd.daemon.state_lock import StateDirectory, lock_state
from relayd.daemon.supervisor import tell_supervisor
from relayd.daemon.tails import TailBudget
from relayd.journal.pages import make_page_cache
from relayd.protocol.errors import RelaydError
from relayd.recovery.making import clear_leftovers
from relayd.version import __version__

CLEAN: Final = 0
SECOND_SIGNAL: Final = 130
STATE_GONE: Final = 74
"""sysexits' EX_IOERR: the state directory itself has failed."""


def run(settings: Settings, *, reload: Callable[[], Settings]) -> int:
    """Runs a daemon until it is told to stop; the exit status. `reload` reads the settings again, at SIGHUP.

    Raises CannotStartError before anything is served.
    """
    keep_memory_flat()
    log_file = LogFile(settings.log_file)
    state = lock_state(settings.state, settings.socket)
    try:
        clear_leftovers(state.relays)
        listener = listen(settings.socket, settings.socket_mode_bits)
        _raise_descriptor_limit()
        return trio.run(_Daemon(settings, reload, log_file, state, listener).run)
    finally:
        state.close()


class _Daemon:
    def __init__(
        self,
        settings: Settings,
        reload: Callable[[], Settings],
        log_file: LogFile,
        state: StateDirectory,
        listener: Listener,
    ) -> None:
        self._reload = reload
        self._log_file = log_file
        self._state = state
        self._listener = listener
        self._environment = Environment(
            settings,
            make_log(settings, log_file),
            make_page_cache(settings.page_cache_bytes),
            FileWork(settings.file_threads),
            TailBudget(settings.tails_bytes),
        )
        self._exit_status = CLEAN

    async def run(self) -> int:
        environment = self._environment
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(environment.deadlines.run, environment.outbox.flush)
                registry = Registry(self._state.relays, environment, nursery)
                async with trio.open_nursery() as serving:
                    server = Server(environment, registry, serving)
                    serving.start_soon(
                        self._listener.accept_all,
                        server.accepted,
                        server.turned_away,
                        self._state.reserve,
                        environment.log,
                    )
                    serving.start_soon(registry.open_unfinished)
                    environment.log.info(
                        "serving", version=__version__, socket=self._listener.path, state=self._state.state.path
                    )
                    # What was allocated so far stays: the collector need not look at it again.
                    gc.freeze()
                    tell_supervisor("READY=1")
                    await self._until_told_to_stop(signals)
                    environment.log.info("stopping")
                    tell_supervisor("STOPPING=1")
                    serving.start_soon(self._second_signal, signals, nursery)
                    await self._drain(server, registry)
                    serving.cancel_scope.cancel()
                nursery.cancel_scope.cancel()
        environment.log.info("stopped", exit_status=self._exit_status)
        return self._exit_status

    async def _until_told_to_stop(self, signals: AsyncIterator[int]) -> None:
        """By a signal, or by the state directory's end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_state_gone, nursery.cancel_scope)
            async for number in signals:
                if number != signal.SIGHUP:
                    nursery.cancel_scope.cancel()
                    return
                self._reload_settings()

    async def _until_state_gone(self, told_to_stop: trio.CancelScope) -> None:
        await self._environment.state_gone.wait()
        self._environment.log.critical("state_directory_gone", state=self._state.state.path, exit_status=STATE_GONE)
        self._exit_status = STATE_GONE
        told_to_stop.cancel()

    def _reload_settings(self) -> None:
        """SIGHUP: what may change in a running daemon changes, and the log goes to its file's present name."""
        environment = self._environment
        try:
            taken, needing_restart = reload_settings(environment.settings, self._reload())
            self._log_file.reopen(taken.log_file)
        except RelaydError as error:
            environment.log.warning("reload_refused", error=str(error))
            return
        environment.settings = taken
        self._log_file.set_level(taken.log_level)
        environment.log.info("reloaded", needing_restart=needing_restart)

    async def _second_signal(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            if number != signal.SIGHUP:
                self._exit_status = SECOND_SIGNAL
                nursery.cancel_scope.cancel()

    async def _drain(self, server: Server, registry: Registry) -> None:
        """Stops accepting, lets what was accepted become durable and be answered, then closes all relays."""
        self._listener.close()
        with trio.move_on_after(self._environment.settings.drain) as scope:
            await registry.stop()
            await server.finish()
        if scope.cancelled_caught:
            self._environment.log.warning("drain_cut_short", seconds=self._environment.settings.drain)
        server.close()


def _raise_descriptor_limit() -> None:
    """Takes as many descriptors as the system lets it; connections are bounded by their own setting."""
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
