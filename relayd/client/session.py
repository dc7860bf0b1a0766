"""One connection's requests and answers, without I/O (docs/reference/protocol.md, "Frames" and "Hello").

Both clients put bytes in and take answers out. A session lives as long as its connection.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from relayd.client.errors import ProtocolViolationError
from relayd.protocol.errors import (
    ErrorResponse,
    InternalError,
    InvalidRequestError,
    RelaydError,
    TooLargeError,
    from_wire,
)
from relayd.protocol.frame import FrameBuffer, encode_frame
from relayd.protocol.limits import REQUEST_ID_MAX
from relayd.protocol.messages import AnyResponse, CancelRequest, Hello, Request, Welcome
from relayd.protocol.parse import parse_response
from relayd.version import __version__

PROTOCOL_VERSIONS: Final = (1,)
WELCOME_SECONDS_MAX: Final = 10.0
"""How long a daemon may take to answer hello; a guess, as long as it waits for hello itself."""


class Identities(NamedTuple):
    """Who a connection speaks for; what is None is not said."""

    client: str
    asker: str | None = None
    author: str | None = None
    worker: str | None = None


def identities(
    client: str | None = None,
    asker: str | None = None,
    author: str | None = None,
    worker: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Identities:
    """What is given, else what `RELAYD_CLIENT`, `RELAYD_ASKER`, `RELAYD_AUTHOR` and `RELAYD_WORKER` say."""
    environ = os.environ if environ is None else environ
    return Identities(
        client or environ.get("RELAYD_CLIENT") or _own_name(),
        asker or environ.get("RELAYD_ASKER") or None,
        author or environ.get("RELAYD_AUTHOR") or None,
        worker or environ.get("RELAYD_WORKER") or None,
    )


def _own_name() -> str:
    program = PurePath(sys.argv[0]).name if sys.argv else ""
    program = "".join(character for character in program if character.isprintable())[:64].strip()
    return f"{program or 'python'}[{os.getpid()}] relayd/{__version__}"


class Answer(NamedTuple):
    """What answers the request `id`."""

    id: int
    response: AnyResponse


class Session:
    """Gives requests their ids and takes answers apart.

    A request is in flight from `send` until its answer, also when nobody waits for it any more (`forget`). `ended` is
    set once the connection is of no more use: the daemon's own error where it says that it is over, or
    ProtocolViolationError for what no daemon sends.
    """

    def __init__(self) -> None:
        self._frames = FrameBuffer()
        self._last_id = 0
        self._in_flight: set[int] = set()
        self._forgotten: set[int] = set()
        self.ended: RelaydError | None = None

    @property
    def in_flight(self) -> int:
        """Requests that have no answer yet."""
        return len(self._in_flight)

    def hello(self, who: Identities) -> bytearray:
        """The frame that a connection begins with."""
        hello = Hello(1, list(PROTOCOL_VERSIONS), who.client, who.asker, who.author, who.worker)
        return self.send(hello)

    def send(self, request: Request) -> bytearray:
        """The request's frame; its `id` is set to a fresh one. Raises TooLargeError; then nothing is in flight."""
        while True:
            self._last_id = self._last_id % REQUEST_ID_MAX + 1
            if self._last_id not in self._in_flight:
                break
        request.id = self._last_id
        frame = encode_frame(request)
        self._in_flight.add(request.id)
        return frame

    def take_back(self, request: int) -> bytearray:
        """The frame that takes back a request that waits; nobody waits for either answer any more."""
        self.forget(request)
        taking_back = CancelRequest(0, request)
        frame = self.send(taking_back)
        self.forget(taking_back.id)
        return frame

    def forget(self, request: int) -> None:
        """Nobody waits for this answer any more; it is dropped when it comes."""
        if request in self._in_flight:
            self._forgotten.add(request)

    def receive(self, data: bytes | bytearray | memoryview) -> list[Answer]:
        """The answers that `data` completes, in the order they came.

        Raises nothing; where it sets `ended`, the answers are still good, and the connection is of no more use.
        """
        answers: list[Answer] = []
        if self.ended is not None:
            return answers
        try:
            for frame in self._frames.feed(data):
                response = parse_response(frame)
                if response.id not in self._in_flight:
                    self.ended = _ending(response)
                    break
                self._in_flight.discard(response.id)
                if response.id in self._forgotten:
                    self._forgotten.discard(response.id)
                else:
                    answers.append(Answer(response.id, response))
        except (InvalidRequestError, TooLargeError, InternalError) as error:
            self.ended = ProtocolViolationError(f"{error.message}; is this a relayd daemon's socket?")
        return answers


def _ending(response: AnyResponse) -> RelaydError:
    """Under id 0 the daemon says why the connection is over; any other id was never asked."""
    if response.id == 0 and isinstance(response, ErrorResponse):
        return from_wire(response)
    return ProtocolViolationError(f"the daemon answered request {response.id}, which nobody asked")


def welcome_of(response: AnyResponse) -> Welcome:
    """The welcome that answers hello. Raises the daemon's refusal."""
    if isinstance(response, ErrorResponse):
        raise from_wire(response)
    if not isinstance(response, Welcome) or response.version not in PROTOCOL_VERSIONS:
        raise ProtocolViolationError("the daemon did not answer hello with a welcome of this protocol")
    return response
