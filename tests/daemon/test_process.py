"""The daemon as a process: signals, limits, and two of them (docs/internals/architecture.md)."""

import os
import resource
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest
from support.daemon import Daemon, until
from support.wire import Wire, frame, records


def lines_of_trouble(daemon):
    return [line for line in daemon.log if line.get("level") in ("error", "critical") or line.get("event") == "text"]


# Stopping


def test_sigterm_while_idle_ends_it_with_0_and_leaves_nothing_behind(process):
    daemon = process()
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 5
        with pytest.raises(ConnectionError):
            wire.receive()
    assert not daemon.socket.exists()
    assert not (daemon.state / "holder").exists()
    assert (daemon.relay("a") / "idle").exists()
    assert [line["event"] for line in daemon.log][-2:] == ["stopping", "stopped"]
    assert not lines_of_trouble(daemon)


def test_sigterm_with_1000_requests_in_flight_answers_what_it_took_and_all_of_that_is_durable(process):
    daemon = process()
    clients = [daemon.connect() for _ in range(5)]
    clients[0].done("open", relay="a", create=True)
    sent = {
        client: client.send_many([{"op": "record", "relay": "a", "events": [["x", at]]} for at in range(200)])
        for client in clients
    }
    daemon.signal(signal.SIGTERM)
    began = time.monotonic()
    assert daemon.wait() == 0
    assert time.monotonic() - began < 5
    answered = {}
    for client, requests in sent.items():
        answers = {one["id"]: one for one in client.receive_all()}
        for at, request in enumerate(requests):
            answer = answers.pop(request, None)
            if answer is not None and answer["re"] == "recorded":
                answered[answer["first"]] = at
            elif answer is not None:
                assert answer["code"] == "shutting_down"
        assert not answers
        client.close()
    again = process()
    with again.connect() as wire:
        stored = {one.ordinal: one.data for one in wire.read_all("a")}
    assert {ordinal: stored[ordinal] for ordinal in answered} == answered


@pytest.mark.parametrize("while_recording", [False, True])
def test_sigterm_in_the_middle_of_sealing_ends_it_with_0_within_5_seconds(process, while_recording):
    daemon = process(segment_bytes=32 << 20)
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        journal = daemon.relay("a") / "journal"
        count = 0
        while not list(journal.glob("*-*.log")):
            wire.done("record", relay="a", events=[["x", os.urandom(1 << 20)]] * 4)
            count += 4
        until(lambda: list(journal.glob("*-*.new")), 10, "it does not seal")
        if while_recording:
            wire.send("record", relay="a", events=[["x", os.urandom(1 << 20)]] * 4)
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 5
    assert not lines_of_trouble(daemon)
    assert not daemon.said("drain_cut_short")
    again = process(segment_bytes=32 << 20)
    with again.connect() as wire:
        assert len(wire.read_all("a")) - 1 in (count, count + 4 * while_recording)
        until(lambda: not list(journal.glob("*-*.log")) + list(journal.glob("*-*.new")), 10, "not all is sealed")
        assert wire.done("status", relay="a").get("trouble") is None


def test_sigterm_ends_waits_and_a_reader_that_never_reads_does_not_keep_it(process):
    daemon = process(drain=1)
    with daemon.connect() as wire, daemon.connect() as lazy:
        wire.done("open", relay="a", create=True)
        for _ in range(20):
            wire.done("record", relay="a", events=[["x", os.urandom(300_000)]])
        for _ in range(50):
            lazy.send("attach", relay="a", after="earliest", max_bytes=4 << 20)
        wait = wire.send("attach", relay="a", after="latest", wait_ms=60_000)
        time.sleep(0.2)
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert wire.answer(wait)["code"] == "shutting_down"
        assert daemon.wait() == 0
        assert time.monotonic() - began < 5
        assert daemon.said("drain_cut_short")


def test_a_second_sigterm_ends_it_at_once(process):
    daemon = process(drain=60)
    with daemon.connect() as wire, daemon.connect() as lazy:
        wire.done("open", relay="a", create=True)
        for _ in range(20):
            wire.done("record", relay="a", events=[["x", os.urandom(300_000)]])
        for _ in range(50):
            lazy.send("attach", relay="a", after="earliest", max_bytes=4 << 20)
        time.sleep(0.2)
        daemon.signal(signal.SIGTERM)
        daemon.until_said("stopping")
        time.sleep(0.1)
        assert daemon.running
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 130
        assert time.monotonic() - began < 2
    assert not daemon.socket.exists()


