"""`relayd demo`: the account finds every difference; the real thing runs, is interrupted and fails as documented."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from support.daemon import short_place

from relayd.cli import demo_daemon, demo_play
from relayd.cli.demo_account import Comparison, compare, data_of, line_of, lines_of
from relayd.cli.demo_play import Interrupted, Kill, Outcome
from relayd.cli.demo_report import judge
from relayd.cli.demo_steps import DemoError, Narrator, step

RELAYD = [sys.executable, "-m", "relayd"]
A, B, C, X = b"a", b"b", b"c", b"x"


@pytest.mark.parametrize(
    ("printed", "read", "expected"),
    [
        ([], [], Comparison(0, 0, 0, 0, in_order=True)),
        ([A, B, A], [A, B, A], Comparison(3, 0, 0, 0, in_order=True)),
        ([A, B, C], [A, C], Comparison(2, 1, 0, 0, in_order=True)),
        ([A, B], [], Comparison(0, 2, 0, 0, in_order=True)),
        ([A, B, A], [A, B], Comparison(2, 1, 0, 0, in_order=True)),
        ([A, B], [A, B, B], Comparison(3, 0, 1, 0, in_order=False)),
        ([A, A, B], [A, A, A, A, B], Comparison(5, 0, 2, 0, in_order=False)),
        ([A, B], [B, A], Comparison(2, 0, 0, 0, in_order=False)),
        ([A, B], [A, X], Comparison(2, 1, 0, 1, in_order=False)),
        ([A, B, C], [A, B, B], Comparison(3, 1, 1, 0, in_order=False)),
    ],
)
def test_each_line_lost_twice_altered_or_moved_is_counted(printed, read, expected):
    assert compare(printed, read) == expected
    assert expected.exact == (printed == read)


@pytest.mark.parametrize(
    ("content", "lines"), [(b"", []), (b"a\n", [A]), (b"a\n\nb", [A, b"", B]), (b"\n", [b""]), (b"a\r\n", [b"a\r"])]
)
def test_what_was_printed_is_cut_at_line_ends(content, lines):
    assert lines_of(content) == lines


@pytest.mark.parametrize("line", [b"", b"plain", "kälte \u2028".encode(), b"\xff\x00", b"a\r"])
def test_a_line_comes_back_from_its_event_as_it_was(line, make_event):
    assert line_of(make_event(1, data=data_of(line))) == line


def test_events_that_are_no_lines_are_none(make_event):
    assert line_of(make_event(1, kind="relay.created", data={"text": "a"})) is None
    assert line_of(make_event(1, data=["a"])) is None


def outcome(printed=b"a\nb\n", read=(A, B), followed=(A, B), answered=2):
    return Outcome(printed, answered, list(read), list(followed), 1, [Kill(3, 0.4, 0.61)], 5)


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (outcome(), True),
        (outcome(read=[A]), False),
        (outcome(read=[A, B, B]), False),
        (outcome(read=[B, A]), False),
        (outcome(followed=[B]), False),
        (outcome(followed=[A, A, B]), False),
        (outcome(answered=1), False),
        (outcome(printed=b"a\nb\nc\n"), False),
    ],
)
def test_the_account_is_right_only_where_nothing_is_lost_twice_or_unanswered(found, right):
    assert judge(found, 1.0)[1] is right


def planted(found, monkeypatch):
    async def play(*_, **__):
        await trio.lowlevel.checkpoint()
        return found

    monkeypatch.setattr(demo_play, "play", play)


def test_a_loss_ends_with_1_and_stands_in_the_account(command, monkeypatch):
    planted(outcome(read=[A], followed=[A, B, B]), monkeypatch)
    done = command("demo")
    assert done.code == 1
    rows = {line.split()[0]: line.split()[1] for line in done.out.splitlines()[1:7]}
    assert rows == {"sent": "2", "answered": "2", "read": "1", "lost": "1", "twice": "0", "altered": "0"}
    assert "lost 0, twice 1" in done.out
    assert "5 B on disk for 4 B printed (1.25x)" in done.out


def test_the_document_has_what_is_documented(command, monkeypatch):
    planted(outcome()._replace(directory=Path("/tmp/here")), monkeypatch)
    done = command("demo", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert document.pop("seconds") >= 0
    exact = {"read": 2, "lost": 0, "twice": 0, "altered": 0, "in_order": True}
    assert document == {
        "sent": 2, "answered": 2, **exact, "follower": exact, "missed": 1,
        "kills": [{"unanswered": 3, "serving_ms": 400, "first_answer_ms": 610}],
        "raw_bytes": 4, "disk_bytes": 5, "directory": "/tmp/here",
    }  # fmt: skip


@pytest.mark.parametrize("arguments", [("--seconds", "0"), ("--kills", "-1"), ("extra",)])
def test_a_wrong_option_is_64(command, arguments):
    assert command("demo", *arguments).code == 64


async def test_a_step_that_takes_too_long_fails_by_its_name():
    with pytest.raises(DemoError, match="the answer: that did not happen within 0 s"), step("the answer", 0):
        await trio.sleep_forever()


@pytest.fixture
def place():
    """A short directory that is the demo's TMPDIR."""
    with short_place() as place:
        yield place


