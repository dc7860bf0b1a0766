"""The program whose output the demo records: the interpreter compiling its own standard library."""

import subprocess
import sys
import sysconfig
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO, Final

import trio

from relayd.cli.demo_steps import DemoError

_RECEIVE_BYTES: Final = 64 * 1024
_NOT_ITS_OWN: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})


class Program:
    """`python -m compileall` over the standard library, again and again until `stop`.

    Every byte that it prints is kept in `printed` before anybody looks at it; what it compiles goes to `compiled`.
    """

    def __init__(self, printed: BinaryIO, compiled: Path) -> None:
        self.library = Path(sysconfig.get_path("stdlib"))
        self.count = 0
        self._printed = printed
        self._compiled = compiled
        self._stopped = False
        self._process: trio.Process | None = None

    async def lines(self) -> AsyncGenerator[bytes]:
        """Lines as they are printed, without their ends. Raises DemoError where nothing is."""
        rest = b""
        while not self._stopped:
            before = self.count
            process = self._process = await self._begin()
            assert process.stdout is not None
            while chunk := await process.stdout.receive_some(_RECEIVE_BYTES):
                self._printed.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self.count += 1
                    yield line
            status = await process.wait()
            if self.count == before and not self._stopped:
                raise DemoError(f"python -m compileall ended with status {status} and printed nothing")
        if rest:
            self.count += 1
            yield rest

    def stop(self) -> None:
        """It prints no more; what it has printed is still to be read."""
        self._stopped = True
        if self._process is not None:
            self._process.terminate()

    async def end(self) -> None:
        """Whatever has happened, it is gone after this."""
        self._stopped = True
        if self._process is not None:
            with trio.CancelScope(shield=True):
                self._process.kill()
                await self._process.wait()

    async def _begin(self) -> trio.Process:
        sources = _sources(self.library)
        if not sources:
            raise DemoError(f"{self.library} holds no source of the standard library to compile")
        prefix = f"pycache_prefix={self._compiled}"
        # A process group of its own: ^C is for the demo, which ends the program itself.
        return await trio.lowlevel.open_process(
            [sys.executable, "-u", "-X", prefix, "-m", "compileall", "-f", *sources],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )


def _sources(library: Path) -> list[str]:
    """The library's packages and modules, without what was installed beside them."""
    found = sorted(library.iterdir())
    return [str(path) for path in found if path.name not in _NOT_ITS_OWN and (path.is_dir() or path.suffix == ".py")]
