"""Reads what `strace -f -y -xx` wrote of the daemon: every call, with its bytes, when it began and when it returned."""

import re
from pathlib import Path
from typing import NamedTuple

TRACED = (
    "open,openat,creat,pwrite64,pwritev,pwritev2,write,writev,ftruncate,truncate,fallocate,fsync,fdatasync,"
    "sync_file_range,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,"
    "copy_file_range,sendfile,close,dup,dup2,dup3,sendto,sendmsg,recvfrom,recvmsg"
)
"""Every call that can change bytes or names of files, the syncs, and what comes from clients and goes to them."""

ARGUMENTS = ["-f", "-y", "-xx", "-s", str(1 << 26), "-e", f"trace={TRACED}", "-e", "signal=KILL"]

_LINE = re.compile(r"(\d+) +(.*)")
_WHOLE = re.compile(r"(\w+)\((.*)\) += (.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_DESCRIPTOR = re.compile(r"(-?\d+|AT_FDCWD)(?:<([^>]*)>)?")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_UNFINISHED = " <unfinished ...>"


class Call(NamedTuple):
    """One call. `began` and `returned` are places in the log; `returned` is None where the process died in it.

    `arguments` and `result` are as strace says them; `value` is the result as a number, None where there is none.
    """

    name: str
    arguments: str
    result: str
    began: int
    returned: int | None
    process: int = 0
    thread: str = ""

    @property
    def value(self) -> int | None:
        found = re.match(r"-?\d+", self.result)
        return None if found is None else int(found[0])

    @property
    def succeeded(self) -> bool:
        return self.value is not None and self.value >= 0

    @property
    def opened(self) -> int:
        """The descriptor that it gave."""
        assert self.value is not None, self
        return self.value

    def descriptor(self, at: int = 0) -> int:
        """The `at`-th descriptor among the arguments; AT_FDCWD is -1."""
        text = _DESCRIPTOR.findall(self._plain())[at][0]
        return -1 if text == "AT_FDCWD" else int(text)

    @property
    def place(self) -> str:
        """What the first descriptor names, as the kernel said: `socket:[123]`, a file's path."""
        found = _DESCRIPTOR.match(self.arguments)
        return unhex(found[2] or "").decode() if found else ""

    def strings(self) -> list[bytes]:
        """The strings among the arguments: names, or the bytes of each buffer."""
        found = _STRING.findall(self.arguments)
        assert not any(cut for _, cut in found), f"strace cut a string of {self.name}: raise -s"
        return [unhex(text) for text, _ in found]

    def numbers(self) -> list[int]:
        """The plain numbers behind the last bracket or string: offsets, sizes, modes."""
        tail = re.split(r'[\]"]', self._plain())[-1]
        return [int(text, 8 if text.startswith("0") and len(text) > 1 else 10) for text in re.findall(r"\b\d+\b", tail)]

    def _plain(self) -> str:
        """The arguments without the bytes."""
        return _STRING.sub('""', self.arguments)


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def parse(text: str, process: int = 0, base: int = 0) -> list[Call]:
    """The calls of one process in the order they began; `base` is the place of its first line."""
    begun: dict[str, tuple[str, int]] = {}
    calls: list[Call] = []
    for at, line in enumerate(text.splitlines(), base):
        found = _LINE.fullmatch(line)
        assert found is not None, f"no line of strace: {line[:200]}"
        thread, said = found[1], found[2]
        if said.startswith(("+++", "---")):
            continue
        if said.endswith(_UNFINISHED):
            begun[thread] = (said.removesuffix(_UNFINISHED), at)
            continue
        resumed, began = _RESUMED.fullmatch(said), at
        if resumed is not None:
            if thread not in begun:
                # A call that strace was told of before it followed the thread.
                continue
            head, began = begun.pop(thread)
            said = head + resumed[2]
        calls.append(_call(said, began, at)._replace(process=process, thread=thread))
    # A process that was killed leaves calls that never returned.
    for thread, (head, began) in begun.items():
        name, arguments = head.split("(", 1)
        calls.append(Call(name, arguments, "?", began, None, process, thread))
    return sorted(calls, key=lambda call: call.began)


def _call(said: str, began: int, returned: int) -> Call:
    whole = _WHOLE.fullmatch(said)
    assert whole is not None, f"no call: {said[:200]}"
    name, arguments, result = whole.groups()
    died = result.startswith("?")
    return Call(name, arguments, result, began, None if died else returned)


def parse_files(files: list[Path]) -> list[Call]:
    """The logs of processes that ran one after the other on the same files, as one."""
    calls: list[Call] = []
    base = 0
    for process, file in enumerate(files):
        text = file.read_text(encoding="ascii")
        calls += parse(text, process, base)
        base += text.count("\n") + 1
    return calls
