"""Real processes against a real daemon: exit codes, signals, pipes, restarts (docs/reference/cli.md)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

RELAYD = [sys.executable, "-m", "relayd"]


class Daemon:
    """A daemon of its own state directory, which can be killed and started again."""

    def __init__(self, directory):
        self.state = directory / "state"
        self.socket = directory / "relayd.sock"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RELAYD_")},
            "RELAYD_SOCKET": str(self.socket),
        }
        self.start()

    def start(self):
        """Returns when the daemon serves."""
        arguments = ["serve", "--state", str(self.state), "--log-format", "json"]
        self.process = subprocess.Popen(
            [*RELAYD, *arguments], env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        for line in self.process.stderr:
            if '"serving"' in line:
                return
        raise AssertionError(f"the daemon ended with {self.process.wait()}")

    def end(self, number=signal.SIGKILL):
        """Its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(timeout=20)
        self.process.stderr.close()
        return code

    def run(self, *arguments, stdin=b""):
        """One command from start to end."""
        done = subprocess.run(
            [*RELAYD, *arguments], env=self.environment, input=stdin, capture_output=True, timeout=20, check=False
        )
        return SimpleNamespace(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    def begin(self, *arguments, **streams):
        """One command that goes on."""
        return subprocess.Popen([*RELAYD, *arguments], env=self.environment, **streams)

    def texts(self, relay="build"):
        """The texts of all `output` events, by their relay's own order."""
        lines = [json.loads(line) for line in self.run("follow", relay, "--no-wait", "--json").out.splitlines()]
        assert [line["ordinal"] for line in lines] == list(range(1, len(lines) + 1))
        return [line["data"]["text"] for line in lines if line["kind"] == "output"]


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon(tmp_path)
    yield daemon
    if daemon.process.poll() is None:
        daemon.end()


def quiet(process, code):
    """The process ended with this code and said nothing."""
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, b"")


def test_what_is_recorded_is_followed_and_each_command_exits_as_documented(daemon, tmp_path):
    assert daemon.run("relays", "--json").out == "[]\n"
    assert daemon.run("status", "build").code == 66
    done = daemon.run("record", "build", stdin=b"x\n")
    assert (done.code, done.err.splitlines()[-1]) == (66, "  `relayd record --create build` makes it first")
    assert daemon.run("record", "--create", "build", stdin=b"one\ntwo\n").code == 0
    assert daemon.texts() == ["one", "two"]
    assert daemon.run("open", "--create", "--retention", "64MiB", "build").code == 65
    status = json.loads(daemon.run("status", "build", "--json").out)
    assert (status["latest"].split("-")[0], status["execution"]) == ("3", "idle")
    assert daemon.run("acknowledge", "build", status["latest"]).out == status["latest"] + "\n"
    assert daemon.run("acknowledge", "build", "99-" + "0" * 32).code == 65
    assert daemon.run("follow", "build", "--no-wait", "--after", "99").code == 65
    (entry,) = json.loads(daemon.run("relays", "--json").out)
    assert (entry["relay"], entry["latest_ordinal"]) == ("build", 3)
    assert daemon.run("delete", "build").code == 64
    assert daemon.run("delete", "build", "--yes").code == 0
    assert daemon.run("relays", "--json").out == "[]\n"
    assert daemon.end(signal.SIGTERM) == 0
    done = daemon.run("relays")
    assert done.code == 69
    assert "relayd serve" in done.err


def test_a_named_producer_run_again_records_only_what_is_missing(daemon):
    arguments = ("record", "--create", "build", "--producer", "import", "--json")
    assert json.loads(daemon.run(*arguments, stdin=b"1\n2\n").out)["recorded"] == 2
    document = json.loads(daemon.run(*arguments, stdin=b"1\n2\n3\n").out)
    assert (document["recorded"], document["skipped"]) == (1, 2)
    document = json.loads(daemon.run(*arguments, stdin=b"1\n2\n3\n").out)
    assert (document["recorded"], document["skipped"]) == (0, 3)
    assert daemon.texts() == ["1", "2", "3"]


