"""A backup of a relay with commands, restored: what was queued is queued, and the rest is as after any opening."""

import shutil

import msgspec
import pytest
import trio
from support import lane, oracle
from support.daemon import Daemon, short_place, until
from support.inside import inside, run_virtually
from support.relays import pack

import relayd
from relayd.cli import run as command_line
from relayd.protocol.cursor import GENESIS, Cursor
from relayd.protocol.errors import ConflictError, InvalidRequestError, InvalidStateError
from relayd.recovery.backup import write_backup
from relayd.recovery.backup_format import BackupHead
from relayd.recovery.restore import restore
from relayd.recovery.verify import verify_path

SCENE = lane.SCENE
LAST = len(SCENE)


def cursor(ordinal: int) -> Cursor:
    return Cursor(*lane.cursor(ordinal)) if ordinal else GENESIS


def write(path, *, after=0, state=b"", skip=()):
    """A backup of SCENE behind the ordinal `after`."""
    head = BackupHead("demo", oracle.STORE, cursor(after), cursor(LAST), 5, max_active=2, state=state)
    pages = [record for at, record in enumerate(lane.records(SCENE), 1) if at > after and at not in skip]
    return write_backup(str(path), head, pages)


def state_on_disk(state_dir, name="demo") -> dict:
    return msgspec.msgpack.decode((state_dir / "relays" / name / "snapshot").read_bytes()[48:])


@pytest.mark.parametrize("after", [0, 1, 10, 27, LAST])
def test_the_state_of_the_cut_is_kept_whatever_records_are_gone(tmp_path, after):
    write(tmp_path / "b", after=after, state=pack(lane.state()))
    assert not verify_path(str(tmp_path / "b")).findings
    report = restore(str(tmp_path / "state"), "demo", str(tmp_path / "b"))
    assert (report.records, report.latest, report.missing) == (LAST - after, cursor(LAST), ())
    snapshot = state_on_disk(tmp_path / "state")
    assert (snapshot["state"], snapshot["base"]) == (lane.state(), lane.cursor(after))


def test_a_backup_of_an_earlier_version_has_no_state_and_is_folded(tmp_path):
    write(tmp_path / "b")
    content = (tmp_path / "b").read_bytes()
    restore(str(tmp_path / "state"), "demo", str(tmp_path / "b"))
    assert state_on_disk(tmp_path / "state")["state"] == lane.state()
    assert content == (tmp_path / "b").read_bytes()


def test_a_head_without_the_field_is_one_of_an_earlier_version(tmp_path):
    """Byte by byte: the head's map has no `state`."""
    write(tmp_path / "b")
    content = (tmp_path / "b").read_bytes()
    size = int.from_bytes(content[4:8], "little")
    head = msgspec.msgpack.decode(content[56 : 8 + size])
    assert head.pop("state") == b""
    framed = lane.oracle.hashlib.blake2b(pack(head), digest_size=32).digest() + pack(head)
    framed = b"RLYBACK1" + len(pack(head)).to_bytes(8, "little") + framed
    end = content[8 + size :]
    shift = len(framed) - size
    tail_bytes = int.from_bytes(content[-12:-8], "little")
    last = msgspec.msgpack.decode(content[-tail_bytes + 56 : -12])
    for frame in last["frames"]:
        frame[2] += shift
    encoded = pack(last)
    ending = b"RLYBEND1" + len(encoded).to_bytes(8, "little")
    ending += lane.oracle.hashlib.blake2b(encoded, digest_size=32).digest() + encoded
    whole = 8 + len(ending) + 12
    made = content[:4] + len(framed).to_bytes(4, "little") + framed + end[: len(end) - tail_bytes]
    made += (0x184D2A5C).to_bytes(4, "little") + (whole - 8).to_bytes(4, "little") + ending
    made += whole.to_bytes(4, "little") + b"RLYBTAIL"
    (tmp_path / "old").write_bytes(made)
    restore(str(tmp_path / "state"), "demo", str(tmp_path / "old"))
    assert state_on_disk(tmp_path / "state")["state"] == lane.state()


def test_records_that_cannot_be_had_cost_no_command(tmp_path):
    skip = (6, 7, 8, LAST)
    report = write(tmp_path / "b", state=pack(lane.state()), skip=skip)
    assert report.missing == ((6, 8), (LAST, LAST))
    restored = restore(str(tmp_path / "state"), "demo", str(tmp_path / "b"))
    assert restored.missing == report.missing
    assert state_on_disk(tmp_path / "state")["state"] == lane.state()


