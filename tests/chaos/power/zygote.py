"""A process that has loaded all of relayd, and forks daemons: one serves some 40 ms after it was asked for.

tests/chaos/power/forked.py starts it and asks. What it is asked, each with two descriptors: a daemon's arguments,
environment, and the file that its shim obeys. The first descriptor becomes the daemon's standard error, the second
gets the daemon's process id, and in the end its exit status as waitpid has it.
"""

import ctypes
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import relayd
from relayd.cli.main import main as relayd_main

_DIE_WITH_PARENT = 1


def main() -> None:
    for module in pkgutil.walk_packages(relayd.__path__, "relayd."):
        if module.name != "relayd.__main__":
            importlib.import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    asked = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, 1 << 16, 2)
        if not message:
            return
        if os.fork() == 0:
            asked.close()
            _keep(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(wanted: dict, log: int, told: int) -> NoReturn:
    """Tells how the daemon ends, which its parent alone can know."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with_parent()
    daemon = os.fork()
    if daemon == 0:
        os.close(told)
        _die_with_parent()
        _be_daemon(wanted, log)
    os.close(log)
    os.write(told, f"{daemon}\n".encode())
    _, status = os.waitpid(daemon, 0)
    os.write(told, f"{status}\n".encode())
    os._exit(0)


def _be_daemon(wanted: dict, log: int) -> NoReturn:
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    if ctypes.CDLL(None).power_attach(wanted["control"].encode()) != 0:
        os._exit(99)
    sys.argv = ["relayd", *wanted["arguments"]]
    status: object = 1
    try:
        relayd_main()
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 0 if status is None else 1)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


if __name__ == "__main__":
    main()
