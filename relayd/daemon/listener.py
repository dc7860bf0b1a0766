"""The listening socket: how its path is taken, and how clients are accepted (docs/reference/protocol.md, "Frames").

The state directory's lock is held already. A path is taken over only from a socket at which nobody answers, and removed
at the end only while it is still ours.
"""

import contextlib
import errno
import math
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
from structlog.typing import FilteringBoundLogger

from relayd.daemon.settings import SOCKET_PATH_BYTES_MAX
from relayd.daemon.starting import AlreadyRunningError, CannotStartError
from relayd.journal.real_storage import Reserve

BACKLOG: Final = 1024
_OUT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_SECONDS: Final = 0.1
_LOG_SECONDS: Final = 1.0


class Listener:
    """A bound, listening socket and the file it stands at."""

    def __init__(self, listening: socket.socket, path: str, identity: tuple[int, int]) -> None:
        self.path = path
        self._socket = listening
        self._identity = identity

    async def accept_all(
        self,
        accepted: Callable[[socket.socket], None],
        turned_away: Callable[[socket.socket], None],
        reserve: Reserve,
        log: FilteringBoundLogger,
    ) -> None:
        """Hands every client that connects to `accepted`, until `close`.

        Out of descriptors, it goes to `turned_away`, which closes it: storage lends one for that moment. Where that
        has none either, it waits.
        """
        said_at = -math.inf
        while True:
            try:
                await trio.lowlevel.wait_readable(self._socket)
                connected, _ = self._socket.accept()
            except trio.ClosedResourceError:
                return
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                continue
            except OSError as error:
                if error.errno not in _OUT_OF:
                    raise
                now = trio.current_time()
                if now >= said_at + _LOG_SECONDS:
                    said_at = now
                    log.warning("accept_failed", error=error.strerror)
                if not self._turn_away(turned_away, reserve):
                    await trio.sleep(_PAUSE_SECONDS)
                continue
            accepted(connected)

    def _turn_away(self, turned_away: Callable[[socket.socket], None], reserve: Reserve) -> bool:
        """Accepts one client with a descriptor of the reserve; False where none is left there."""
        try:
            connected, _ = reserve.opening(self._socket.accept)
            turned_away(connected)
        except OSError:
            return False
        finally:
            reserve.refill()
        return True

    def close(self) -> None:
        """Stops listening, and removes the socket's file where it is still this one."""
        if self._socket.fileno() < 0:
            return
        trio.lowlevel.notify_closing(self._socket)
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                Path(self.path).unlink()
        self._socket.close()


def listen(path: str, mode: int) -> Listener:
    """Binds the socket at `path` with `mode`. Raises CannotStartError."""
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise CannotStartError(
            f"the socket's path has {len(os.fsencode(path))} bytes; the system takes at most {SOCKET_PATH_BYTES_MAX}:"
            " choose a shorter one"
        )
    try:
        _prepare_directory(Path(path).parent)
        _clear_path(path)
        return _bind(path, mode)
    except OSError as error:
        message = (
            f"the socket {path} cannot be made: {error.strerror or error}; see to it or name another with --socket"
        )
        raise CannotStartError(message) from error


def _prepare_directory(directory: Path) -> None:
    """Makes the directory where it is missing; refuses one in which others could put their own socket in our place."""
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True)
    found = directory.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise CannotStartError(
            f"{directory}, where the socket would be, belongs to user {found.st_uid}, who could put theirs in its"
            " place: name a socket in a directory of your own with --socket"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        own = f" (`chmod go-w {directory}`, if it is yours alone)" if not found.st_mode & stat.S_ISVTX else ""
        raise CannotStartError(
            f"others can write in {directory}, where the socket would be, and could put theirs in its place:"
            f" name a socket in a directory of your own with --socket{own}"
        )


def _clear_path(path: str) -> None:
    """Removes a socket at which nobody answers. Raises CannotStartError for anything else that is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotStartError(f"{path} is there and is no socket; move it away, or name another socket with --socket")
    if _somebody_answers(path):
        raise AlreadyRunningError(f"another server answers at {path}; stop it, or name another socket with --socket")
    Path(path).unlink()


def _somebody_answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            # Full of clients, slow, or not ours to ask: somebody is there.
            return True
    return True


def _bind(path: str, mode: int) -> Listener:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # The socket never exists with a wider mode than asked for.
        before = os.umask(0o777 & ~mode)
        try:
            listening.bind(path)
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
        return Listener(listening, path, _identity(path))
    except BaseException:
        listening.close()
        raise


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
