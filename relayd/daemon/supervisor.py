"""Tells who supervises the daemon how it stands: sd_notify's datagrams (docs/guides/operating.md, "Signals").

There is nobody to tell unless `NOTIFY_SOCKET` names a socket. One who does not listen stops nobody's work.
"""

import os
import socket
from contextlib import suppress
from typing import Final, Literal

_ABSTRACT: Final = "@"

State = Literal["READY=1", "STOPPING=1"]


def tell_supervisor(state: State) -> None:
    """Sends `state` to the socket in `NOTIFY_SOCKET`, a path or an abstract name, without waiting for anybody."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", _ABSTRACT)):
        return
    address = "\0" + path[1:] if path.startswith(_ABSTRACT) else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as telling:
        telling.sendto(state.encode(), address)
