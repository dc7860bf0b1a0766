"""A supervisor's ear: a hand-made NOTIFY_SOCKET."""

import socket
from pathlib import Path
from typing import Self

from support.daemon import Daemon


class NotifySocket:
    """What the daemon says to `address`: a path, or an abstract name where it begins with @."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        if not self.address.startswith("@"):
            Path(self.address).unlink()

    def supervise(self, daemon: Daemon) -> Daemon:
        daemon.prefix = ["env", f"NOTIFY_SOCKET={self.address}", *daemon.prefix]
        return daemon

    def hear(self) -> str:
        """The next thing said."""
        return self._socket.recv(4096).decode()

    def heard_nothing_more(self) -> bool:
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(4096)
        except BlockingIOError:
            return True