def test_a_daemon_killed_and_started_again_costs_a_recording_nothing(daemon):
    daemon.run("open", "--create", "build")
    recording = daemon.begin("record", "build", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    recording.stdin.write(b"before\n")
    recording.stdin.flush()
    seen = daemon.run("follow", "build", "--json", "-n", "2").out.splitlines()
    assert json.loads(seen[-1])["data"]["text"] == "before"
    daemon.end()
    recording.stdin.write(b"while it was gone\n" * 3)
    recording.stdin.flush()
    daemon.start()
    recording.stdin.write(b"after\n")
    _, err = recording.communicate(timeout=60)
    assert (recording.returncode, err) == (0, b"recorded 5 events in build, through 6\n")
    assert daemon.texts() == ["before", *["while it was gone"] * 3, "after"]


def test_follow_goes_on_across_a_restart_and_ends_quietly_at_an_interrupt(daemon):
    daemon.run("record", "--create", "build", stdin=b"one\n")
    follow = daemon.begin("follow", "build", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert [json.loads(follow.stdout.readline())["ordinal"] for _ in range(2)] == [1, 2]
    daemon.end()
    daemon.start()
    daemon.run("record", "build", stdin=b"two\n")
    assert json.loads(follow.stdout.readline())["ordinal"] == 3
    follow.send_signal(signal.SIGINT)
    quiet(follow, 130)


def test_a_reader_that_goes_away_ends_follow_quietly(daemon):
    daemon.run("record", "--create", "build", stdin=b"one\n")
    follow = daemon.begin("follow", "build", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    follow.stdout.readline()
    follow.stdout.close()
    daemon.run("record", "build", stdin=b"two\n" * 2)
    assert follow.wait(timeout=30) == 141
    assert follow.stderr.read() == b""
    follow.stderr.close()


def test_output_that_cannot_be_written_is_a_disk_error_and_no_cursor_is_kept(daemon, tmp_path):
    daemon.run("record", "--create", "build", stdin=b"one\n")
    file = tmp_path / "cursor"
    with Path("/dev/full").open("wb") as full:
        follow = daemon.begin(
            "follow", "build", "--no-wait", "--cursor-file", str(file), stdout=full, stderr=subprocess.PIPE
        )
        _, err = follow.communicate(timeout=30)
        listing = daemon.begin("relays", stdout=full, stderr=subprocess.PIPE)
        _, err_of_listing = listing.communicate(timeout=30)
    for code, said in ((follow.returncode, err), (listing.returncode, err_of_listing)):
        assert code == 74
        assert b"No space left on device" in said
        assert b"Traceback" not in said
    assert not file.exists()


def test_a_cursor_file_joins_two_followings_without_a_hole_or_a_repetition(daemon, tmp_path):
    file = str(tmp_path / "cursor")
    daemon.run("record", "--create", "build", stdin=b"one\ntwo\n")
    first = daemon.run("follow", "build", "--json", "--cursor-file", file, "-n", "2")
    daemon.run("record", "build", stdin=b"three\n")
    second = daemon.run("follow", "build", "--json", "--cursor-file", file, "--no-wait")
    assert [json.loads(line)["ordinal"] for line in (first.out + second.out).splitlines()] == [1, 2, 3, 4]


def test_what_follow_prints_is_what_record_reads(daemon):
    values = [{"a": [1, None, {"$base64": "AP8="}]}, {"$map": {"$base64": "x"}}, "text", 2**64 - 1, -1.5]
    lines = "".join(json.dumps({"kind": "row", "data": value}) + "\n" for value in values)
    assert daemon.run("record", "--create", "one", "--json-lines", stdin=lines.encode()).code == 0
    shown = daemon.run("follow", "one", "--after", "1", "--no-wait", "--json").out
    assert [json.loads(line)["data"] for line in shown.splitlines()] == values
    assert daemon.run("record", "--create", "two", "--json-lines", stdin=shown.encode()).code == 0
    again = daemon.run("follow", "two", "--after", "1", "--no-wait", "--json").out
    assert [json.loads(line)["data"] for line in again.splitlines()] == values


def test_a_second_daemon_is_refused_in_one_sentence_and_the_first_serves_on(daemon):
    done = daemon.run("serve", "--state", str(daemon.state), "--socket", str(daemon.socket) + "2")
    assert done.code == 75
    assert "Traceback" not in done.err
    assert daemon.run("relays", "--json").out == "[]\n"


def test_a_backup_is_the_relay_again_under_a_name_of_ones_choice(daemon, tmp_path):
    file = str(tmp_path / "build.backup")
    daemon.run("record", "--create", "build", stdin=b"one\ntwo\n")
    document = json.loads(daemon.run("backup", "build", "-o", file, "--json").out)
    assert (document["records"], document["missing"]) == (3, [])
    assert daemon.run("verify", file).code == 0
    restored = json.loads(daemon.run("restore", str(daemon.state), "copy", file, "--json").out)
    assert (restored["records"], restored["latest"], restored["source"]) == (3, document["latest"], "backup")
    assert daemon.run("restore", str(daemon.state), "copy", file).code == 65
    shown = [daemon.run("follow", relay, "--no-wait", "--json").out for relay in ("build", "copy")]
    assert shown[0] == shown[1] != ""
    assert daemon.run("record", "copy", stdin=b"three\n").code == 0
    assert daemon.texts("copy") == ["one", "two", "three"]


def test_what_is_no_backup_makes_no_relay(daemon, tmp_path):
    file = tmp_path / "no.backup"
    file.write_bytes(b"no backup at all")
    done = daemon.run("restore", str(daemon.state), "copy", str(file))
    assert done.code == 65
    assert "Traceback" not in done.err
    assert daemon.run("relays", "--json").out == "[]\n"


def test_files_of_a_running_daemon_are_read_without_disturbing_it(daemon):
    daemon.run("record", "--create", "build", stdin=b"one\n")
    path = str(daemon.state / "relays" / "build")
    printed = daemon.run("cat", path)
    assert (printed.code, len(printed.out.splitlines())) == (0, 2)
    line = json.loads(daemon.run("verify", "--json", path).out)
    assert (line["damaged"], line["live"], line["records"]) == (False, True, 2)
    assert daemon.run("salvage", str(daemon.state), "build").code in (65, 75)
    assert daemon.run("record", "build", stdin=b"two\n").code == 0
