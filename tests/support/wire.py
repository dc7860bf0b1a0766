"""A client of the socket that is not relayd's own: frames by struct, maps by MessagePack, one thing after the other."""

import hashlib
import itertools
import socket
import struct
from typing import NamedTuple, Self

import msgspec

GENESIS = [0, bytes(16)]


class Stored(NamedTuple):
    """One record of a page, proven: `body` is the stored bytes, `fields` what is in them."""

    ordinal: int
    digest: bytes
    body: bytes
    fields: list

    @property
    def cursor(self) -> list:
        """As the wire has it."""
        return [self.ordinal, self.digest]

    @property
    def kind(self) -> str:
        return self.fields[1]

    @property
    def data(self) -> object:
        return self.fields[2] if len(self.fields) > 2 else None

    @property
    def command_id(self) -> str | None:
        return self.fields[3] if len(self.fields) > 3 else None

    @property
    def producer(self) -> list | None:
        return self.fields[4] if len(self.fields) > 4 else None


def frame(message: object) -> bytes:
    """One frame around anything."""
    content = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return struct.pack(">I", len(content)) + content


def cut_frames(buffer: bytearray) -> list[dict]:
    """Takes the whole frames out of `buffer`."""
    found = []
    while len(buffer) >= 4:
        length = struct.unpack_from(">I", buffer)[0]
        if len(buffer) < 4 + length:
            break
        found.append(msgspec.msgpack.decode(bytes(buffer[4 : 4 + length])))
        del buffer[: 4 + length]
    return found


def records(page: bytes) -> list[Stored]:
    """The records of a page; fails the test where a length or a digest is not as the layout says."""
    found, at = [], 0
    while at < len(page):
        length, ordinal = struct.unpack_from("<IQ", page, at)
        digest, body = page[at + 12 : at + 28], page[at + 28 : at + 28 + length]
        assert len(body) == length
        said = hashlib.blake2b(struct.pack("<Q", ordinal) + body, digest_size=16, person=b"relayd.event.v1").digest()
        assert said == digest, f"ordinal {ordinal} has another digest"
        found.append(Stored(ordinal, digest, body, msgspec.msgpack.decode(body)))
        at += 28 + length
    return found


class Wire:
    """One connection. `send` gives the request's id; `receive` the next answer, whichever request it is for."""

    def __init__(self, path: str, *, hello: bool = True, timeout: float = 20.0, client: str = "test") -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self._ids = itertools.count(1)
        self._buffer = bytearray()
        self._answers: list[dict] = []
        try:
            self.socket.connect(str(path))
            self.welcome = self.call("hello", versions=[1], client=client) if hello else None
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, op: str, /, **fields: object) -> int:
        """Sends one request."""
        request = fields.pop("id", None) or next(self._ids)
        self.socket.sendall(frame({"op": op, "id": request, **fields}))
        return request

    def send_many(self, requests: list[dict]) -> list[int]:
        """Sends requests with one call."""
        numbered = [{"id": next(self._ids), **request} for request in requests]
        self.socket.sendall(b"".join(map(frame, numbered)))
        return [request["id"] for request in numbered]

    def receive(self) -> dict:
        """The next answer. Raises ConnectionError where the daemon has closed the connection."""
        while not self._answers:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the daemon closed the connection")
            self._buffer += data
            self._answers += cut_frames(self._buffer)
        return self._answers.pop(0)

    def receive_all(self) -> list[dict]:
        """Everything up to the end of the connection."""
        found = []
        try:
            while True:
                found.append(self.receive())
        except ConnectionError:
            return found

    def answer(self, request: int) -> dict:
        """The answer to one request; what comes before it stays for `receive`."""
        passed = []
        try:
            while True:
                response = self.receive()
                if response["id"] == request:
                    return response
                passed.append(response)
        finally:
            self._answers[:0] = passed

    def call(self, op: str, /, **fields: object) -> dict:
        """Sends a request and waits for its answer."""
        return self.answer(self.send(op, **fields))

    def done(self, op: str, /, **fields: object) -> dict:
        """The same, for a request that has to succeed."""
        response = self.call(op, **fields)
        assert response["re"] != "error", response
        return response

    def read_all(self, relay: str, after: object = "earliest", **fields: object) -> list[Stored]:
        """Every record from `after` to the latest."""
        found = []
        while True:
            page = self.done("attach", relay=relay, after=after, **fields)
            found += records(page["records"])
            after = page["through"]
            if after[0] >= page["latest"][0]:
                return found
