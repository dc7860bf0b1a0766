"""Out of descriptors, a client that connected was neither served nor refused: it waited in the queue without an end."""

import shutil
import socket
from contextlib import ExitStack

import pytest
from support.daemon import Daemon, short_place

LAYER = "real process in a hostile environment"
WRONG = "A client that came when the daemon had no descriptor left was left waiting in place of being refused."


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="limits descriptors: needs prlimit")
def test_a_client_for_which_there_is_no_descriptor_is_told_so():
    with short_place() as place, ExitStack() as stack:
        daemon = Daemon(place)
        stack.callback(daemon.end)
        daemon.prefix = ["prlimit", "--nofile=64:64"]
        daemon.start()
        for _ in range(80):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(daemon.socket))
        with daemon.connect(hello=False, timeout=5) as client:
            answer = client.receive()
        assert (answer["id"], answer["code"], answer["detail"]) == (0, "overloaded", {"bound": "descriptors"})