def test_sigkill_and_a_new_start_take_the_stale_socket_over_and_know_everything(process):
    daemon = process()
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        recorded = wire.done("record", relay="a", events=[["x", 1]], producer="p", sequence=1)
    daemon.kill()
    assert daemon.socket.exists()
    daemon.start()
    with daemon.connect() as wire:
        again = wire.done("record", relay="a", events=[["x", 1]], producer="p", sequence=1)
        assert (again["duplicate"], again["through"]) == (True, recorded["through"])


# Other signals


def test_sighup_reads_the_settings_again_and_follows_a_log_that_was_rotated(place):
    config, log = place / "relayd.toml", place / "log"
    config.write_text("idle_relay = 60\nconnections = 50\n")
    daemon = Daemon(place, config=config, log_file=log)
    daemon.begin()
    try:
        until(lambda: log.exists() and '"serving"' in log.read_text(), 10, "it does not serve")
        log.rename(place / "log.1")
        config.write_text("idle_relay = 0.2\nconnections = 2\nsegment_bytes = 4096\n")
        daemon.signal(signal.SIGHUP)
        until(lambda: log.exists() and '"reloaded"' in log.read_text(), 10, "it does not read its settings again")
        assert "segment_bytes" in log.read_text(), "what needs a restart is named"
        assert '"serving"' in (place / "log.1").read_text()
        with daemon.connect() as wire, daemon.connect():
            with Wire(str(daemon.socket), hello=False) as refused:
                assert refused.receive()["code"] == "overloaded"
            wire.done("open", relay="a", create=True)
            until((daemon.relay("a") / "idle").exists, 10, "the relay is not closed")
        config.write_text("idle_relay = [\n")
        daemon.signal(signal.SIGHUP)
        until(lambda: '"reload_refused"' in log.read_text(), 10, "it does not say that it cannot read them")
        with daemon.connect() as wire:
            assert wire.done("status", relay="a")["latest"][0] == 1
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_sighup_moves_the_log_to_the_file_that_the_settings_name_now(place):
    config = place / "relayd.toml"
    config.write_text(f'log_file = "{place}/one"\n')
    daemon = Daemon(place, config=config)
    daemon.begin()
    try:
        until(lambda: (place / "one").exists() and '"serving"' in (place / "one").read_text(), 10, "it does not serve")
        config.write_text(f'log_file = "{place}/two"\nlog_level = "debug"\n')
        daemon.signal(signal.SIGHUP)
        until(lambda: (place / "two").exists() and '"reloaded"' in (place / "two").read_text(), 10, "no second log")
        with daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
        until(lambda: '"relay_opened"' in (place / "two").read_text(), 10, "the relay's lines go elsewhere")
        config.write_text(f'log_file = "{place}/missing/three"\n')
        daemon.signal(signal.SIGHUP)
        until(lambda: '"reload_refused"' in (place / "two").read_text(), 10, "the old log is not kept")
    finally:
        daemon.end()


def test_sigpipe_sigxfsz_and_a_stop_for_a_while_do_no_harm(process):
    daemon = process()
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            daemon.signal(number)
            assert wire.done("record", relay="a", events=[["x"]])["re"] == "recorded"
        wait = wire.send("attach", relay="a", after="latest", wait_ms=20_000)
        daemon.signal(signal.SIGSTOP)
        time.sleep(0.5)
        sent = wire.send("record", relay="a", events=[["x"]])
        daemon.signal(signal.SIGCONT)
        assert wire.answer(sent)["re"] == "recorded"
        assert wire.answer(wait)["count"] == 1
    assert not lines_of_trouble(daemon)


def test_a_file_size_limit_is_a_full_disk_and_service_resumes_when_it_is_lifted(process):
    daemon = process(segment_bytes=1 << 20)
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        wire.done("record", relay="a", events=[["x", 1]], producer="p", sequence=1)
        hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (50_000, hard))
        refused = wire.call("record", relay="a", events=[["x", os.urandom(100_000)]], producer="p", sequence=2)
        assert (refused["code"], refused["retryable"]) == ("storage_full", True)
        assert [one.data for one in wire.read_all("a")][1:] == [1]
        assert "trouble" in wire.done("status", relay="a")
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        until(lambda: daemon.said("room_found"), 10, "it does not find the room")
        answer = wire.done("record", relay="a", events=[["x", 2]], producer="p", sequence=2)
        assert (answer["first"], "duplicate" in answer) == (3, False)
        assert [one.data for one in wire.read_all("a")][1:] == [1, 2]


