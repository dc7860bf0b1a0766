"""What the README and the guides print is what happens: their blocks are run, in order, against a daemon.

`sh` and `python` blocks must end well; in `console` blocks what follows a `$ command` must be its output, apart from
times, digests and sizes. A block after `<!-- not run -->` is for the reader alone.
"""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs/start.md", *sorted(ROOT.glob("docs/guides/*.md"))]

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
NOT_RUN, KILLED = "not run", "the daemon is killed with SIGKILL and started again"

VARYING = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})?", "TIME"),
    (r"\b[0-9a-f]{32}\b", "HEX"),
    (r'"\$base64":"[^"]*"', "BINARY"),
    (r"\b\d+(\.\d+)? (B|KiB|MiB)\b", "SIZE"),
    (r'"disk_bytes":\d+', "DISK"),
    (r"\b\d+(\.\d+)? s\b", "SECONDS"),
    (r" +", " "),
]


class Block(NamedTuple):
    language: str
    text: str
    mark: str


def blocks_of(page):
    return [Block(found["language"], found["text"], found["mark"] or "") for found in BLOCK.finditer(page.read_text())]


def settled(text):
    """A line without what differs from run to run."""
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return text.strip()


def steps_of(console):
    """The commands of a console block with the lines that follow each."""
    return [
        (command, output.splitlines())
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE)
    ]


class Daemon:
    """`relayd serve` on a directory of its own, and commands beside it."""

    def __init__(self, directory):
        self.directory = directory
        (directory / "bin").mkdir()
        (directory / "work").mkdir()
        program = directory / "bin/relayd"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m relayd "$@"\n')
        program.chmod(0o700)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELAYD_")}
        more = {
            "PATH": f"{directory / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "STATE": str(directory / "state"),
        }
        self._environ = kept | more
        self._process = None

    def start(self):
        """Returns once it says that it serves."""
        command = ["relayd", "serve", "--state", str(self.directory / "state"), "--socket", str(self.directory / "s")]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, env=self._environ)
        said = b""
        while b'"serving"' not in said:
            assert select.select([self._process.stderr], [], [], 20)[0], said
            more = os.read(self._process.stderr.fileno(), 65536)
            assert more, said
            said += more

    def end(self, how):
        """Ends it with a signal; gives its exit status."""
        self._process.send_signal(how)
        self._process.communicate()
        return self._process.returncode

    def run(self, *command):
        """What a command prints, on either stream; it must end well."""
        environ = self._environ | {"RELAYD_SOCKET": str(self.directory / "s")}
        done = subprocess.run(
            command,
            cwd=self.directory / "work",
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def daemon(tmp_path):
    running = Daemon(tmp_path)
    running.start()
    yield running
    assert running.end(signal.SIGTERM) == 0


def run_console(daemon, text):
    for command, expected in steps_of(text):
        printed = [settled(line) for line in daemon.run("bash", "-o", "pipefail", "-c", command).splitlines()]
        wanted = [re.escape(settled(line)).replace("…", ".*") for line in expected]
        fits = len(printed) == len(wanted) and all(map(re.fullmatch, wanted, printed))
        assert fits, f"$ {command}\n" + "\n".join(printed)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_works_as_printed(page, daemon):
    for block in blocks_of(page):
        if block.mark == KILLED:
            assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
            daemon.start()
        match block.language:
            case _ if block.mark == NOT_RUN:
                pass
            case "sh":
                daemon.run("bash", "-e", "-o", "pipefail", "-c", block.text)
            case "python":
                daemon.run(sys.executable, "-W", "error", "-c", block.text)
            case "console":
                run_console(daemon, block.text)
            case other:
                assert other in ("text", "toml"), "a block is run, or its language says that it is none"


def test_every_page_has_blocks_that_are_run():
    assert [page.name for page in PAGES if not any(block.mark != NOT_RUN for block in blocks_of(page))] == []
