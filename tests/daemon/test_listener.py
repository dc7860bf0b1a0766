"""How the socket's path and the state directory are taken (docs/reference/journal.md, "Layout")."""

import os
import socket
import stat
from pathlib import Path

import pytest
import trio

from relayd.daemon.listener import listen
from relayd.daemon.starting import AlreadyRunningError, CannotStartError
from relayd.daemon.state_lock import lock_state


@pytest.fixture
def path(place):
    return str(place / "s")


def in_trio(call):
    async def run():
        return call()

    return trio.run(run)


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_the_socket_has_the_mode_asked_for_whatever_the_umask(path, mode):
    before = os.umask(0o777)
    try:
        listener = listen(path, mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.lstat(path).st_mode) == mode
    in_trio(listener.close)
    assert not os.path.lexists(path)


def test_a_stale_socket_is_taken_over(path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    in_trio(listen(path, 0o600).close)
    assert not os.path.lexists(path)


@pytest.mark.parametrize("what", ["file", "directory", "link to a file", "link to nothing", "fifo"])
def test_anything_else_at_the_path_is_left_alone(path, place, what):
    match what:
        case "file":
            (place / "s").write_text("mine")
        case "directory":
            (place / "s").mkdir()
        case "link to a file":
            (place / "mine").write_text("mine")
            (place / "s").symlink_to("mine")
        case "link to nothing":
            (place / "s").symlink_to("nowhere")
        case "fifo":
            os.mkfifo(path)
    before = os.lstat(path)
    with pytest.raises(CannotStartError, match="no socket"):
        listen(path, 0o600)
    assert os.lstat(path).st_ino == before.st_ino


def test_a_live_server_at_the_path_is_left_alone(path):
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(path)
        live.listen()
        with pytest.raises(AlreadyRunningError, match="answers"):
            listen(path, 0o600)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def test_a_live_server_that_takes_nobody_on_is_left_alone(path):
    with socket.socket(socket.AF_UNIX) as live, socket.socket(socket.AF_UNIX) as waiting:
        live.bind(path)
        live.listen(0)
        waiting.connect(path)
        with pytest.raises(AlreadyRunningError):
            listen(path, 0o600)
        assert os.path.lexists(path)


def test_a_path_of_107_bytes_is_taken_and_one_of_108_refused(place):
    fits = str(place / ("s" * (107 - len(str(place)) - 1)))
    assert len(fits) == 107
    in_trio(listen(fits, 0o600).close)
    with pytest.raises(CannotStartError, match=r"108 bytes.*107"):
        listen(fits + "s", 0o600)


def test_a_missing_directory_is_made_for_its_owner_alone(place):
    path = str(place / "run/relayd/s")
    in_trio(listen(path, 0o600).close)
    assert stat.S_IMODE((place / "run/relayd").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o702])
def test_a_directory_that_others_can_write_in_is_refused(place, mode):
    (place / "open").mkdir()
    (place / "open").chmod(mode)
    with pytest.raises(CannotStartError, match="others can write") as refused:
        listen(str(place / "open/s"), 0o600)
    assert list((place / "open").iterdir()) == []
    assert ("chmod" in str(refused.value)) == (not mode & stat.S_ISVTX), "/tmp is nobody's to close"
    (place / "open").chmod(mode & ~0o022)
    in_trio(listen(str(place / "open/s"), 0o600).close)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user: needs root")
def test_a_directory_that_belongs_to_another_user_is_refused(place):
    (place / "theirs").mkdir()
    os.chown(place / "theirs", 12345, 12345)
    with pytest.raises(CannotStartError, match="12345"):
        listen(str(place / "theirs/s"), 0o600)


def test_a_path_that_is_somebody_elses_by_now_is_not_removed_at_the_end(path):
    listener = listen(path, 0o600)
    Path(path).unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen()
        in_trio(listener.close)
        assert os.path.lexists(path)


def test_the_lock_is_on_the_directory_itself_whatever_it_is_called(place):
    (place / "link").symlink_to("state")
    state = lock_state(str(place / "state"), "/x/s")
    for name in ("state", "link", "../" + place.name + "/state"):
        with pytest.raises(AlreadyRunningError, match=rf"pid {os.getpid()}, serving /x/s"):
            lock_state(str(place / name), "/y/s")
    state.close()
    assert not (place / "state/holder").exists()
    lock_state(str(place / "link"), "/x/s").close()


def test_the_state_directory_is_made_for_its_owner_alone(place):
    lock_state(str(place / "a/state"), "/x/s").close()
    assert stat.S_IMODE((place / "a/state").stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "a/state/relays").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o702, 0o720, 0o1770])
def test_a_state_directory_that_others_can_write_in_is_refused_and_left_as_it_is(place, mode):
    (place / "state").mkdir()
    (place / "state").chmod(mode)
    with pytest.raises(CannotStartError, match="others can write") as refused:
        lock_state(str(place / "state"), "/x/s")
    assert str(place / "state") in str(refused.value)
    assert "--state" in str(refused.value)
    assert "chmod" not in str(refused.value) or not mode & stat.S_ISVTX, "/tmp is nobody's to close"
    assert list((place / "state").iterdir()) == []
    assert stat.S_IMODE((place / "state").stat().st_mode) == mode
    (place / "state").chmod(mode & ~0o022)
    lock_state(str(place / "state"), "/x/s").close()


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750, 0o1755])
def test_a_state_directory_that_others_can_only_read_is_taken(place, mode):
    (place / "state").mkdir()
    (place / "state").chmod(mode)
    lock_state(str(place / "state"), "/x/s").close()


@pytest.mark.parametrize("what", ["file", "relays is a file", "relays is a link"])
def test_a_state_directory_that_is_none_is_refused(place, what):
    if what == "file":
        (place / "state").write_text("x")
    else:
        (place / "state").mkdir()
        if what == "relays is a file":
            (place / "state/relays").write_text("x")
        else:
            (place / "elsewhere").mkdir()
            (place / "state/relays").symlink_to(place / "elsewhere")
    with pytest.raises(CannotStartError):
        lock_state(str(place / "state"), "/x/s")
    if what != "file":
        lock_state_again = os.open(place / "state", os.O_RDONLY)
        os.close(lock_state_again)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user: needs root")
def test_a_state_directory_of_another_user_is_refused(place):
    (place / "state").mkdir()
    os.chown(place / "state", 12345, 12345)
    with pytest.raises(CannotStartError, match="12345"):
        lock_state(str(place / "state"), "/x/s")
