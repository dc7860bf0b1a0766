"""What a history came to."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What a history came to, in numbers."""

    calls: int = 0
    lives: int = 0
    crashes: int = 0
    cuts: int = 0
    met: int = 0
    opened: int = 0
    torn: int = 0
    rewritten: int = 0
    quarantined: int = 0
    unavailable: int = 0
    answered: int = 0
    shown: int = 0
    duplicates: int = 0
    sealed: int = 0
    collected: int = 0
    survived: Counter = field(default_factory=Counter)
    sources: Counter = field(default_factory=Counter)


def what_was_wrong(error: BaseException) -> str:
    """One line for what a history ended by; raises what is no finding, as an interrupt from the keyboard."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