# Limits of the machine


def test_descriptors_used_up_by_clients_leave_storage_its_own_and_it_recovers(place):
    daemon = Daemon(place, segment_bytes=4096)
    daemon.prefix = ["prlimit", "--nofile=96:96"]
    daemon.start()
    try:
        with daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
            crowd = []
            for _ in range(150):
                client = socket.socket(socket.AF_UNIX)
                client.settimeout(1)
                try:
                    client.connect(str(daemon.socket))
                except OSError:
                    client.close()
                    break
                crowd.append(client)
            daemon.until_said("accept_failed")
            with daemon.connect(hello=False) as refused:
                assert refused.receive()["code"] == "overloaded"
            used = daemon.descriptors
            for number in range(1, 30):
                wire.done("record", relay="a", events=[["x", os.urandom(1000)]], producer="p", sequence=number)
            through = wire.done("status", relay="a")["latest"]
            wire.done("acknowledge", relay="a", through=through)
            assert len(wire.read_all("a")) == 30
            wire.done("open", relay="b", create=True)
            cpu = daemon.cpu_seconds
            time.sleep(1)
            assert daemon.cpu_seconds - cpu < 0.5, "it waits for descriptors, and is not busy"
            assert len(daemon.said("accept_failed")) <= 6, "one line a second"
            for client in crowd:
                client.close()
            until(lambda: daemon.descriptors < used // 2, 5, "descriptors are not given back")
            with daemon.connect() as other:
                assert len(other.done("relays")["relays"]) == 2
        assert daemon.stop() == 0
    finally:
        daemon.end()


def test_memory_and_descriptors_are_flat_over_garbage_and_thousands_of_connections(process):
    daemon = process()
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)

        def abuse():
            for at in range(300):
                client = socket.socket(socket.AF_UNIX)
                client.connect(str(daemon.socket))
                client.sendall(
                    [
                        b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", bytes(4),
                        b"\x00\x00\x00\x05\xdd\xff\xff\xff\xff",
                        frame(b"\xc1" * 1000), b"\x00\x7f\xff\xff" + os.urandom(2000), frame({"op": "relays", "id": 1}),
                    ][at % 7]
                )  # fmt: skip
                client.close()
            wire.done("relays")

        abuse()
        until(lambda: daemon.descriptors < 60, 5, "connections are not given back")
        memory, descriptors = daemon.resident_bytes, daemon.descriptors
        for _ in range(6):
            abuse()
        until(lambda: daemon.descriptors <= descriptors, 5, "descriptors leak")
        assert daemon.resident_bytes < memory + (8 << 20)
    assert not lines_of_trouble(daemon)


def test_a_thousand_waiting_readers_are_all_served_and_cost_little(process):
    daemon = process()
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        before = daemon.resident_bytes
        readers = [daemon.connect(timeout=30) for _ in range(200)]
        for reader in readers:
            reader.send_many([{"op": "attach", "relay": "a", "after": "latest", "wait_ms": 60_000}] * 5)
        until(lambda: wire.done("status", relay="a")["readers"] == 1000, 10, "they do not wait")
        assert daemon.resident_bytes - before < 64 << 20
        wire.done("record", relay="a", events=[["x", "news"]])
        for reader in readers:
            for _ in range(5):
                assert records(reader.receive()["records"])[0].data == "news"
            reader.close()


