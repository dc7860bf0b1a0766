"""The kernel's side of a stopped call: a seccomp filter whose calls wait for another process to decide them.

A process that has installed `make_filter` stops inside each named call; whoever has the listener's descriptor receives
the call and answers it: go on, fail with an errno, return a number. Other calls cost nothing. Linux, x86_64.
"""

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Iterable
from typing import NamedTuple

NUMBERS = {
    "write": 1, "pwrite64": 18, "writev": 20, "pwritev": 296, "pwritev2": 328, "ftruncate": 77, "fsync": 74,
    "fdatasync": 75, "openat": 257, "rename": 82, "renameat": 264, "renameat2": 316, "unlink": 87, "unlinkat": 263,
    "rmdir": 84, "mkdir": 83, "mkdirat": 258, "sendto": 44, "sendmsg": 46, "pread64": 17, "newfstatat": 262, "fstat": 5,
    "statx": 332, "getdents64": 217, "flock": 73,
}  # fmt: skip
"""Numbers of x86_64."""

CHANGING = (
    "write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "fsync", "fdatasync", "openat", "rename",
    "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "sendto", "sendmsg",
)  # fmt: skip
"""Calls that change what is on disk, or what a client knows. Of `openat` those that may make or empty a file."""
EVERY = tuple(NUMBERS)

_ARCH_X86_64 = 0xC000003E
_RETURN, _LOAD, _EQUAL, _GREATER, _ANY_BIT = 0x06, 0x20, 0x15, 0x25, 0x45
_ALLOW, _NOTIFY, _NO_SYSTEM_CALL = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.ENOSYS
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_NO_NEW_PRIVILEGES = 38
_SECCOMP = 317

_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_WAKE_UP_SYNC = 1
_GO_ON = 1
_PIDFD_GETFD = 438

_libc = ctypes.CDLL(None, use_errno=True)


class Stopped(NamedTuple):
    """A call that waits. `id` is the kernel's, `tid` the thread's."""

    id: int
    tid: int
    number: int
    arguments: tuple[int, ...]


def unsupported() -> str | None:
    """Why calls cannot be stopped here; None where they can."""
    if platform.machine() != "x86_64":
        return f"the numbers of calls are those of x86_64, and this is {platform.machine()}"
    release = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    return None if release >= (5, 19) else f"stopped calls that only a kill ends need Linux 5.19, and this is {release}"


# In the process to be stopped


def make_filter(calls: Iterable[str], *, reads: bool) -> list[tuple[int, int, int, int]]:
    """BPF: the calls wait; writes to standard streams never do, nor does `openat` for reading without `reads`."""
    made = [(_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, _ARCH_X86_64), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _NUMBER_AT)]
    for name in calls:
        number = NUMBERS[name]
        if name in ("write", "writev"):
            first = (_LOAD, 0, 0, _ARGUMENTS_AT)
            made += [(_EQUAL, 0, 4, number), first, (_GREATER, 0, 1, 2), (_RETURN, 0, 0, _NOTIFY)]
            made += [(_RETURN, 0, 0, _ALLOW)]
        elif name == "openat" and not reads:
            flags = (_LOAD, 0, 0, _ARGUMENTS_AT + 2 * 8)
            made += [(_EQUAL, 0, 4, number), flags, (_ANY_BIT, 0, 1, os.O_CREAT | os.O_TRUNC)]
            made += [(_RETURN, 0, 0, _NOTIFY), (_RETURN, 0, 0, _ALLOW)]
        else:
            made += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
    return [*made, (_RETURN, 0, 0, _ALLOW)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def install(code: list[tuple[int, int, int, int]]) -> int:
    """Puts this process, and whatever it becomes, under the filter; the listener's descriptor."""
    encoded = b"".join(struct.pack("<HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(encoded, len(encoded))
    program = _Program(len(code), ctypes.addressof(buffer))
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    listener = _libc.syscall(_SECCOMP, _SET_FILTER, flags, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


# In the process that decides


def take_descriptor(pid: int, number: int) -> int:
    """A copy of another process's descriptor."""
    process = os.pidfd_open(pid)
    try:
        taken = _libc.syscall(_PIDFD_GETFD, process, number, 0)
        if taken < 0:
            raise OSError(ctypes.get_errno(), f"descriptor {number} of {pid}")
        return taken
    finally:
        os.close(process)


def wake_at_once(listener: int) -> None:
    """Stopped call and decision alternate on one processor: saves most of the waiting. Kernels before 6.6 do not."""
    try:
        fcntl.ioctl(listener, _SET_FLAGS, _WAKE_UP_SYNC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def receive(listener: int) -> Stopped | None:
    """The next call that waits; None where its process was killed meanwhile."""
    buffer = bytearray(80)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    call, tid, _, number, _, _, *arguments = struct.unpack("<QIIiIQ6Q", buffer)
    return Stopped(call, tid, number, tuple(arguments))


def _answer(listener: int, call: Stopped, value: int, error: int, flags: int) -> None:
    try:
        fcntl.ioctl(listener, _SEND, struct.pack("<QqiI", call.id, value, -error, flags))
    except OSError as gone:
        if gone.errno not in (errno.ENOENT, errno.EINPROGRESS):
            raise


def go_on(listener: int, call: Stopped) -> None:
    """The call is made as it was meant."""
    _answer(listener, call, 0, 0, _GO_ON)


def fail(listener: int, call: Stopped, number: int) -> None:
    """The call is not made, and fails with an errno."""
    _answer(listener, call, 0, number, 0)


def give(listener: int, call: Stopped, value: int) -> None:
    """The call is not made, and returns `value`."""
    _answer(listener, call, value, 0, 0)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of another process, up to the first that cannot be read."""
    buffer = ctypes.create_string_buffer(size)
    here, there = _Vector(ctypes.addressof(buffer), size), _Vector(address, size)
    taken = _libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if taken < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return buffer.raw[:taken]


def read_text(pid: int, address: int) -> str:
    """A path of another process. Reading ends with its page, so that it may be the last one mapped."""
    found = b""
    while b"\0" not in found:
        at = address + len(found)
        found += read_memory(pid, at, min(256, 4096 - at % 4096))
    return os.fsdecode(found[: found.index(b"\0")])