@pytest.mark.parametrize(
    "state",
    [
        b"junk",
        pack({}),
        pack(lane.state(store=b"S" * 16)),
        pack(lane.state(bodies=SCENE[:-1])),
        pack(lane.state() | {"x": 1}),
    ],
    ids=["junk", "empty", "another store", "another cut", "a later version's"],
)
def test_a_state_of_something_else_is_not_written(tmp_path, state):
    with pytest.raises(InvalidStateError, match="does not verify"):
        write(tmp_path / "b", state=state)
    assert list(tmp_path.iterdir()) == []


def test_a_relay_whose_beginning_is_collected_is_backed_up_with_its_commands_and_goes_on(tmp_path):
    """Through a real daemon and the command line: submitted, collected, backed up, restored, opened, worked on."""
    with short_place() as place:
        daemon = Daemon(place, segment_bytes=65536).start()
        try:
            through_a_daemon(daemon, tmp_path)
        finally:
            daemon.end()


def through_a_daemon(daemon, tmp_path):
    socket, file = str(daemon.socket), str(tmp_path / "b")
    task = {"type": "task", "payload": "queued before the base"}
    with relayd.Client(socket) as client, relayd.Client(socket, worker="w1") as worker:
        client.open("a", create=True)
        client.record("a", [("x", 1)], producer="p", sequence=1)
        client.submit("a", {"type": "configure", "key": "k", "value": [1]}, "config-01")
        assert [one.command_id for one in worker.claim("a", 1)] == ["config-01"]
        worker.finish("a", "config-01", "completed")
        client.submit("a", {"type": "task", "payload": 1}, "done-0001")
        assert [one.command_id for one in worker.claim("a", 1)] == ["done-0001"]
        for name in ("wait-0001", "wait-0002", "wait-0003"):
            client.submit("a", task | {"payload": name}, name)
        client.submit("a", {"type": "side_task"}, "side-0001")
        worker.finish("a", "done-0001", "rejected", message="no")
        # wait-0001 starts, and what is started ends before the cut.
        assert {one.command_id for one in worker.claim("a", 2)} == {"wait-0001", "side-0001"}
        client.submit("a", {"type": "begin_checkpoint"}, "begin-001")
        for name in ("wait-0001", "side-0001"):
            worker.finish("a", name, "completed")
        cut = client.command("a", "begin-001", wait_ms=5000).cut
        client.submit("a", {"type": "complete_checkpoint", "barrier": "begin-001"}, "comple-01")
        client.record("a", [("x", "y" * 60_000) for _ in range(4)])
        client.acknowledge("a", client.status("a").latest)
        until(lambda: client.status("a").evicted.ordinal >= cut.ordinal, 10, "nothing is collected")
        assert [one.command_id for one in worker.claim("a", 1)] == ["wait-0002"]
        status = client.status("a")
        assert (status.active, status.queued, status.evicted.ordinal >= cut.ordinal) == (
            ["wait-0002"],
            ["wait-0003"],
            True,
        )
        assert command_line.run(["backup", "a", "-o", file, "--socket", socket]) == 0
        assert command_line.run(["restore", str(daemon.state), "b", file]) == 0
        restored = client.status("b")
        assert (restored.store, restored.latest) == (status.store, status.latest)
        assert (restored.active, restored.queued, restored.config) == (status.active, status.queued, status.config)
        assert [(one.command_id, one.worker, one.delivery) for one in restored.in_flight] == [("wait-0002", "w1", 1)]
        assert (restored.floor, restored.retention) == (status.floor, status.retention)
        assert client.record("b", [("x", 1)], producer="p", sequence=1).duplicate
        repeat = client.submit("b", {"type": "task", "payload": 1}, "done-0001")
        assert repeat.duplicate
        with pytest.raises(ConflictError):
            client.submit("b", task, "done-0001")
        # In flight: orphaned, with a fresh lease, for the same worker.
        again = worker.claim("b", 9)
        assert [(one.command_id, one.delivery) for one in again] == [("wait-0002", 2)]
        worker.finish("b", "wait-0002", "completed")
        assert [(one.command_id, msgspec.msgpack.decode(one.command)["payload"]) for one in worker.claim("b", 9)] == [
            ("wait-0003", "wait-0003")
        ]


