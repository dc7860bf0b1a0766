"""A storage that wraps any other, counts and logs each call, and plants one fault.

    for faults in each_fault(lambda n: Fail(n, errno.EIO)):          # call 1, then 2, … until a run meets no fault
        directory = faults.wrap(open_state_directory(str(fresh())))
        …
    for faults in each_fault(lambda n: Kill(n, after=True)): …       # the process dies right after call n

A killed process does nothing more: every later call of the same `Faults` raises Killed too, but `close`, which only
gives descriptors back. Killed is no Exception, so that only a test catches it. A file goes by the name it was opened
by, also after it was renamed; a directory's own calls by its name and a slash.
"""

import contextlib
import errno as errnos
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from relayd.journal.storage import Directory, Entry, File, Identity, ShortWriteError
from relayd.protocol.event import Buffer

READS = frozenset({"size", "read", "entries", "stat", "still_there", "lock", "directory", "open read"})
"""Calls that change nothing; `Faults(counted=changing)` neither counts nor fails them."""


class Killed(BaseException):
    """The process ended here."""


class Call(NamedTuple):
    """One call: `sync`, on `active.log`. Opening is `open read`, `open update`, `open create`."""

    name: str
    target: str

    def __str__(self) -> str:
        return f"{self.name} {self.target}"


def every(_: Call) -> bool:
    """Counts each call."""
    return True


def changing(call: Call) -> bool:
    """Counts calls that can change what is on disk, syncs included."""
    return call.name not in READS


def named(*names: str) -> Callable[[Call], bool]:
    """Counts calls with one of these names (`sync`) or whole texts (`sync active.log`)."""
    return lambda call: call.name in names or str(call) in names


@dataclass(frozen=True)
class Fail:
    """Counted call `n` fails with `errno`, without effect or with all of it (`after`); `forever`: all behind it too."""

    n: int
    errno: int = errnos.EIO
    after: bool = False
    forever: bool = False


@dataclass(frozen=True)
class Kill:
    """The process dies before counted call `n` has any effect, or after it had all."""

    n: int
    after: bool = False


@dataclass(frozen=True)
class Short:
    """Counted call `n`, a write, takes only `taken` bytes: the caller is told, or the process dies (`kill`).

    For use with `counted=named("write")` or `named("write active.log")`.
    """

    n: int
    taken: int
    kill: bool = False


Plan = Fail | Kill | Short | None


@dataclass
class Faults:
    """The one counter behind all that `wrap` wrapped; `log` is every call in order, counted or not."""

    plan: Plan = None
    counted: Callable[[Call], bool] = every
    log: list[Call] = field(default_factory=list)
    count: int = 0
    met: bool = False
    """The fault has happened."""
    met_at: Call | None = None
    dead: bool = False
    _met_at_call: int = 0

    def wrap(self, directory: Directory) -> Directory:
        """`directory`, and whatever is opened from it, under this fault."""
        return FaultyDirectory(self, directory, Path(directory.path).name)

    def since(self) -> list[str]:
        """The calls made after the fault, as texts; all of them where it has not happened."""
        return [str(call) for call in self.log[self._met_at_call :]]

    def names(self) -> list[str]:
        """The log as texts: `["write active.log", "sync active.log", …]`."""
        return [str(call) for call in self.log]

    def make(self, name: str, target: str, effect: Callable[[], object]) -> object:
        """Makes one call, or the fault in its place."""
        if self.dead:
            raise Killed(f"{name} {target}: the process is dead")
        call = Call(name, target)
        self.log.append(call)
        plan = self.plan
        if not self.counted(call):
            return effect()
        self.count += 1
        hit = plan is not None and (self.count == plan.n or (isinstance(plan, Fail) and plan.forever and self.met))
        if plan is None or not hit or isinstance(plan, Short):
            return effect()
        self._meet(call)
        if plan.after:
            with contextlib.suppress(OSError):
                result = effect()
                if isinstance(result, FaultyFile | FaultyDirectory):
                    result.close()
        if isinstance(plan, Kill):
            self.dead = True
            raise Killed(str(call))
        raise OSError(plan.errno, os.strerror(plan.errno), target)

    def short(self) -> Short | None:
        """The plan for the write being made, where it is this one that is cut short."""
        return self.plan if isinstance(self.plan, Short) and self.count == self.plan.n else None

    def _meet(self, call: Call) -> None:
        self.met = True
        self.met_at = self.met_at or call
        self._met_at_call = self._met_at_call or len(self.log)


