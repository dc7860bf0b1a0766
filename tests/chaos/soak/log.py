"""The complete history of a soak as JSON lines: every request, every answer with the records of its page, every fault.

    {"at": 1.25, "who": "producer-1", "on": 3, "sent": {"op": "record", "id": 2, …}}
    {"at": 1.27, "who": "producer-1", "on": 3, "got": {"re": "recorded", "id": 2, …}}
    {"at": 4.5, "fault": "killed", "until": 5.1, "what": "…"}
    {"at": 9.5, "wrong": "…"}

`at`: seconds since the beginning. `on` numbers the connections of all clients. Bytes are base64. A request's line
stands before its bytes leave, an answer's behind those of all answers before it on its connection.
"""

import base64
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
from support.wire import Wire


class Log:
    """Written by many threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._encode = msgspec.json.Encoder().encode
        self.connections = itertools.count(1)
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def now(self) -> float:
        return round(time.monotonic() - self._began, 4)

    def write(self, **line: object) -> None:
        with self._lock:
            self._file.write(self._encode({"at": self.now, **line}) + b"\n")

    def found_wrong(self, what: str) -> None:
        """Something that may never be, seen while it happened."""
        self.wrong.append(what)
        self.write(wrong=what)

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> Iterator[dict]:
    """The lines, in the order they were written."""
    decode = msgspec.json.Decoder().decode
    with path.open("rb") as file:
        for line in file:
            yield decode(line)


class LoggedWire(Wire):
    """A connection whose history is kept. `pause` is called before each request."""

    def __init__(self, path: str, log: Log, who: str, pause=None, **more: object) -> None:
        self._log = log
        self._who = who
        self._pause = pause
        self.number = next(log.connections)
        self._heard: set[int] = set()
        super().__init__(path, client=who, **more)

    def send(self, op: str, /, **fields: object) -> int:
        if self._pause is not None:
            self._pause()
        request = fields.pop("id", None) or next(self._ids)
        self._log.write(who=self._who, on=self.number, sent={"op": op, "id": request, **fields})
        return super().send(op, id=request, **fields)

    def receive(self) -> dict:
        response = super().receive()
        # Answers that were passed over are received once more.
        if response["id"] not in self._heard:
            self._heard.add(response["id"])
            self._log.write(who=self._who, on=self.number, got=response)
        return response


def as_bytes(text: str) -> bytes:
    return base64.b64decode(text)


def as_cursor(cursor: list) -> list:
    """A cursor of a line, as the wire had it."""
    return [cursor[0], None if cursor[1] is None else as_bytes(cursor[1])]
