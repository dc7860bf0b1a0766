"""The model of the files, against states worked out by hand."""

import pytest
from chaos.syscalls.disk import Cut, Directory, File, Link, Rename, Unlink, Write
from chaos.syscalls.machine import Machine
from chaos.syscalls.states import Bounds, states_of
from chaos.syscalls.strace_log import parse

PLENTY = 10_000


def contents(file: File) -> set[bytes]:
    found = file.variants(PLENTY, 1)
    assert found.complete
    assert len({content.data for content in found.contents}) == len(found.contents), "each once"
    return {content.data for content in found.contents}


def test_an_append_within_a_piece_is_there_not_there_or_zeros():
    file = File(b"abc")
    file.change(Write(3, b"defg"))
    assert contents(file) == {b"abc", b"abcdefg", b"abc\0\0\0\0"}


def test_of_an_append_across_pieces_each_may_be_missing_and_any_size_between_may_stand():
    file = File(b"a" * 500)
    file.change(Write(500, b"b" * 600))
    old, first, second, third = b"a" * 500, b"a" * 500 + b"b" * 12, b"b" * 512, b"b" * 76
    none = b"a" * 500 + bytes(12)
    expected = {old}
    expected |= {none, first}
    expected |= {a + b for a in (none, first) for b in (bytes(512), second)}
    expected |= {a + b + c for a in (none, first) for b in (bytes(512), second) for c in (bytes(76), third)}
    assert contents(file) == expected


def test_what_was_written_twice_may_be_on_disk_as_it_was_at_any_time():
    file = File(b"0")
    for version in (b"1", b"2", b"3"):
        file.change(Write(0, version))
    assert contents(file) == {b"0", b"1", b"2", b"3"}


def test_an_unsynced_cut_may_have_happened_or_not_and_what_was_cut_off_may_be_zeros():
    file = File(b"a" * 600)
    file.change(Cut(512))
    assert contents(file) == {b"a" * 600, b"a" * 512, b"a" * 512 + bytes(88)}


def test_a_sync_covers_what_had_been_written_when_it_began():
    file = File()
    file.change(Write(0, b"one"))
    file.change(Write(3, b"two"))
    file.synced(1)
    assert contents(file) == {b"one", b"onetwo", b"one\0\0\0"}


def test_more_contents_than_are_asked_for_are_drawn_the_same_by_the_same_seed():
    def drawn(seed):
        file = File(b"x")
        file.change(Write(1, b"y" * 10_000))
        return file.variants(50, seed)

    assert not drawn(1).complete
    assert drawn(1).contents == drawn(1).contents
    assert drawn(1).contents != drawn(2).contents
    assert [len(content.data) for content in drawn(1).contents[:3]] == [1, 10_001, 10_001]


def test_names_reach_the_disk_in_order_and_each_file_by_itself():
    """A name without its bytes, bytes without a name, and neither ahead of the names before it."""
    root, relays, relay, file = Directory(), Directory(), Directory(), File()
    root.change(Link("state", Directory()))
    root.names["state"].change(Link("relays", relays))
    relays.change(Link("kept", relay))
    for directory in (root, root.names["state"], relays):
        directory.synced(1)
    relay.change(Link("a.new", file))
    file.change(Write(0, b"A"))
    relay.change(Rename("a.new", "a"))
    relay.change(Link("b", File(b"B")))
    relay.change(Unlink("a"))
    found = states_of(root, (relay,), Bounds(), 1)
    assert found.complete
    shown = {tuple((path, content.data) for path, content in state.files) for state in found.states}
    either = [b"", b"A", b"\0"]
    assert shown == {
        (),
        *((("a.new", data),) for data in either),
        *((("a", data),) for data in either),
        *((("a", data), ("b", b"B")) for data in either),
        (("b", b"B"),),
    }


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


LOG = f"""\
7     openat(AT_FDCWD, "{hexed("/p/state")}", O_RDONLY|O_DIRECTORY) = -1 ENOENT (No such file or directory)
7     mkdir("{hexed("/p/state")}", 0700) = 0
7     openat(AT_FDCWD, "{hexed("/p/state")}", O_RDONLY|O_DIRECTORY) = 3<{hexed("/p/state")}>
7     openat(3<{hexed("/p/state")}>, "{hexed("f")}", O_RDWR|O_CREAT|O_EXCL, 0600 <unfinished ...>
9     recvfrom(5<{hexed("socket:[1]")}>, "{hexed("x")}", 65536, 0, NULL, NULL) = 1
7     <... openat resumed>)             = 4<{hexed("/p/state/f")}>
7     pwritev2(4<{hexed("/p/state/f")}>, [{{iov_base="{hexed("ab")}", iov_len=2}}, {{iov_base="{hexed("cd")}", \
iov_len=2}}], 2, 0, 0) = 3
7     fdatasync(4<{hexed("/p/state/f")}> <unfinished ...>
9     pwritev2(4<{hexed("/p/state/f")}>, [{{iov_base="{hexed("zz")}", iov_len=2}}], 1, 3, 0) = 2
7     <... fdatasync resumed>)          = 0
7     ftruncate(4<{hexed("/p/state/f")}>, 4) = -1 EIO (Input/output error)
7     fsync(3<{hexed("/p/state")}>)     = ?
7     +++ killed by SIGKILL +++
"""


def test_a_log_is_read_call_by_call():
    """A short write counts as short, a failed call not at all, a sync not for what was written while it went on."""
    machine = Machine("/p")
    steps = [(step.what, step.call.name) for step in machine.run(parse(LOG))]
    assert steps == [
        ("change", "mkdir"),
        ("change", "openat"),
        ("received", "recvfrom"),
        ("change", "pwritev2"),
        ("syncing", "fdatasync"),
        ("change", "pwritev2"),
        ("sync", "fdatasync"),
        ("syncing", "fsync"),
    ]
    file = machine.root.names["state"].names["f"]
    assert (file.content, file.durable) == (b"abczz", b"abc")
    assert machine.root.names["state"].durable == {}, "the process died in the sync of the directory"


def test_a_call_that_the_model_does_not_know_fails_the_recording():
    log = [*LOG.splitlines()[:6], f"7     fallocate(4<{hexed('/p/state/f')}>, 0, 0, 100) = 0"]
    with pytest.raises(AssertionError, match="fallocate"):
        list(Machine("/p").run(parse("\n".join(log))))
