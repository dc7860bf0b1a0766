"""Stale socket; a file, directory, live server at its path; path of 108 bytes; another user; a directory of others.

Taken over only if it is a socket, nobody answers, and the lock is held; else refused. Unlinked at exit only if still
ours.
"""

import os
import socket
import stat

import pytest
from chaos.environment.mounts import needs_root
from chaos.environment.users import NOBODY, as_user, let_in
from support.wire import Wire


def refuses(daemon, status, words):
    daemon.begin()
    assert daemon.wait() == status
    said = " ".join(line.get("text", "") for line in daemon.log)
    assert words in said, said
    assert not (daemon.state / "holder").exists(), "the state directory is given back"


def test_a_stale_socket_is_taken_over(make):
    daemon = make()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(daemon.socket))
    daemon.start()
    with daemon.connect() as wire:
        wire.done("relays")
    assert daemon.stop() == 0
    assert not daemon.socket.exists()


@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_what_is_no_socket_is_refused_and_left_alone(make, place, what):
    daemon = make()
    match what:
        case "file":
            daemon.socket.write_text("mine")
        case "directory":
            daemon.socket.mkdir()
        case "link":
            daemon.socket.symlink_to(place / "elsewhere")
    before = daemon.socket.lstat()
    refuses(daemon, 78, "is no socket")
    assert daemon.socket.lstat().st_ino == before.st_ino
    assert not (place / "elsewhere").exists()


def test_a_live_server_is_left_alone(make):
    daemon = make()
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(daemon.socket))
        live.listen()
        refuses(daemon, 75, "another server answers")
        assert stat.S_ISSOCK(daemon.socket.stat().st_mode)


def test_who_does_not_hold_the_lock_takes_no_socket_over(serving, make, place):
    """A stale socket at the second daemon's path stays, because another daemon holds the state directory."""
    serving()
    second = make(socket=place / "stale")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(place / "stale"))
    inode = (place / "stale").stat().st_ino
    second.begin()
    assert second.wait() == 75
    assert (place / "stale").stat().st_ino == inode


def test_a_path_of_107_bytes_serves_and_one_of_108_is_refused(make, place):
    path = place / ("s" * (107 - len(os.fsencode(place)) - 1))
    daemon = make(socket=path)
    daemon.start()
    with Wire(str(path)) as wire:
        wire.done("relays")
    assert daemon.stop() == 0
    refuses(make(socket=f"{path}s"), 78, "107")


@pytest.mark.parametrize("how", ["another socket", "nothing"])
def test_at_exit_only_its_own_is_unlinked(serving, how):
    daemon = serving()
    daemon.socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        if how == "another socket":
            other.bind(str(daemon.socket))
        assert daemon.stop() == 0
        assert daemon.socket.exists() == (how != "nothing")


# Other users


def _connect(path, **more):
    def try_it():
        try:
            with Wire(path, hello=False) as wire:
                answer = wire.call("hello", versions=[1], client="other", **more)
                return answer["re"] if answer["re"] != "error" else answer["code"]
        except OSError as error:
            return type(error).__name__

    return try_it


@needs_root
@pytest.mark.parametrize(("mode", "outcome"), [("0600", "PermissionError"), ("0666", "welcome")])
def test_a_client_of_another_user(serving, place, mode, outcome):
    """Refused by the socket's mode; let in by it, it still may not say for whom it speaks."""
    let_in(place)
    daemon = serving(socket_mode=mode)
    assert as_user(NOBODY, _connect(str(daemon.socket))) == outcome
    for identity in ("asker", "author", "worker"):
        said = as_user(NOBODY, _connect(str(daemon.socket), **{identity: "me"}))
        assert said == (outcome if outcome != "welcome" else "forbidden")
    assert as_user(0, _connect(str(daemon.socket), worker="me")) == "welcome"


@pytest.mark.parametrize("mode", [0o1777])
def test_a_socket_directory_that_others_can_write_in_is_refused_at_start(make, place, mode):
    (place / "open").mkdir()
    (place / "open").chmod(mode)
    refuses(make(socket=place / "open/s"), 78, "others can write")
    assert not list((place / "open").iterdir())


@needs_root
def test_a_socket_directory_of_another_user_is_refused_at_start(make, place):
    (place / "theirs").mkdir()
    os.chown(place / "theirs", NOBODY, NOBODY)
    refuses(make(socket=place / "theirs/s"), 78, str(NOBODY))
