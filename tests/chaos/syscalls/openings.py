"""A second cut, at every call of an opening: the relay is opened by a storage that tells a model what it does.

What stood there when it began is on disk; after each change and each sync of the opening, the states that a cut may
leave then are opened in turn.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from chaos.syscalls.disk import Cut, Directory, File, Link, Rename, Unlink, Write
from chaos.syscalls.states import Bounds, State, states_of
from chaos.syscalls.trial import Bench


class Second(NamedTuple):
    """A state that a cut in an opening left: after its call `call`."""

    call: int
    state: State


def states_within_opening(bench: Bench, state: State, bounds: Bounds) -> Iterator[Second]:
    """Every state that a second cut may leave; those of one call are given when the opening is past it."""
    model = _Model(state)
    found: list[Second] = []

    def stopped() -> None:
        model.calls += 1
        states = states_of(model.root, (model.relay,), bounds, model.calls).states
        found.extend(Second(model.calls, one._replace(others=state.others)) for one in states)

    bench.try_state(state, wrap=lambda directory: LoggedDirectory(directory, model.relay, stopped))
    yield from found


class _Model:
    """The one relay of a state, all of it on disk."""

    def __init__(self, state: State) -> None:
        self.calls = 0
        self.relay = Directory()
        for path in sorted(state.directories):
            _put(self.relay, path, Directory())
        for path, content in state.files:
            _put(self.relay, path, File(content.data))
        self.root = _holding("state", _holding("relays", _holding(state.name, self.relay)))


def _holding(name: str, node: Directory) -> Directory:
    return Directory({name: node}, names={name: node})


def _put(top: Directory, path: str, node: File | Directory) -> None:
    *parents, name = path.split("/")
    for parent in parents:
        top = top.names[parent]
    top.names[name] = top.durable[name] = node


class LoggedFile:
    """A relayd File; `node` is what the model has of it."""

    def __init__(self, inner, node: File, stopped: Callable[[], None]) -> None:
        self._inner, self._node, self._stopped = inner, node, stopped
        self.identity, self.size, self.read, self.close = inner.identity, inner.size, inner.read, inner.close

    def write(self, buffers, offset: int) -> None:
        content = b"".join(buffers)
        self._inner.write(buffers, offset)
        self._change(Write(offset, content))

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)
        self._change(Cut(size))

    def _change(self, change: Write | Cut) -> None:
        self._node.change(change)
        self._stopped()

    def sync(self) -> None:
        self._inner.sync()
        self._node.synced(len(self._node.pending))
        self._stopped()


class LoggedDirectory:
    """A relayd Directory; `node` is what the model has of it."""

    def __init__(self, inner, node: Directory, stopped: Callable[[], None]) -> None:
        self._inner, self._node, self._stopped = inner, node, stopped
        self.path, self.identity = inner.path, inner.identity
        self.entries, self.stat, self.lock = inner.entries, inner.stat, inner.lock
        self.still_there, self.close = inner.still_there, inner.close

    def open(self, name: str, mode: str) -> LoggedFile:
        file = self._inner.open(name, mode)
        if mode == "create":
            self._change(Link(name, File()))
        return LoggedFile(file, self._node.names[name], self._stopped)

    def directory(self, name: str) -> "LoggedDirectory":
        return LoggedDirectory(self._inner.directory(name), self._node.names[name], self._stopped)

    def make_directory(self, name: str) -> None:
        self._inner.make_directory(name)
        self._change(Link(name, Directory()))

    def replace(self, name: str, target: str) -> None:
        self._inner.replace(name, target)
        self._change(Rename(name, target))

    def unlink(self, name: str) -> None:
        self._inner.unlink(name)
        self._change(Unlink(name))

    def sync(self) -> None:
        self._inner.sync()
        self._node.synced(len(self._node.pending))
        self._stopped()

    def _change(self, change: Link | Unlink | Rename) -> None:
        self._node.change(change)
        self._stopped()
