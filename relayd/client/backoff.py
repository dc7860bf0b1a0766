"""How long to wait before trying again: doubling, with jitter, up to a bound."""

import random
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.05
SECONDS_MAX: Final = 5.0


class Backoff:
    """Waits of one thing that is tried again; each is half to the whole of a time that doubles.

    The jitter keeps a thousand clients of a daemon that restarts from coming back in the same instant.
    """

    def __init__(
        self,
        first_seconds: float = FIRST_SECONDS,
        seconds_max: float = SECONDS_MAX,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._first = first_seconds
        self._max = seconds_max
        self._chance = chance
        self._next = first_seconds

    def next_seconds(self) -> float:
        """The wait before the next try, in seconds."""
        whole = self._next
        self._next = min(whole * 2, self._max)
        return whole * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """It worked: the next trouble begins with the shortest wait again."""
        self._next = self._first
