"""A way to a real daemon that loses answers, and that can be cut and kept cut."""

import contextlib
import socket
import threading
from collections import deque
from pathlib import Path

import msgspec


class Way:
    """Listens at `path` and passes everything on to the daemon's socket.

    `lose(kind)`: the next answer of that kind does not arrive, and its connection ends. `cut`: all connections end, and
    none is made until `mend`.
    """

    def __init__(self, path: Path, daemon: Path) -> None:
        self.path = str(path)
        self._daemon = str(daemon)
        self._lock = threading.Lock()
        self._to_lose: deque[str] = deque()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._open = True
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, *kinds: str) -> None:
        self._to_lose.extend(kinds)

    @property
    def lost_all(self) -> bool:
        """Whether what was to be lost is lost."""
        return not self._to_lose

    def cut(self) -> None:
        with self._lock:
            self._open = False
            for pair in self._pairs:
                _end(*pair)

    def mend(self) -> None:
        self._open = True

    def close(self) -> None:
        self.cut()
        _end(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            daemon = socket.socket(socket.AF_UNIX)
            with self._lock:
                try:
                    if not self._open:
                        raise ConnectionRefusedError
                    daemon.connect(self._daemon)
                except OSError:
                    client.close()
                    daemon.close()
                    continue
                self._pairs.add((client, daemon))
            threading.Thread(target=self._requests, args=(client, daemon), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, daemon), daemon=True).start()

    def _requests(self, client: socket.socket, daemon: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                daemon.sendall(data)
        _end(client, daemon)

    def _answers(self, client: socket.socket, daemon: socket.socket) -> None:
        with contextlib.suppress(OSError), daemon.makefile("rb") as answers:
            while head := answers.read(4):
                frame = answers.read(int.from_bytes(head, "big"))
                if self._to_lose and msgspec.msgpack.decode(frame)["re"] == self._to_lose[0]:
                    self._to_lose.popleft()
                    break
                client.sendall(head + frame)
        _end(client, daemon)
        with self._lock:
            self._pairs.discard((client, daemon))
        client.close()
        daemon.close()


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
