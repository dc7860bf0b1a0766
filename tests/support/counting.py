"""A storage that counts what is read of files."""

from typing import Literal

from relayd.journal.storage import Directory, File


class Counting:
    """A Directory that counts the files opened and the bytes read, by name; all else is the inner one's."""

    def __init__(self, inner: Directory) -> None:
        self._inner = inner
        self.opened: list[str] = []
        self.read: dict[str, int] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    @property
    def bytes_read(self) -> int:
        return sum(self.read.values())

    def reset(self) -> None:
        self.opened.clear()
        self.read.clear()

    def open(self, name: str, mode: Literal["read", "update", "create"]) -> "CountingFile":
        self.opened.append(name)
        return CountingFile(self, self._inner.open(name, mode), name)


class CountingFile:
    """A File whose reads are counted."""

    def __init__(self, counting: Counting, inner: File, name: str) -> None:
        self._counting, self._inner, self._name = counting, inner, name

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def read(self, size: int, offset: int) -> bytes:
        data = self._inner.read(size, offset)
        self._counting.read[self._name] = self._counting.read.get(self._name, 0) + len(data)
        return data
