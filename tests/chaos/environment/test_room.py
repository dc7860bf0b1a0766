"""No space for real: a tmpfs full at every level, shrunk, grown; no inodes; read-only.

`storage_full`, reads served meanwhile, service resumes by itself, what is then answered survives, at most one `.new`
of a kind.
"""

import pytest
from chaos.environment.account import Account, settle, trouble
from chaos.environment.mounts import KIB, needs_root, tmpfs
from chaos.environment.room import is_quiet, leftovers_by_kind, serves_readers, until_full
from support.daemon import until

pytestmark = needs_root
RESUMES_SECONDS = 10


@pytest.fixture
def mounted(place):
    """The state directory's own tmpfs, of 4 MiB."""
    with tmpfs(place / "state", "size=4m") as mount:
        yield mount


@pytest.mark.parametrize(("leave", "size"), [(0, 100), (60 * KIB, 30_000)])
def test_a_full_file_system(serving, mounted, leave, size):
    """Whatever meets the full disk first, a group, a header, a snapshot, a sealed file or a watermark."""
    daemon, account = serving(segment_bytes=64 * KIB, snapshot_bytes=32 * KIB, snapshot_events=50), Account()
    with daemon.connect() as wire:
        account.open(wire)
        account.insist(wire)
        mounted.fill(leave)
        until_full(wire, account, size)
        serves_readers(wire, account)
        is_quiet(daemon)
        leftovers_by_kind(daemon.relay("a"))
        mounted.free()
        account.insist(wire, seconds=RESUMES_SECONDS)
        for _ in range(5):
            account.insist(wire, size=20_000)
        until(lambda: wire.done("status", relay="a").get("trouble") is None, RESUMES_SECONDS, "side work is not done")
        until(lambda: not leftovers_by_kind(daemon.relay("a")), 5, "something unfinished is left")
    assert not trouble(daemon)
    settle(daemon, account)


def test_killed_and_started_while_there_is_no_room_it_serves_reads_and_resumes_when_there_is(serving, mounted):
    daemon, account = serving(segment_bytes=64 * KIB), Account()
    with daemon.connect() as wire:
        account.open(wire)
        account.insist(wire, size=3000)
        mounted.fill()
        until_full(wire, account, 500)
    for _ in range(3):
        daemon.kill()
        daemon.start()
        with daemon.connect() as wire:
            refused = account.record(wire)
            assert (refused["code"], refused["retryable"]) == ("storage_full", True)
            account.read(wire)
            assert wire.done("status", relay="a")["latest"][0] - 1 == account.answered
        leftovers_by_kind(daemon.relay("a"))
    mounted.free()
    with daemon.connect() as wire:
        account.insist(wire, seconds=RESUMES_SECONDS)
    assert not trouble(daemon)
    settle(daemon, account)


@pytest.mark.parametrize("how", ["grown", "shrunk, then grown"])
def test_a_file_system_is_resized_under_it(serving, mounted, how):
    daemon, account = serving(segment_bytes=64 * KIB), Account()
    with daemon.connect() as wire:
        account.open(wire)
        if how == "grown":
            until_full(wire, account, 100_000)
        else:
            account.insist(wire, size=100_000)
            mounted.remount(f"size={mounted.used_bytes // KIB + 4}k")
            until_full(wire, account, 2000)
        serves_readers(wire, account)
        mounted.remount("size=16m")
        account.insist(wire, size=100_000, seconds=RESUMES_SECONDS)
        until(lambda: wire.done("status", relay="a").get("trouble") is None, RESUMES_SECONDS, "side work is not done")
    assert not trouble(daemon)
    settle(daemon, account)


def test_no_inodes(serving, place):
    """A relay that is open records on, up to 4 times its segment; then, and for a new relay, it is `storage_full`."""
    with tmpfs(place / "state", "size=64m,nr_inodes=200") as mount:
        daemon, account = serving(segment_bytes=64 * KIB, snapshot_bytes=64 * KIB), Account()
        with daemon.connect() as wire:
            account.open(wire)
            account.insist(wire)
            mount.fill_inodes()
            before = account.answered
            until_full(wire, account, 10_000)
            assert account.answered - before > 20, "the active segment grows on"
            active = daemon.relay("a") / "journal/active.log"
            assert 4 * 64 * KIB <= active.stat().st_size < 5 * 64 * KIB
            refused = wire.call("open", relay="b", create=True)
            assert (refused["code"], refused["retryable"]) == ("storage_full", True)
            account.read(wire)
            is_quiet(daemon)
            mount.free_inodes()
            account.insist(wire, seconds=RESUMES_SECONDS)
            assert wire.done("open", relay="b", create=True)["created"] is True
            trouble_ends = lambda: wire.done("status", relay="a").get("trouble") is None  # noqa: E731
            until(trouble_ends, RESUMES_SECONDS, "side work is not done")
            until(lambda: active.stat().st_size < 64 * KIB, 5, "it is not rotated")
        assert not trouble(daemon)
        settle(daemon, account)


def test_read_only(serving, place):
    """A relay in use holds its file system writable; one that is not opens as `unavailable`, until it is writable."""
    with tmpfs(place / "state", "size=4m") as mount:
        daemon, account = serving(idle_relay=0.2), Account()
        with daemon.connect() as wire:
            account.open(wire)
            account.insist(wire)
            with pytest.raises(OSError, match="busy"):
                mount.remount("ro")
            account.insist(wire)
            until((daemon.relay("a") / "idle").exists, 5, "the relay is not closed")
            until(lambda: _remounts(mount, "ro"), 5, "it stays in use")
            before = {path: path.read_bytes() for path in daemon.relay("a").rglob("*") if path.is_file()}
            for op, fields in {"record": {"events": [["x"]]}, "status": {}, "attach": {"after": "earliest"}}.items():
                refused = wire.call(op, relay="a", **fields)
                assert (refused["code"], refused["detail"]["reason"]) == ("unavailable", "storage_failed")
            assert wire.call("open", relay="b", create=True)["code"] == "storage_failed"
            assert wire.done("relays")["relays"][0]["relay"] == "a"
            is_quiet(daemon)
            assert {path: path.read_bytes() for path in daemon.relay("a").rglob("*") if path.is_file()} == before
            mount.remount("rw")
            until(lambda: account.record(wire)["re"] == "recorded", 5, "service is not back by itself")
        assert not trouble(daemon)
        settle(daemon, account)


def test_a_state_directory_that_is_read_only_from_the_start_is_refused(make, place):
    with tmpfs(place / "state", "size=4m,ro"):
        daemon = make()
        daemon.begin()
        assert daemon.wait() == 78
        assert "Read-only file system" in " ".join(line.get("text", "") for line in daemon.log)
        assert not daemon.socket.exists()


def _remounts(mount, options):
    try:
        mount.remount(options)
    except OSError:
        return False
    return True