def test_what_was_in_the_middle_is_after_a_restore_as_after_any_opening(tmp_path):
    """SCENE restored: the checkpoint is interrupted, leases are fresh, and what runs out ends as ever."""
    write(tmp_path / "b", after=27, state=pack(lane.state()))
    restore(str(tmp_path / "state"), "demo", str(tmp_path / "b"))

    async def main():
        async with inside(tmp_path / "state") as daemon:
            client, worker = await daemon.connect(), daemon.connect_silent()
            await worker.done("hello", versions=[1], client="w", worker="w2")
            status = await client.done("status", relay="demo")
            assert "barrier" not in status
            told = await client.done("command", relay="demo", command_id="begin-0001")
            assert (told["state"], told["reason"]) == ("interrupted", "owner_lost")
            # The side task that waited has started; task-wait-1 has to wait, two run already.
            assert sorted(status["active"]) == ["side-fly-01", "side-wait-1", "task-again1", "task-pend-1"]
            assert status["queued"] == ["task-wait-1", "conf-wait-1"]
            handed = (await worker.done("claim", relay="demo", capacity=9))["commands"]
            assert [(one["command_id"], one["delivery"]) for one in handed] == [
                ("cancel-told", 2), ("cancel-open", 1), ("task-again1", 3), ("side-fly-01", 4), ("task-pend-1", 1),
                ("side-wait-1", 1),
            ]  # fmt: skip
            worker.stream.vanish()
            await trio.sleep(31)
            ends = {
                name: (told["state"], told.get("reason"))
                for name in lane.LIVE
                for told in [await client.done("command", relay="demo", command_id=name)]
            }
            assert ends == {
                "task-again1": ("rejected", "cancelled"),
                "side-fly-01": ("rejected", "cancelled"),
                "task-pend-1": ("interrupted", "lease_expired"),
                "task-wait-1": ("pending", None),
                "conf-wait-1": ("pending", None),
                "side-wait-1": ("completed", "lease_expired"),
                "cancel-told": ("completed", None),
                "cancel-open": ("completed", None),
                "begin-0001": ("interrupted", "owner_lost"),
            }

    run_virtually(main)


def test_a_closed_relay_is_closed_in_its_backup_too(tmp_path):
    async def close(daemon):
        client = await daemon.relay()
        await client.done("submit", relay="a", command_id="begin-001", command={"type": "begin_checkpoint"})
        cut = (await client.done("command", relay="a", command_id="begin-001"))["cut"]
        closing = {"type": "close", "barrier": "begin-001", "cut": cut}
        await client.done("submit", relay="a", command_id="close-001", command=closing)
        told = await client.done("export", relay="a")
        page = await client.done("attach", relay="a", after=[0, bytes(16)])
        store = (await client.done("status", relay="a"))["store"]
        head = BackupHead("a", store, GENESIS, Cursor(*told["at"]), 5, state=told["state"])
        write_backup(str(tmp_path / "b"), head, [page["records"]])
        return closing

    async def main():
        async with inside(tmp_path / "one") as daemon:
            closing = await close(daemon)
        restore(str(tmp_path / "two"), "a", str(tmp_path / "b"))
        async with inside(tmp_path / "two") as daemon:
            client = await daemon.connect()
            assert (await client.done("status", relay="a"))["execution"] == "closed"
            refused = await client.refusal("submit", relay="a", command_id="task-0001", command={"type": "task"})
            assert (refused[0], refused[2]) == ("invalid_state", {"state": "closed"})
            repeat = await client.done("submit", relay="a", command_id="close-001", command=closing)
            assert repeat["duplicate"]

    run_virtually(main)


def test_a_backup_whose_state_is_damaged_makes_nothing(tmp_path):
    write(tmp_path / "b", after=10, state=pack(lane.state()))
    content = bytearray((tmp_path / "b").read_bytes())
    at = content.index(b"task-wait-1")
    content[at] ^= 1
    (tmp_path / "b").write_bytes(content)
    with pytest.raises(InvalidRequestError, match="damaged at offset 0"):
        restore(str(tmp_path / "state"), "demo", str(tmp_path / "b"))
    assert list((tmp_path / "state" / "relays").iterdir()) == []
    assert verify_path(str(tmp_path / "b")).damaged
    shutil.rmtree(tmp_path / "state")
