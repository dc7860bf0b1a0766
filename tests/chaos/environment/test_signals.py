"""SIGHUP: settings reloaded, logs reopened; SIGPIPE, SIGXFSZ: ignored; SIGSTOP, then SIGCONT: goes on, no storm."""

import os
import resource
import signal
import socket
import time

from chaos.environment.account import Account, settle, trouble
from chaos.environment.clock import Clocks, needs_compiler
from chaos.environment.room import standing_still
from support.daemon import until
from support.wire import Wire, frame


def test_a_hail_of_sighup_under_load_costs_nothing(make, place):
    """200 of them, the settings changing and the log moved away between: every line of the log goes somewhere."""
    config, log = place / "relayd.toml", place / "log"
    config.write_text("idle_relay = 60\n")
    daemon, account = make(config=config, log_file=log), Account()
    daemon.begin()
    until(lambda: log.exists() and '"serving"' in log.read_text(), 10, "it does not serve")
    with daemon.connect() as wire:
        account.open(wire)
        for at in range(200):
            config.write_text(f"idle_relay = {60 + at}\nconnections = {100 + at % 2}\n")
            request = account.send(wire, count=3)
            daemon.signal(signal.SIGHUP)
            account.take(wire.answer(request))
            if at % 50 == 0:
                log.rename(place / f"log.{at}")
        config.write_text("connections = 1\n")
        daemon.signal(signal.SIGHUP)
        until(lambda: _is_refused(daemon), 5, "the last settings do not hold")
    daemon.kill()
    logs = "".join(path.read_text() for path in place.glob("log*"))
    assert logs.count('"reloaded"') > 3, "one reload may serve several signals that came at once"
    assert logs.count('"reload_refused"') == 0
    assert '"level": "error"' not in logs
    daemon.settings = {name: value for name, value in daemon.settings.items() if name not in ("config", "log_file")}
    (checked,) = settle(daemon, account)
    assert checked.answered == 601


def _is_refused(daemon):
    with Wire(str(daemon.socket), hello=False) as one:
        try:
            one.socket.settimeout(0.2)
            return one.receive()["code"] == "overloaded"
        except (TimeoutError, ConnectionError):
            return False


def test_sigpipe_and_sigxfsz_are_ignored(serving):
    """A client that is gone while it is answered is a real SIGPIPE; a limit on files, a real SIGXFSZ."""
    daemon, account = serving(), Account()
    with daemon.connect() as wire:
        account.open(wire)
        account.insist(wire, size=100_000)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            daemon.signal(number)
            account.insist(wire)
        for _ in range(20):
            with daemon.connect() as gone:
                gone.send_many([{"op": "attach", "relay": "a", "after": "earliest"}] * 3)
        account.insist(wire)
        account.read(wire)
    assert not trouble(daemon)
    settle(daemon, account)


def test_a_limit_on_the_size_of_files_is_an_exact_short_write_and_service_resumes_when_it_is_raised(serving):
    """`storage_full`; never another group after half a group: the file ends where the group before ended."""
    daemon = serving()
    accounts = {taken: Account(f"r{taken}") for taken in (0, 1, 63, 64, 65, 100)}
    hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)[1]
    with daemon.connect() as wire:
        for taken, account in accounts.items():
            account.open(wire)
            account.insist(wire)
            active = daemon.relay(account.relay) / "journal/active.log"
            before = active.read_bytes()
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (len(before) + taken, hard))
            for _ in range(3):
                assert account.record(wire, size=400)["code"] == "storage_full"
                assert active.read_bytes() == before
            account.read(wire)
            assert wire.done("status", relay=account.relay)["trouble"]
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        for account in accounts.values():
            account.insist(wire)
    settle(daemon, *accounts.values())


@needs_compiler
def test_a_minute_of_sigstop_and_it_goes_on_without_a_storm_of_timeouts(make, place):
    """While it is stopped, 60 s pass on its clocks. Whoever sent in that time is served, and nobody is closed."""
    clocks, account = Clocks(place), Account()
    daemon = clocks.rule(make()).start()
    with daemon.connect() as wire:
        account.open(wire)
        account.insist(wire)
        latest = wire.done("status", relay="a")["latest"]
        waiting = [daemon.connect() for _ in range(50)]
        requests = [client.send("attach", relay="a", after=latest, wait_ms=60_000) for client in waiting]
        silent = [_silent(daemon) for _ in range(20)]
        half = [_half(daemon) for _ in range(20)]
        until(lambda: wire.done("status", relay="a")["readers"] == 50, 5, "they do not wait")
        with standing_still(daemon):
            clocks.pass_time(59.5)
            sent = account.send(wire)
            for client in silent:
                client.sendall(frame({"op": "hello", "id": 1, "versions": [1], "client": "late"}))
            for client, rest in half:
                client.socket.sendall(rest)
        assert account.take(wire.answer(sent))["re"] == "recorded"
        for client, request in zip(waiting, requests, strict=True):
            assert client.answer(request)["re"] == "page"
        for client in silent:
            assert b"welcome" in client.recv(4096), "a hello that came while it was stopped is one that came in time"
            client.close()
        for client, _ in half:
            assert client.receive()["re"] == "relays", "a frame that came while it was stopped is complete"
            client.close()
        cpu = daemon.cpu_seconds
        time.sleep(0.3)
        assert daemon.cpu_seconds - cpu < 0.15
        for client in waiting:
            client.close()
    assert not [line for line in daemon.log if line.get("level") in ("warning", "error", "critical")]
    settle(daemon, account)


def _silent(daemon):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(os.fspath(daemon.socket))
    return client


def _half(daemon):
    """A client in the middle of a frame, and the other half."""
    client = daemon.connect()
    whole = frame({"op": "relays", "id": 7})
    client.socket.sendall(whole[:9])
    return client, whole[9:]
