"""Descriptors exhausted by clients: a reserve for storage is kept, new ones are refused, it recovers."""

import contextlib
import shutil
import socket
import time

import pytest
from chaos.environment.account import Account, settle, trouble
from support.daemon import until

pytestmark = pytest.mark.skipif(shutil.which("prlimit") is None, reason="limits descriptors: needs prlimit")


def refused(daemon, stack):
    """What a client more is told. What storage has closed meanwhile, others use up first; they say nothing and stay."""
    while True:
        client = stack.enter_context(daemon.connect(hello=False, timeout=0.5))
        try:
            return client.receive()
        except TimeoutError:
            continue


@pytest.mark.parametrize("limit", [64])
def test_clients_use_up_all_descriptors(make, limit):
    """New ones are refused, with one line of the log a second, while storage works on with what was kept for it."""
    daemon, account = make(segment_bytes=4096, snapshot_events=10), Account()
    daemon.prefix = ["prlimit", f"--nofile={limit}:{limit}"]
    daemon.start()
    with daemon.connect() as wire:
        account.open(wire, retention="acknowledged")
        idle = daemon.descriptors
        with contextlib.ExitStack() as stack:
            for _ in range(limit + 20):
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(str(daemon.socket))
            daemon.until_said("accept_failed")
            cpu, began, lines = daemon.cpu_seconds, time.monotonic(), len(daemon.said("accept_failed"))
            for _ in range(30):
                account.insist(wire, size=1500)
                answer = refused(daemon, stack)
                assert (answer["id"], answer["code"], answer["retryable"]) == (0, "overloaded", True)
                assert answer["detail"] == {"bound": "descriptors"}
            account.read(wire)
            wire.done("acknowledge", relay="a", through=wire.done("status", relay="a")["latest"])
            wire.done("open", relay="b", create=True)
            assert wire.done("status", relay="a").get("trouble") is None
            time.sleep(max(0.0, 1.2 - (time.monotonic() - began)))
            passed = time.monotonic() - began
            assert daemon.cpu_seconds - cpu < 0.6 + 0.3 * passed, "it is not busy"
            assert len(daemon.said("accept_failed")) - lines <= passed + 1, "one line a second"
        until(lambda: daemon.descriptors <= idle + 6, 5, "descriptors are not given back")
        with daemon.connect() as newcomer:
            assert len(newcomer.done("relays")["relays"]) == 2
    assert not trouble(daemon)
    daemon.prefix = []
    settle(daemon, account)