def begin(place, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RELAYD_")}
    return subprocess.Popen(
        [*RELAYD, "demo", *arguments],
        env={**environment, "TMPDIR": str(place), "RELAYD_STATE": "/nowhere"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def nothing_is_left(place):
    """Neither files, nor processes that were told of the directory."""
    assert list(place.iterdir()) == []
    assert processes_of(place) == []


def processes_of(place):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(place) in words:
            found.append(words)
    return found


def test_a_real_run_loses_nothing_as_its_files_prove(place):
    process = begin(place, "--seconds", "2", "--kills", "1", "--keep", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert (document["lost"], document["twice"], document["altered"], document["in_order"]) == (0, 0, 0, True)
    assert document["sent"] == document["answered"] == document["read"] == document["follower"]["read"] > 0
    (kill,) = document["kills"]
    assert kill["unanswered"] > 0
    assert kill["serving_ms"] > 0
    for told in ("SIGKILL 1", "started again", "the follower is cut off", "comes back"):
        assert told in err
    kept = Path(document["directory"])
    assert kept.parent == place
    assert {path.name for path in kept.iterdir()} == {"daemon.log", "printed.txt", "state"}
    printed = (kept / "printed.txt").read_bytes()
    assert len(printed) == document["raw_bytes"]
    cat = subprocess.run([*RELAYD, "cat", str(kept / "state" / "relays" / "build")], capture_output=True, check=True)
    events = [json.loads(line) for line in cat.stdout.splitlines()]
    assert [event["data"]["text"] for event in events if event["kind"] == "output"] == printed.decode().splitlines()
    assert processes_of(place) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_interrupted_it_is_quiet_and_leaves_nothing(place, number):
    process = begin(place, "--seconds", "60", "--kills", "60")
    said = []
    for line in process.stderr:
        said.append(line)
        if "SIGKILL 1" in line:
            break
    assert "SIGKILL 1" in said[-1], said
    assert processes_of(place)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (128 + number, "")
    assert [line for line in err.splitlines() if " s  " not in line] == []
    nothing_is_left(place)


def test_a_daemon_that_does_not_serve_is_told_with_the_end_of_its_log(command, monkeypatch, tmp_path):
    monkeypatch.setattr(demo_play.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(demo_play, "_PARENT_BYTES_MAX", 1000)
    script = "print('no state today'); raise SystemExit(3)"
    monkeypatch.setattr(demo_daemon.DemoDaemon, "_command", lambda _: [sys.executable, "-c", script])
    done = command("demo")
    assert (done.code, done.out) == (1, "")
    assert "relayd: the demo failed: the daemon ended by itself, with status 3" in done.err
    assert "    no state today\n" in done.err
    nothing_is_left(tmp_path)


def test_a_daemon_that_dies_meanwhile_ends_the_demo(monkeypatch, place):
    """Not one of the demo's own kills."""
    monkeypatch.setattr(demo_play._Play, "_cut_off", _kill_from_outside)
    monkeypatch.setattr(demo_play.tempfile, "gettempdir", lambda: str(place))
    with pytest.raises(DemoError, match="ended by itself, with status -9") as raised:
        trio.run(partial(demo_play.play, 1.0, 0, Narrator(), keep=False))
    assert any("serving" in line for line in raised.value.log)
    nothing_is_left(place)


async def _kill_from_outside(play):
    play._daemon._process.kill()
    await trio.sleep_forever()


def test_a_signal_counts_more_than_what_else_went_wrong():
    group = BaseExceptionGroup("", [DemoError("late"), BaseExceptionGroup("", [Interrupted(2)])])
    assert isinstance(demo_play._reason(group), Interrupted)