@pytest.mark.parametrize(("size", "each"), [(1000, 1000), (65_536, 16)])
def test_200_readers_of_64_mib_that_read_nothing_leave_the_daemon_below_120_mib(process, size, each):
    daemon = process()
    count = (64 << 20) // size
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        for _ in range(count // each):
            wire.done("record", relay="a", events=[["x", os.urandom(size)]] * each)
        lazy = [daemon.connect() for _ in range(200)]
        for at, client in enumerate(lazy):
            starts = [1 + (at + 16 * number) * count // 512 % (count // 2) for number in range(8)]
            client.send_many(
                [{"op": "attach", "relay": "a", "after": [at, None], "max_bytes": 4 << 20} for at in starts]
            )
        highest, end = 0, time.monotonic() + 1.5
        while time.monotonic() < end:
            highest = max(highest, daemon.resident_bytes)
            time.sleep(0.02)
        assert highest < 120 << 20
        began = time.monotonic()
        assert wire.done("attach", relay="a", after=[count // 2, None], max_bytes=1 << 20)["count"] > 0
        assert wire.done("record", relay="a", events=[["x"]])["re"] == "recorded"
        assert time.monotonic() - began < 2, "others are served"
        for client in lazy[:3]:
            for _ in range(8):
                assert records(client.receive()["records"]), "one that reads on gets all its pages, whole"
        for client in lazy:
            client.close()
    assert not lines_of_trouble(daemon)


# Two daemons


@pytest.mark.parametrize("other", ["state", "link"])
def test_a_second_daemon_on_one_state_directory_refuses_names_the_holder_and_leaves_the_socket(process, place, other):
    daemon = process()
    (place / "link").symlink_to("state")
    second = Daemon(place, state=place / other)
    began = time.monotonic()
    second.begin()
    assert second.wait() != 0
    assert time.monotonic() - began < 5
    said = " ".join(line.get("text", "") for line in second.log)
    assert f"pid {daemon.process.pid}" in said
    assert str(daemon.socket) in said
    with daemon.connect() as wire:
        assert wire.done("open", relay="a", create=True)["created"] is True


def test_two_daemons_started_at_once_are_one(place):
    daemons = [Daemon(place) for _ in range(3)]
    try:
        for daemon in daemons:
            daemon.begin()
        until(lambda: sum(daemon.running for daemon in daemons) == 1, 15, "there is not exactly one")
        (alive,) = [daemon for daemon in daemons if daemon.running]
        alive.until_said("serving")
        with alive.connect() as wire:
            wire.done("open", relay="a", create=True)
    finally:
        for daemon in daemons:
            daemon.end()


def test_a_second_daemon_at_the_same_socket_refuses_and_gives_its_state_back(process, place):
    daemon = process()
    second = Daemon(place, state=place / "other")
    second.begin()
    assert second.wait() != 0
    assert "answers" in " ".join(line.get("text", "") for line in second.log)
    assert not (place / "other/holder").exists()
    with daemon.connect() as wire:
        wire.done("relays")


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
@pytest.mark.parametrize("asked", ["record", "open", "make"])
def test_a_state_directory_taken_away_ends_it_with_74_and_nothing_is_answered_into_it(process, place, how, asked):
    daemon = process()
    with daemon.connect() as wire:
        wire.done("open", relay="a", create=True)
        wire.done("record", relay="a", events=[["x", 1]])
        daemon.state.rename(place / "aside")
        if how == "deleted":
            shutil.rmtree(place / "aside")
        elif how == "replaced":
            shutil.copytree(place / "aside", daemon.state)
        try:
            if asked == "record":
                answer = wire.call("record", relay="a", events=[["x", 2]])
                assert answer["code"] == "relay_removed"
            else:
                answer = wire.call("open", relay="b", create=asked == "make")
                assert answer["re"] == "error" or how == "moved"
        except ConnectionError:
            pass
    assert daemon.wait() == 74
    assert daemon.said("state_directory_gone")
    assert not daemon.socket.exists()
    assert how != "deleted" or not daemon.state.exists(), "nothing recreates it"


# The log


def test_what_a_client_calls_itself_cannot_write_lines_of_its_own(process):
    daemon = process(log_level="debug")
    name = 'x"} {"event": "forged"}'
    with Wire(str(daemon.socket), client=name) as wire:
        wire.done("relays")
    until(lambda: daemon.said("connection_ended"), 5, "it is not said")
    assert not daemon.said("forged")
    assert daemon.said("connection_ended")[0]["client"] == name


def test_a_log_that_nobody_reads_any_more_stops_nothing(place):
    daemon = Daemon(place, log_level="debug")
    process = daemon.begin()
    try:
        daemon.until_said("serving")
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), process.stderr.fileno())
        for _ in range(50):
            with daemon.connect() as wire:
                wire.done("open", relay="a", create=True)
        daemon.signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        daemon.end()


def test_the_version_of_python_and_libraries_starts_it_without_a_warning(place):
    daemon = Daemon(place)
    daemon.prefix = ["env", "PYTHONWARNINGS=default", "PYTHONDEVMODE="]
    daemon.start()
    try:
        with daemon.connect() as wire:
            wire.done("open", relay="a", create=True)
        assert daemon.stop() == 0
        assert not lines_of_trouble(daemon)
    finally:
        daemon.end()
