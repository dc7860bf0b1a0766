"""A bounded memory of what was read last, shared by readers in many threads."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecentlyUsed(Generic[Value]):
    """Keeps what was used last, up to `bytes_max`; something larger than that is not kept at all. Thread-safe."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """The bytes held now, as `put` was told them."""
        return self._bytes

    def get(self, key: Hashable) -> Value | None:
        """What was put under `key`, if it is still here."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keeps `value` of `size` bytes, and lets go of what was used longest ago."""
        if size > self._bytes_max:
            return
        with self._lock:
            before = self._kept.pop(key, None)
            self._bytes += size - (0 if before is None else before[1])
            self._kept[key] = (value, size)
            while self._bytes > self._bytes_max:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone
