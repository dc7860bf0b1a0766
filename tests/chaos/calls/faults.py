"""What is done to a call, and to which: one counter across all threads.

    At("*", 137)                                       the 137th call of all
    At("fdatasync kept/journal/active.log", 3)         the third one of these
    At("fdatasync *", 1, forever=True)                 every one of these

A call's name is what it does and the file it does it to, as tests/chaos/calls/names.py writes them. A kill after call
n is a kill before call n + 1: in between nothing can be seen that is not seen at one of the two.
"""

import fnmatch
import functools
import re
from dataclasses import dataclass


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


@dataclass(frozen=True)
class At:
    """The `nth` call whose name is like `pattern`, since the fault was planted; `forever`: it and all behind."""

    pattern: str = "*"
    nth: int = 1
    forever: bool = False

    def names(self, call: str) -> bool:
        return _compiled(self.pattern).match(call) is not None

    def __str__(self) -> str:
        return f"{self.pattern}#{self.nth}{'+' * self.forever}"

    @classmethod
    def parse(cls, text: str) -> "At":
        """What `str` gave."""
        pattern, _, nth = text.rpartition("#")
        return cls(pattern, int(nth.rstrip("+")), forever=nth.endswith("+"))


@dataclass(frozen=True)
class Kill:
    """SIGKILL before the call has any effect."""

    at: At


@dataclass(frozen=True)
class Fail:
    """The call fails with `errno` and has no effect."""

    at: At
    errno: int


@dataclass(frozen=True)
class Short:
    """A write takes only its first `taken` bytes; the process is told so, or is killed before it is (`kill`)."""

    at: At
    taken: int
    kill: bool = False


@dataclass(frozen=True)
class Delay:
    """The call is made `seconds` later; other threads go on."""

    at: At
    seconds: float


Fault = Kill | Fail | Short | Delay
