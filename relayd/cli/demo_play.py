"""The demo's play: what is started, killed, cut off and brought back, when, and what is asked in the end."""

import os
import random
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import trio

from relayd.cli.demo_daemon import DemoDaemon
from relayd.cli.demo_program import Program
from relayd.cli.demo_roles import RELAY, Reader, Worker
from relayd.cli.demo_steps import STEP_SECONDS, DemoError, Narrator, step, until
from relayd.protocol.errors import RelaydError

CUT_OFF_AT: Final = 0.3
BACK_AT: Final = 0.9
"""When the follower is cut off and comes back, as parts of the time that the program runs."""
COMPILED: Final = "compiled"
_PARENT_BYTES_MAX: Final = 70
"""The path of a socket may have 107 bytes."""
_ASIDE_SECONDS: Final = 0.002
"""A kill comes up to this long after a line was sent: before, in or after its write."""

INTERRUPTIONS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Kill(NamedTuple):
    """One SIGKILL: `unanswered` lines were on their way; seconds from the new start, and from the kill."""

    unanswered: int
    serving_seconds: float
    first_answer_seconds: float


class Outcome(NamedTuple):
    """What happened, for the account.

    `printed`: what the program printed. `read` and `followed`: the lines that the new reader and the follower got.
    `missed`: the lines that the follower caught up with. `directory`: where it is kept.
    """

    printed: bytes
    answered: int
    read: list[bytes]
    followed: list[bytes]
    missed: int
    kills: list[Kill]
    disk_bytes: int
    directory: Path | None = None


