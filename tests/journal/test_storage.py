import contextlib
import errno
import os
import resource
import socket
import stat
from pathlib import Path

import pytest

from relayd.journal.real_storage import RESERVE_DESCRIPTORS, open_state_directory
from relayd.journal.storage import Entry, ForeignFileError, ShortWriteError
from relayd.journal.trouble import lacks_descriptors, lacks_room, storage_error
from relayd.protocol.errors import StorageFailedError, StorageFullError

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir(mode=0o700)
    with contextlib.closing(open_state_directory(str(tmp_path / "state"))) as directory:
        yield directory


@pytest.fixture
def file(state):
    with contextlib.closing(state.open("file", "create")) as opened:
        yield opened


@contextlib.contextmanager
def limited(which: int, soft: int):
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


@contextlib.contextmanager
def descriptors_used_up():
    """No descriptor is left to this process but those given back."""
    taken = []
    # Above every descriptor that is open: one given back at or past the limit could not be used again.
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    with limited(resource.RLIMIT_NOFILE, highest + 8):
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            yield
        finally:
            for descriptor in taken:
                os.close(descriptor)


def mode_of(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_what_is_written_is_read_back_from_where_it_was_put(file):
    file.write((b"abc", memoryview(b"def"), bytearray(b"g")), 2)
    assert file.size() == 9
    assert file.read(100, 0) == b"\0\0abcdefg"
    assert file.read(3, 3) == b"bcd"
    assert file.read(5, 9) == b""
    assert file.read(0, 0) == b""
    file.sync()
    file.truncate(4)
    assert file.read(100, 0) == b"\0\0ab"


def test_a_read_larger_than_one_call_takes_is_whole_and_an_absurd_one_takes_no_memory(file):
    data = os.urandom(1 << 20) * 9
    file.write((data,), 0)
    assert file.read(len(data), 0) == data
    assert file.read(2**62, 0) == data


def test_more_buffers_than_one_call_takes_are_one_write(file):
    file.write([b"%05d" % at for at in range(5000)], 0)
    assert file.read(1 << 20, 0) == b"".join(b"%05d" % at for at in range(5000))


@pytest.mark.parametrize("taken", [0, 1, 99])
def test_a_short_write_says_so_with_no_room_and_leaves_what_was_taken(file, taken):
    with (
        limited(resource.RLIMIT_FSIZE, 100 + taken),
        pytest.raises(OSError, match=r"bytes were taken|too large") as failed,
    ):
        file.write((b"a" * 150, b"b" * 50), 100)
    assert file.size() == (100 + taken if taken else 0)
    assert lacks_room(failed.value)
    if taken:
        assert isinstance(failed.value, ShortWriteError)
        assert (failed.value.errno, failed.value.written, failed.value.wanted) == (errno.ENOSPC, taken, 200)
    else:
        assert failed.value.errno == errno.EFBIG


def test_files_are_0600_and_directories_0700(state):
    state.open("file", "create").close()
    state.make_directory("below")
    assert mode_of(f"{state.path}/file") == 0o600
    assert mode_of(f"{state.path}/below") == 0o700


def test_the_modes_of_opening(state):
    with pytest.raises(FileNotFoundError):
        state.open("file", "read")
    with pytest.raises(FileNotFoundError):
        state.open("file", "update")
    made = state.open("file", "create")
    with pytest.raises(FileExistsError):
        state.open("file", "create")
    made.write((b"old",), 0)
    again = state.open("file", "update")
    again.write((b"new",), 0)
    reader = state.open("file", "read")
    assert reader.read(9, 0) == b"new"
    assert reader.identity == again.identity == made.identity
    assert state.stat("file") == (made.identity, 3)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.write((b"x",), 0)
    for opened in (made, again, reader, reader):
        opened.close()


@pytest.mark.parametrize("mode", ["read", "update"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "socket", "directory", "device"])
def test_only_a_regular_file_is_opened(state, tmp_path, kind, mode):
    path = f"{state.path}/thing"
    (tmp_path / "elsewhere").write_text("secret")
    match kind:
        case "link":
            Path(path).symlink_to(tmp_path / "elsewhere")
        case "dangling link":
            Path(path).symlink_to("nowhere")
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with contextlib.chdir(state.path), socket.socket(socket.AF_UNIX) as listener:
                listener.bind("thing")
        case "directory":
            Path(path).mkdir()
        case _:
            if os.geteuid() != 0:
                pytest.skip("needs root, to make a device")
            try:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
            except PermissionError:
                pytest.skip("devices cannot be made here")
    with pytest.raises(ForeignFileError) as refused:
        state.open("thing", mode)
    assert refused.value.filename == path
    with pytest.raises(FileExistsError):
        state.open("thing", "create")


@AS_ROOT
def test_another_users_file_or_directory_is_not_opened(state):
    state.open("file", "create").close()
    state.make_directory("below")
    os.chown(f"{state.path}/file", 12345, -1)
    os.chown(f"{state.path}/below", 12345, -1)
    for opening in (lambda: state.open("file", "read"), lambda: state.directory("below")):
        with pytest.raises(ForeignFileError, match="belongs to user 12345"):
            opening()


def test_a_directory_is_not_opened_through_a_link_nor_a_file_as_one(state, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    Path(f"{state.path}/link").symlink_to(tmp_path / "elsewhere")
    state.open("file", "create").close()
    for name in ("link", "file"):
        with pytest.raises(ForeignFileError):
            state.directory(name)
    with pytest.raises(FileNotFoundError):
        state.directory("nothing")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../state"])
def test_a_path_is_no_name(state, name):
    for call in (
        lambda: state.open(name, "read"),
        lambda: state.directory(name),
        lambda: state.unlink(name),
        lambda: state.replace(name, "x"),
        lambda: state.replace("x", name),
        lambda: state.remove_tree(name),
        lambda: state.make_directory(name),
    ):
        with pytest.raises(ValueError, match="no name"):
            call()


def test_entries_come_in_order_with_what_stands_there(state):
    state.open("b", "create").close()
    state.make_directory("a")
    Path(f"{state.path}/c").symlink_to("a")
    os.mkfifo(f"{state.path}/d")
    assert state.entries() == [Entry("a", "directory"), Entry("b", "file"), Entry("c", "other"), Entry("d", "other")]


def test_replace_puts_a_file_over_another_and_unlink_removes_a_name(state):
    first, second = state.open("first", "create"), state.open("second", "create")
    state.replace("second", "first")
    state.sync()
    assert state.stat("first") == (second.identity, 0)
    assert state.stat("second") is None
    state.unlink("first")
    assert state.entries() == []
    with pytest.raises(FileNotFoundError):
        state.unlink("first")
    first.close()
    second.close()


def test_a_tree_is_removed_without_following_links(state, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("kept")
    state.make_directory("tree")
    tree = state.directory("tree")
    tree.make_directory("deep")
    tree.open("file", "create").close()
    Path(f"{tree.path}/link").symlink_to(tmp_path / "elsewhere")
    Path(f"{state.path}/link").symlink_to(tmp_path / "elsewhere")
    tree.close()
    state.remove_tree("tree")
    with pytest.raises(OSError, match="symbolic link"):
        state.remove_tree("link")
    assert state.stat("tree") is None
    assert (tmp_path / "elsewhere" / "kept").read_text() == "kept"


def test_one_descriptor_at_a_time_holds_the_lock_until_it_is_closed(state):
    other = open_state_directory(state.path)
    assert state.lock()
    assert state.lock()
    assert not other.lock()
    state.close()
    assert other.lock()
    other.close()
    other.close()


@pytest.mark.parametrize("fate", ["deleted", "moved", "replaced", "its parent moved", "a file in its place"])
def test_a_directory_that_is_gone_from_its_path_is_not_still_there(tmp_path, fate):
    (tmp_path / "state" / "relays").mkdir(parents=True)
    state = open_state_directory(str(tmp_path / "state"))
    relays = state.directory("relays")
    assert state.still_there()
    assert relays.still_there()
    match fate:
        case "deleted":
            state.remove_tree("relays")
        case "moved":
            state.replace("relays", "elsewhere")
        case "replaced":
            state.replace("relays", "elsewhere")
            state.make_directory("relays")
        case "its parent moved":
            (tmp_path / "state").rename(tmp_path / "elsewhere")
            assert not state.still_there()
        case _:
            state.remove_tree("relays")
            state.open("relays", "create").close()
    assert not relays.still_there()
    relays.close()
    state.close()


def test_the_state_directory_is_made_with_the_parents_it_lacks_only_when_asked(tmp_path):
    path = tmp_path / "a" / "b"
    with pytest.raises(FileNotFoundError):
        open_state_directory(str(path))
    for _ in range(2):
        open_state_directory(str(path), make=True).close()
    assert mode_of(path) == mode_of(path.parent) == 0o700


def test_a_state_directory_that_is_a_file_is_refused_and_one_behind_a_link_opened(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ForeignFileError):
        open_state_directory(str(tmp_path / "file"))
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")
    with contextlib.closing(open_state_directory(str(tmp_path / "link"))) as linked:
        assert linked.path == str(tmp_path / "link")
        (tmp_path / "link").unlink()
        assert not linked.still_there()


def test_storage_opens_from_its_reserve_when_clients_used_up_the_descriptors(state):
    state.make_directory("below")
    with descriptors_used_up():
        opened = [state.open(f"{at}", "create") for at in range(RESERVE_DESCRIPTORS - 1)]
        below = state.directory("below")
        with pytest.raises(OSError, match="Too many open files") as failed:
            state.open("one more", "create")
        assert lacks_descriptors(failed.value)
        for each in opened:
            each.close()
        assert len(state.entries()) == RESERVE_DESCRIPTORS
        again = [state.open(f"{at}", "read") for at in range(RESERVE_DESCRIPTORS - 1)]
        for each in [*again, below]:
            each.close()


def test_a_file_refused_for_its_kind_or_closed_twice_leaves_no_descriptor_behind(state):
    os.mkfifo(f"{state.path}/fifo")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(ForeignFileError):
            state.open("fifo", "read")
        made = state.open("file", "create")
        made.close()
        made.close()
        state.unlink("file")
        open_state_directory(state.path).close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_is_storage_full(code):
    said = storage_error(OSError(code, os.strerror(code)), "appending to relay demo")
    assert isinstance(said, StorageFullError)
    assert said.message.startswith(f"appending to relay demo: no room ({os.strerror(code)})")


def test_a_short_write_is_storage_full():
    assert isinstance(storage_error(ShortWriteError(3, 9), "appending"), StorageFullError)


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENOENT])
def test_everything_else_is_storage_failed(code):
    said = storage_error(OSError(code, os.strerror(code)), "appending to relay demo")
    assert isinstance(said, StorageFailedError)
    assert os.strerror(code) in said.message
    assert said.retryable
