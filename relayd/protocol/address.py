"""Where a daemon listens when nobody says otherwise (docs/reference/settings.md, "socket")."""

import os
from collections.abc import Mapping
from typing import Final

SOCKET_VARIABLE: Final = "RELAYD_SOCKET"
SYSTEM_SOCKET: Final = "/run/relayd/relayd.sock"


def default_socket(environ: Mapping[str, str] | None = None) -> str:
    """The path that clients and the daemon both begin with.

    `RELAYD_SOCKET`; else `relayd/relayd.sock` in the user's runtime directory; else that of the system's daemon. A
    variable that is set to nothing counts as not set.
    """
    environ = os.environ if environ is None else environ
    if socket := environ.get(SOCKET_VARIABLE):
        return socket
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return f"{runtime.rstrip('/')}/relayd/relayd.sock"
    return SYSTEM_SOCKET