class Interrupted(Exception):  # noqa: N818 - no error
    """Somebody asked the demo to end: `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


async def play(seconds: float, kills: int, narrator: Narrator, *, keep: bool) -> Outcome:
    """Plays the demo, the program running for `seconds`.

    However it ends, it leaves no process behind, nor a directory without `keep`. Raises DemoError, and Interrupted at a
    signal.
    """
    with trio.open_signal_receiver(*INTERRUPTIONS) as signals, _directory(narrator, keep=keep) as place:
        daemon = DemoDaemon(place)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_interrupt, signals)
                outcome = await _play(place, daemon, seconds, kills, narrator)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            error = _reason(group)
            if isinstance(error, RelaydError | DemoError):
                raise DemoError(str(error), daemon.log_tail()) from error
            raise error from None
        return outcome._replace(directory=place if keep else None)


@contextmanager
def _directory(narrator: Narrator, *, keep: bool) -> Generator[Path]:
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _PARENT_BYTES_MAX:
        parent = "/tmp"  # noqa: S108 - what mkdtemp makes there is this user's alone
    place = Path(tempfile.mkdtemp(prefix="relayd-demo-", dir=parent))
    try:
        yield place
    except BaseException:
        if keep:
            narrator.tell(f"kept: {place}")
        raise
    finally:
        shutil.rmtree(place / COMPILED if keep else place, ignore_errors=True)


async def _play(place: Path, daemon: DemoDaemon, seconds: float, kills: int, narrator: Narrator) -> Outcome:
    with (place / "printed.txt").open("w+b", buffering=0) as printed:
        program = Program(printed, place / COMPILED)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(daemon.watch)
                outcome = await _Play(daemon, program, nursery, narrator).run(seconds, kills)
                nursery.cancel_scope.cancel()
        finally:
            await program.end()
            await daemon.end()
        return outcome._replace(printed=_content(printed))


def _reason(error: BaseException) -> BaseException:
    """What ended the play, of all that the tasks raised: a signal, if there was one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    reasons = [_reason(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions]
    return next((one for one in reasons if isinstance(one, Interrupted)), reasons[0])


async def _interrupt(signals: AsyncIterator[int]) -> None:
    async for number in signals:
        raise Interrupted(number)


class _Play:
    def __init__(self, daemon: DemoDaemon, program: Program, nursery: trio.Nursery, narrator: Narrator) -> None:
        self._daemon = daemon
        self._program = program
        self._nursery = nursery
        self._tell = narrator.tell
        self._narrator = narrator
        self._worker = Worker(daemon.socket)
        self._follower = Reader(daemon.socket)
        self._recorded = trio.Event()
        self._kills: list[Kill] = []
        self._missed = 0

    async def run(self, seconds: float, kills: int) -> Outcome:
        """All scenes, in order. What the program printed is for the caller to add."""
        await self._begin()
        async with trio.open_nursery() as talking:
            talking.start_soon(self._narrator.show, self._standing)
            began = trio.current_time()
            for part, scene in self._scenes(kills):
                await trio.sleep_until(began + seconds * part)
                await scene()
            await trio.sleep_until(began + seconds)
            await self._finish()
            talking.cancel_scope.cancel()
        reader = await self._read_afresh()
        await self._daemon.stop()
        return Outcome(
            b"",
            self._worker.answered,
            reader.lines,
            self._follower.lines,
            self._missed,
            self._kills,
            _disk_bytes(self._daemon.state / "relays" / RELAY),
        )

    def _scenes(self, kills: int) -> list[tuple[float, Callable[[], Coroutine[None, None, None]]]]:
        """What happens after which part of the time."""
        scenes: list[tuple[float, Callable[[], Coroutine[None, None, None]]]] = [
            (CUT_OFF_AT, self._cut_off),
            (BACK_AT, self._bring_back),
            *((BACK_AT * number / (kills + 0.5), self._kill) for number in range(1, kills + 1)),
        ]
        return sorted(scenes, key=lambda scene: scene[0])

    def _standing(self) -> str:
        worker = self._worker
        return f"{worker.sent} lines printed, {worker.answered} answered, the follower has {len(self._follower.lines)}"

    async def _begin(self) -> None:
        self._tell(f"a daemon starts in {self._daemon.state.parent}")
        took = await self._daemon.start()
        self._tell(f"it serves, after {took:.2f} s")
        self._tell(f"a program runs: python -m compileall -f, all of {self._program.library}")
        self._tell("a worker records each line that it prints; a follower reads along")
        self._nursery.start_soon(self._record)
        with step("the first answer to the worker"):
            await until(lambda: self._worker.answered > 0)
        self._nursery.start_soon(self._follower.follow)

    async def _record(self) -> None:
        await self._worker.run(self._program.lines())
        self._recorded.set()

    async def _kill(self) -> None:
        worker, number = self._worker, len(self._kills) + 1
        with step("a line that is on its way"):
            while True:
                await worker.took()
                await trio.sleep(random.uniform(0, _ASIDE_SECONDS))  # noqa: S311 - no secret
                if worker.unanswered:
                    break
        sent, answered, at = worker.sent, worker.answered, trio.current_time()
        await self._daemon.kill()
        self._tell(f"SIGKILL {number}: {answered} lines answered, {sent - answered} on their way")
        serving = await self._daemon.start()
        with step("the first answer after a restart"):
            await until(lambda: worker.answered > answered)
        first = trio.current_time() - at
        self._kills.append(Kill(sent - answered, serving, first))
        self._tell(
            f"  started again: serves after {serving:.2f} s, answers the worker {first:.2f} s after the kill;"
            f" {worker.sent - sent} more lines had been printed"
        )

    async def _cut_off(self) -> None:
        self._follower.cut_off()
        self._tell(f"the follower is cut off; the last that it has is event {self._follower.through.ordinal}")

    async def _bring_back(self) -> None:
        follower, worker = self._follower, self._worker
        had, target, at = len(follower.lines), worker.answered, trio.current_time()
        self._missed = target - had
        self._tell(f"the follower comes back: events after {follower.through.ordinal}, please")
        self._nursery.start_soon(follower.follow)
        with step("catching up"):
            await until(lambda: len(follower.lines) >= target)
        took = trio.current_time() - at
        self._tell(f"  it has what it missed, {self._missed} lines, after {took:.2f} s; now it reads live again")

    async def _finish(self) -> None:
        self._program.stop()
        at, follower = trio.current_time(), self._follower
        with step("the last answer to the worker"):
            await self._recorded.wait()
        latest = self._worker.latest
        took = trio.current_time() - at
        self._tell(f"the program is stopped; its last line is answered {took:.2f} s later")
        with step("the follower's last event"):
            await until(lambda: latest is None or follower.through.ordinal >= latest.ordinal)
        follower.cut_off()

    async def _read_afresh(self) -> Reader:
        """Through a daemon that never saw the lines pass."""
        await self._daemon.kill()
        await self._daemon.start()
        reader, at = Reader(self._daemon.socket), trio.current_time()
        with step("reading everything", 2 * STEP_SECONDS):
            await reader.read_all()
        took = trio.current_time() - at
        self._tell(
            f"killed and started once more: a new reader has all {reader.through.ordinal} events in {took:.2f} s"
        )
        return reader


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


def _disk_bytes(relay: Path) -> int:
    """The sizes of all files of a relay, as the system tells them."""
    return sum((Path(root) / name).stat().st_size for root, _, names in os.walk(relay) for name in names)
