"""One connection of the synchronous client: a Unix socket, and the session on it.

The socket never blocks by itself. While a request waits to be sent, answers are read: a daemon that cannot get rid of
answers stops reading, and two that only send would wait for each other.
"""

import contextlib
import select
import socket
import time
from typing import Final

from relayd.client.errors import SEND_AGAIN, NoAnswerError, cannot_reach, lost, silent
from relayd.client.session import WELCOME_SECONDS_MAX, Identities, Session, welcome_of
from relayd.protocol.errors import RelaydError
from relayd.protocol.messages import AnyResponse, Request, Welcome

RECEIVE_BYTES: Final = 256 * 1024


class Deadline:
    """A moment of the monotonic clock, or never."""

    __slots__ = ("_at", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._at = None if seconds is None else time.monotonic() + seconds

    def left_ms(self) -> int | None:
        """Milliseconds left, rounded up; None: no end. Raises NoAnswerError once it is past."""
        if self._at is None:
            return None
        left = self._at - time.monotonic()
        if left <= 0:
            raise NoAnswerError(
                f"the daemon did not answer within {self.seconds:g} s; what was asked for may be done all the same:"
                f" {SEND_AGAIN}"
            )
        return int(left * 1000) + 1

    def at_most(self, seconds: float) -> "Deadline":
        """This deadline, or one in `seconds`, whichever is first."""
        left = self.left_ms()
        return Deadline(seconds if left is None else min(seconds, left / 1000))

    def sleep(self, seconds: float) -> None:
        """Sleeps, and not past the deadline."""
        left = self.left_ms()
        time.sleep(seconds if left is None else min(seconds, left / 1000))


class Link:
    """A connection that has said hello. Everything that ends it closes it; `closed` tells."""

    def __init__(self, path: str, who: Identities, deadline: Deadline) -> None:
        self._path = path
        self._session = Session()
        self._answers: dict[int, AnyResponse] = {}
        self.closed = False
        deadline = deadline.at_most(WELCOME_SECONDS_MAX)
        seconds = deadline.seconds or WELCOME_SECONDS_MAX
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # A listener whose queue is full makes connect block; everything later waits by poll.
            self._socket.settimeout(seconds)
            self._socket.connect(path)
            self._socket.setblocking(False)
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            self._transmit(self._session.hello(who), deadline, sent=False)
            self.welcome: Welcome = welcome_of(self.receive(1, deadline))
        except OSError as error:
            self.close()
            raise cannot_reach(path, error) from error
        except NoAnswerError:
            self.close()
            raise silent(path, seconds) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection; requests in flight get no answer."""
        self.closed = True
        self._socket.close()

    def send(self, request: Request, deadline: Deadline) -> int:
        """Sends a request and gives the id that its answer will have.

        Raises ConnectionLostError, TooLargeError, or NoAnswerError, which closes the link: half a frame is out.
        """
        frame = self._session.send(request)
        self._transmit(frame, deadline, sent=True)
        return request.id

    def receive(self, request: int, deadline: Deadline) -> AnyResponse:
        """Waits for the answer to `request`.

        Raises ConnectionLostError, what the daemon ended the connection with, or NoAnswerError, after which nobody
        waits for this answer any more.
        """
        answers = self._answers
        while request not in answers:
            try:
                self._read(deadline.left_ms())
            except NoAnswerError:
                self.take_back(request)
                raise
        return answers.pop(request)

    def receive_if_there(self, request: int) -> AnyResponse | None:
        """The answer to `request`, if it has come. Waits for nothing."""
        if request not in self._answers:
            self._read(0)
        return self._answers.pop(request, None)

    def forget(self, request: int) -> None:
        """Nobody waits for this answer any more."""
        if self._answers.pop(request, None) is None:
            self._session.forget(request)

    def take_back(self, request: int) -> None:
        """Nobody waits for this answer any more, and the daemon need not go on waiting to give it."""
        if self._answers.pop(request, None) is not None or self.closed:
            return
        frame = self._session.take_back(request)
        try:
            complete = self._socket.send(frame) == len(frame)
        except OSError:
            complete = False
        if not complete:
            self.close()

    def _transmit(self, frame: bytearray, deadline: Deadline, *, sent: bool) -> None:
        """Sends a whole frame; closes the link where it cannot, because framing is lost then."""
        if self.closed:
            raise lost(self._path, "it had ended before", sent=False)
        out = memoryview(frame)
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    out = out[self._socket.send(out) :]
                if not out:
                    return
                self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
                try:
                    ready = self._poll.poll(deadline.left_ms())
                finally:
                    self._poll.modify(self._socket, select.POLLIN)
                if any(event & select.POLLIN for _, event in ready):
                    self._take_in()
        except OSError as error:
            self.close()
            raise lost(self._path, error.strerror or str(error), sent=sent) from error
        except BaseException:
            self.close()
            raise

    def _read(self, wait_ms: int | None) -> None:
        """Waits up to `wait_ms` for something to read, and takes it in."""
        if self.closed:
            raise lost(self._path, "it had ended before")
        try:
            if self._poll.poll(wait_ms):
                self._take_in()
        except OSError as error:
            self.close()
            raise lost(self._path, error.strerror or str(error)) from error
        except BaseException:
            self.close()
            raise

    def _take_in(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.close()
            raise lost(self._path, "the daemon closed it")
        for answer in self._session.receive(data):
            self._answers[answer.id] = answer.response
        if self._session.ended is not None:
            self.close()
            raise self._ending(self._session.ended)

    def _ending(self, error: RelaydError) -> RelaydError:
        """A goodbye that time lifts is a lost connection; anything else is for whoever asked."""
        return lost(self._path, error.message) if error.retryable else error
