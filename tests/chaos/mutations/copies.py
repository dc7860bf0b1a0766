"""Copies of the repository to be mutated, and tests run in them.

A copy holds what tests need and nothing else; a test run in it imports the relayd in it, which is proven each time.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from chaos.mutations.mutation import Mutation

REPOSITORY = Path(__file__).resolve().parents[3]
COPIED = ("relayd", "tests", "docs", "bench", "scripts", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md")
TEST_SECONDS_MAX = 40
"""What a single test may take: a mutation that makes one wait for ever is caught too."""
TESTS_FAILED = 1
"""pytest's exit status where tests ran and some failed; every other one but 0 is trouble of another kind."""


class NotRunError(Exception):
    """Tests did not run to an end, which says nothing of what they test."""


class Copy:
    """A directory with the repository's files."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def mutate(self, mutation: Mutation) -> None:
        file = self.place / "relayd" / mutation.file
        file.write_text(mutation.applied_to(file.read_text()))
        # Python goes by time and size of a source, and a mutation may change neither.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()

    def prove_imported(self) -> None:
        """The relayd that runs here is the one here, also where another is installed."""
        command = [sys.executable, "-c", "import relayd; print(relayd.__file__)"]
        found = subprocess.run(
            command, cwd=self.place, env=self._environment(), capture_output=True, text=True, check=False
        )
        said = found.stdout.strip() or "none at all"
        assert said.startswith(f"{self.place}/"), f"tests would import another relayd: {said}"

    def failure(self, tests: tuple[str, ...], seconds: float) -> str | None:
        """Runs tests up to the first that fails, which is given; None where all pass. Raises NotRunError."""
        self.prove_imported()
        chosen = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS_MAX}", "--basetemp=t", "--tb=short"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *chosen, *tests],
            cwd=self.place,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise NotRunError(f"{' '.join(tests)} did not end in {seconds:.0f} s") from None
        finally:
            # Also what a test started and could not end.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode == TESTS_FAILED:
            return _first_failure(output)
        if process.returncode != 0:
            raise NotRunError(f"pytest ended with {process.returncode}: {output[-2000:]}")
        return None

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "RELAYD", "COV"))}
        return kept | {"PYTHONPATH": str(self.place)}


def _first_failure(output: str) -> str:
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ", 1)[0]
    return "a test without a name"


@contextlib.contextmanager
def temporary_place() -> Iterator[Path]:
    """A directory with a short path, for all copies of one run: sockets below it need theirs to be short."""
    place = Path(tempfile.mkdtemp(prefix="rm-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def copy_repository(place: Path) -> Copy:
    """The repository as it is now."""
    place.mkdir()
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", "t"))
        elif source.exists():
            shutil.copy2(source, place / name)
    return Copy(place)


@contextlib.contextmanager
def copy_of(original: Copy, place: Path) -> Iterator[Copy]:
    """Another one of the same, with what Python compiled; gone afterwards."""
    shutil.copytree(original.place, place, ignore=shutil.ignore_patterns("t"))
    try:
        yield Copy(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
