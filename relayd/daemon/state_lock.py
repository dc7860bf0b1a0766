"""One daemon per state directory: a lock on the directory itself (docs/reference/journal.md, "Layout").

The lock is on the directory's own descriptor, so that another path, a link or a bind mount leads to the same lock.
`holder` is for messages alone: who has it is decided by the lock.
"""

import contextlib
import os
from typing import Final, NamedTuple

import msgspec

from relayd.daemon.starting import AlreadyRunningError, CannotStartError
from relayd.journal.active import open_fresh
from relayd.journal.real_storage import RealDirectory, Reserve, open_state_directory
from relayd.journal.storage import Directory

RELAYS: Final = "relays"
HOLDER: Final = "holder"
_HOLDER_BYTES_MAX: Final = 4096


class Holder(msgspec.Struct):
    """Who holds a state directory."""

    pid: int
    socket: str


class StateDirectory(NamedTuple):
    """The locked state directory and its `relays/`; both are closed when the daemon ends.

    `reserve`: the descriptors held back for storage.
    """

    state: Directory
    relays: Directory
    reserve: Reserve

    def close(self) -> None:
        """Gives the lock back."""
        with contextlib.suppress(OSError):
            self.state.unlink(HOLDER)
        self.relays.close()
        self.state.close()


def lock_state(path: str, socket: str) -> StateDirectory:
    """Opens the state directory, made where it is missing, and takes its lock. Raises CannotStartError."""
    try:
        state = open_state_directory(path, make=True)
    except OSError as error:
        message = f"the state directory {path} cannot be used: {error.strerror or error}; see to it or name another"
        raise CannotStartError(message) from error
    try:
        _refuse_shared(state)
        _lock(state, path)
        _write_holder(state, Holder(os.getpid(), socket))
        return StateDirectory(state, _relays(state), state.reserve)
    except OSError as error:
        state.close()
        message = f"the state directory {path} cannot be used: {error.strerror or error}; see to it or name another"
        raise CannotStartError(message) from error
    except BaseException:
        state.close()
        raise


def _refuse_shared(state: RealDirectory) -> None:
    if state.is_writable_by_others:
        raise CannotStartError(
            f"others can write in the state directory {state.path}, and could put theirs in place of what is in it:"
            " name one of your own with --state, or, where this one is yours alone, take their right to write away"
        )


def _lock(state: Directory, path: str) -> None:
    if not state.lock():
        raise AlreadyRunningError(_who(state, path))


def _relays(state: Directory) -> Directory:
    """Opens `relays/`, made where it is missing; its name is on disk when this returns. Raises OSError."""
    if state.stat(RELAYS) is None:
        state.make_directory(RELAYS)
    # Synced also where it is there: an earlier process may have died, or failed, between making and syncing it.
    state.sync()
    return state.directory(RELAYS)


def _write_holder(state: Directory, holder: Holder) -> None:
    with contextlib.closing(open_fresh(state, HOLDER)) as file:
        file.write((msgspec.json.encode(holder),), 0)


def _who(state: Directory, path: str) -> str:
    hint = "stop it first, or name another state directory"
    try:
        with contextlib.closing(state.open(HOLDER, "read")) as file:
            holder = msgspec.json.decode(file.read(_HOLDER_BYTES_MAX, 0), type=Holder)
    except (OSError, msgspec.DecodeError):
        return f"another relayd holds the state directory {path}; {hint}"
    return f"relayd with pid {holder.pid}, serving {holder.socket}, holds the state directory {path}; {hint}"
