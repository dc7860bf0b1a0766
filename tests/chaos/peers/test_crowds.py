"""Many peers of a real daemon that are silent, slow, half, never read, or are killed: each alone is affected.

The bounds in virtual time, one by one, are in tests/daemon/test_bounds.py. How late others are answered meanwhile, and
10,000 connections, is measured by `python tests/chaos/peers/long.py`.
"""

import contextlib
import signal
import socket
import subprocess
import sys
import time

import pytest
from chaos.peers.real import MIB, call, drained, good_client, hello, many, silent
from support.daemon import running_daemon, until
from support.wire import frame

COUNT = 300
RELAYS = frame({"op": "relays", "id": 7})


def refusal(connection):
    """The one answer before the end."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(4096):
            data += more
    return data


def test_300_peers_without_hello_silent_slow_or_refused_are_closed_after_10_seconds_and_others_are_answered():
    with running_daemon() as daemon, good_client(daemon) as other:
        call(other)
        descriptors = daemon.descriptors
        began = time.monotonic()
        peers = [silent(daemon) for _ in range(COUNT)]
        try:
            for at, peer in enumerate(peers):
                # One says nothing, one half a hello, one something else and reads nothing of what it is refused.
                peer.sendall((b"", RELAYS[:6], RELAYS * 200)[at % 3])
            while time.monotonic() - began < 9:
                # A byte a second of something that never comes to an end.
                for peer in peers[1::3]:
                    peer.sendall(b"\x00")
                call(other)
                time.sleep(1)
            assert daemon.descriptors == descriptors + COUNT, "none is closed before its time"
            until(lambda: daemon.descriptors == descriptors, 10, "a connection without hello is still open")
            assert 9.5 < time.monotonic() - began < 16
            for peer in peers:
                assert b"hello_required" in refusal(peer)
        finally:
            for peer in peers:
                peer.close()
        call(other)
        assert not [line for line in daemon.log if line["level"] != "info"]


def test_a_connection_past_the_bound_is_told_so_and_the_others_go_on():
    with (
        running_daemon(connections=COUNT + 1) as daemon,
        good_client(daemon) as other,
        many(daemon, COUNT) as connections,
    ):
        for _ in range(50):
            with silent(daemon) as refused:
                assert b"overloaded" in refusal(refused)
        call(other)
        connections.pop().close()
        until(lambda: _welcomed(daemon), 10, "a place that is free again is not given away")
        call(other)
        assert {line["event"] for line in daemon.log if line["level"] != "info"} == {"connection_refused"}
        assert len(daemon.said("connection_refused")) < 10, "one line a second"


def _welcomed(daemon):
    try:
        with hello(daemon):
            return True
    except (ConnectionError, KeyError):
        return False


def test_a_flood_of_connects_that_go_at_once_leaves_nothing_behind():
    with running_daemon() as daemon, good_client(daemon) as other:
        call(other)
        descriptors = daemon.descriptors
        for at in range(10 * COUNT):
            with silent(daemon) as peer, contextlib.suppress(ConnectionError):
                if at % 3:
                    peer.sendall((RELAYS, bytes(4))[at % 2])
            if at == COUNT:
                before = daemon.resident_bytes
            if at % 50 == 0:
                call(other)
        until(lambda: daemon.descriptors == descriptors, 10, "descriptors are kept")
        assert daemon.resident_bytes - before < 8 * MIB
        assert not [line for line in daemon.log if line["level"] != "info"]


def fill(other, events=30):
    for _ in range(events):
        other.done("record", relay="good", events=[["x", bytes(200_000)]])


def never_reads(daemon):
    """A peer that asks for a lot and takes nothing."""
    peer = hello(daemon)
    for number in range(2, 60):
        peer.socket.sendall(frame({"op": "attach", "id": number, "relay": "good", "after": "earliest"}))
    return peer


KILLS_ITSELF = """
import os, signal, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
peer.sendall(sys.stdin.buffer.read())
peer.recv(1, socket.MSG_PEEK)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_with_unread_data(daemon):
    """The same in a process of its own, which is killed once there is something unread for it."""
    requests = [{"op": "hello", "id": 1, "versions": [1], "client": "killed"}]
    requests += [{"op": "attach", "id": number, "relay": "good", "after": "earliest"} for number in range(2, 60)]
    sent = b"".join(map(frame, requests))
    ended = subprocess.run(
        [sys.executable, "-c", KILLS_ITSELF, str(daemon.socket)], input=sent, check=False, timeout=20
    )
    assert ended.returncode == -signal.SIGKILL


def test_readers_that_never_read_cost_nobody_else_and_are_forgotten_when_they_go():
    with running_daemon() as daemon, good_client(daemon) as other:
        fill(other)
        call(other)
        descriptors = daemon.descriptors
        peers = [never_reads(daemon) for _ in range(20)]
        for _ in range(20):
            call(other)
        assert len(other.read_all("good")) > 50
        for peer in peers:
            peer.close()
        until(lambda: daemon.descriptors == descriptors, 10, "descriptors are kept")
        call(other)
        assert not [line for line in daemon.log if line["level"] != "info"]


def test_readers_that_stop_get_the_rest_when_they_go_on():
    with running_daemon() as daemon, good_client(daemon) as other, never_reads(daemon) as peer:
        fill(other)
        answer = peer.receive()
        for _ in range(5):
            call(other)
        answers = [answer, *(peer.receive() for _ in range(57))]
        assert sorted(one["id"] for one in answers) == list(range(2, 60))
        assert {one["re"] for one in answers} == {"page"}


def test_readers_killed_with_unread_data_are_forgotten_and_nobody_notices():
    with running_daemon() as daemon, good_client(daemon) as other:
        fill(other)
        call(other)
        descriptors = daemon.descriptors
        for _ in range(10):
            killed_with_unread_data(daemon)
            call(other)
        until(lambda: daemon.descriptors == descriptors, 10, "descriptors are kept")
        until(lambda: not other.done("status", relay="good")["readers"], 10, "a reader that is gone is still served")
        assert not [line for line in daemon.log if line["level"] != "info"]


@pytest.mark.parametrize("wait_ms", [0, 300])
def test_what_a_peer_that_half_closes_is_owed_it_is_sent(wait_ms):
    with running_daemon() as daemon, good_client(daemon) as other:
        fill(other)
        with never_reads(daemon) as peer:
            record = peer.send("record", id=100, relay="good", events=[["x", "the last"]])
            latest = peer.send(
                "attach", id=101, relay="good", after=[10_000, None] if not wait_ms else "latest", wait_ms=wait_ms
            )
            peer.socket.shutdown(socket.SHUT_WR)
            call(other)
            answers = {one["id"]: one for one in drained(peer)}
        assert answers.keys() == {*range(2, 60), record, latest}
        assert answers[record]["re"] == "recorded"
        assert answers[latest].get("code", "page") == ("page" if wait_ms else "desynchronized")
