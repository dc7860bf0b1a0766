"""Forks daemons: a process that has imported all of relayd once, and gives its copies a start of some milliseconds.

Each copy becomes a real daemon: its own process, sockets, files and threads, and relayd's own `main` with a command
line. It stops at the calls it is told to (notify.py) from before its first line on. With `cold` it executes
`python -m relayd` instead, as a user does: test_supervisor.py proves that both make the same calls.

Requests and answers are JSON datagrams on descriptor 3; a request to fork carries the copy's standard error, the pipe
it says its listener's number in, and the pipe it is let go by. Nothing else: no threads, no clients.
"""

import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.calls import notify

CHANNEL = 3


def main() -> None:
    """Answers until the channel is closed."""
    _import_daemon()
    channel = socket.socket(fileno=CHANNEL)
    channel.send(json.dumps({"ready": os.getpid()}).encode())
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 3)
        if not request:
            return
        said = json.loads(request)
        if "reap" in said:
            _, status = os.waitpid(said["reap"], 0)
            answer = {"status": os.waitstatus_to_exitcode(status)}
        else:
            answer = {"pid": _fork(said, channel, *descriptors)}
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(answer).encode())


def _import_daemon() -> None:
    """Everything that `serve` imports when it is needed."""
    import relayd.cli.commands  # noqa: PLC0415 - a copy of this process begins with it
    import relayd.cli.main  # noqa: PLC0415
    import relayd.cli.run  # noqa: PLC0415
    import relayd.cli.serve  # noqa: PLC0415
    import relayd.daemon.service  # noqa: F401, PLC0415

    gc.collect()
    gc.freeze()


def _fork(said: dict, channel: socket.socket, errors: int, control: int, go: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        channel.close()
        _become(said, errors, control, go)
        if said["cold"]:
            os.execve(sys.executable, [sys.executable, "-m", "relayd", *said["arguments"]], said["environment"])
        from relayd.cli.main import main as relayd  # noqa: PLC0415 - imported already

        sys.argv = ["relayd", *said["arguments"]]
        relayd()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stderr.flush()
        os._exit(status)


def _become(said: dict, errors: int, control: int, go: int) -> None:
    """Standard streams, environment and filter of the daemon; returns when it is let go."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor, standard in ((go, 0), (control, 1), (errors, 2)):
        os.dup2(descriptor, standard)
    for descriptor in (errors, control, go):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(said["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if said["calls"]:
        listener = notify.install(notify.make_filter(said["calls"], reads=said["reads"]))
        # To standard output: a call that waited would wait for ever before its listener is known.
        os.write(1, str(listener).encode())
        os.read(0, 1)
        os.close(listener)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


if __name__ == "__main__":
    main()
