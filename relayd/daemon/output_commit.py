"""Law 1 as one mechanism: nothing is answered before what it depends on is durable.

Every reply of a relay passes through here with the ordinal it was decided at: acceptances, refusals, duplicates and
reads alike. It leaves when that ordinal is synced, in the order it came in; where the relay fails first, it shares the
failure.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from relayd.protocol.errors import RelaydError
from relayd.protocol.messages import AnyResponse


class Answerable(Protocol):
    """A request in flight."""

    def answer(self, response: AnyResponse) -> None:
        """Answers it, unless its connection is gone."""
        ...

    def refuse(self, error: RelaydError) -> None:
        """Answers it with an error."""
        ...


Answer = AnyResponse | RelaydError | Callable[[], None]
"""What leaves: a response, a refusal, or a step that needs the ordinal to be durable."""


class _Held(NamedTuple):
    ordinal: int
    reply: Answerable
    answer: Answer


class OutputCommit:
    """Holds the replies of one relay until they may leave. `synced` is the last durable ordinal."""

    def __init__(self, synced: int) -> None:
        self.synced = synced
        self._held: deque[_Held] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, ordinal: int, reply: Answerable, answer: Answer) -> None:
        """Answers `reply` once `ordinal` is synced, which may be now."""
        if ordinal <= self.synced:
            _release(reply, answer)
        else:
            self._held.append(_Held(ordinal, reply, answer))

    def advance(self, synced: int) -> None:
        """Everything through `synced` is durable: what waited for it leaves."""
        assert synced >= self.synced, "what is durable stays durable"
        self.synced = synced
        held = self._held
        while held and held[0].ordinal <= synced:
            _, reply, answer = held.popleft()
            _release(reply, answer)

    def fail(self, error: RelaydError) -> None:
        """Nothing more will become durable here: everything held is answered with `error`."""
        held, self._held = self._held, deque()
        for _, reply, _ in held:
            reply.refuse(error)


def _release(reply: Answerable, answer: Answer) -> None:
    if isinstance(answer, RelaydError):
        reply.refuse(answer)
    elif callable(answer):
        answer()
    else:
        reply.answer(answer)