class FaultyFile:
    """A File under `faults`; `name` is the one it was opened by."""

    def __init__(self, faults: Faults, inner: File, name: str) -> None:
        self._faults, self._inner, self._name = faults, inner, name

    @property
    def identity(self) -> Identity:
        return self._inner.identity

    def size(self) -> int:
        return self._faults.make("size", self._name, self._inner.size)

    def read(self, size: int, offset: int) -> bytes:
        return self._faults.make("read", self._name, lambda: self._inner.read(size, offset))

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._faults.make("write", self._name, lambda: self._write(buffers, offset))

    def _write(self, buffers: Sequence[Buffer], offset: int) -> None:
        short = self._faults.short()
        wanted = sum(map(len, buffers))
        if short is None or not self._faults.counted(self._faults.log[-1]) or short.taken >= wanted:
            self._inner.write(buffers, offset)
            return
        self._faults._meet(self._faults.log[-1])
        if short.taken:
            self._inner.write((b"".join(buffers)[: short.taken],), offset)
        if short.kill:
            self._faults.dead = True
            raise Killed(f"torn after {short.taken} of {wanted} bytes")
        raise ShortWriteError(short.taken, wanted)

    def sync(self) -> None:
        self._faults.make("sync", self._name, self._inner.sync)

    def truncate(self, size: int) -> None:
        self._faults.make("truncate", self._name, lambda: self._inner.truncate(size))

    def close(self) -> None:
        self._inner.close()


class FaultyDirectory:
    """A Directory under `faults`; `name` is its own, the top one's is the last component of its path."""

    def __init__(self, faults: Faults, inner: Directory, name: str) -> None:
        self._faults, self._inner, self._name = faults, inner, name

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def identity(self) -> Identity:
        return self._inner.identity

    def entries(self) -> list[Entry]:
        return self._faults.make("entries", self._name, self._inner.entries)

    def open(self, name: str, mode: Literal["read", "update", "create"]) -> File:
        opening = lambda: FaultyFile(self._faults, self._inner.open(name, mode), name)  # noqa: E731
        return self._faults.make(f"open {mode}", name, opening)

    def directory(self, name: str) -> Directory:
        opening = lambda: FaultyDirectory(self._faults, self._inner.directory(name), name)  # noqa: E731
        return self._faults.make("directory", name, opening)

    def make_directory(self, name: str) -> None:
        self._faults.make("make_directory", name, lambda: self._inner.make_directory(name))

    def stat(self, name: str) -> tuple[Identity, int] | None:
        return self._faults.make("stat", name, lambda: self._inner.stat(name))

    def replace(self, name: str, target: str) -> None:
        self._faults.make("replace", f"{name} {target}", lambda: self._inner.replace(name, target))

    def unlink(self, name: str) -> None:
        self._faults.make("unlink", name, lambda: self._inner.unlink(name))

    def remove_tree(self, name: str) -> None:
        self._faults.make("remove_tree", name, lambda: self._inner.remove_tree(name))

    def sync(self) -> None:
        self._faults.make("sync", f"{self._name}/", self._inner.sync)

    def lock(self) -> bool:
        return self._faults.make("lock", f"{self._name}/", self._inner.lock)

    def still_there(self) -> bool:
        return self._faults.make("still_there", f"{self._name}/", self._inner.still_there)

    def close(self) -> None:
        self._inner.close()


def each_fault(
    plan: Callable[[int], Fail | Kill | Short], counted: Callable[[Call], bool] = every, first: int = 1
) -> Iterator[Faults]:
    """A Faults for call 1, 2, 3 …; the last one given is the first that no run met, its run is a whole one."""
    n = first
    while True:
        faults = Faults(plan(n), counted)
        yield faults
        if not faults.met:
            return
        n += 1
