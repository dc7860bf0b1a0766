"""The command line itself: help that teaches, errors that say what to do, exit codes (docs/reference/cli.md)."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from relayd.cli import commands, options, run
from relayd.cli.commands import COMMANDS, relayd
from relayd.client.errors import ConnectionLostError, NotConnectedError, ProtocolViolationError
from relayd.protocol import errors
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import PositionDetail, UnavailableDetail

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()

LEAVES = sorted({*COMMANDS, "config show"} - {"config"})


def failing(monkeypatch, error):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(options, "Client", fail)


@pytest.mark.parametrize("command", LEAVES)
def test_help_of_each_command_teaches_with_an_example(command):
    result = CliRunner().invoke(relayd, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert re.search(rf"(\$ |: +)(.*\| )?(\w+=\S+ )*relayd {command}", result.stdout), result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_list_is_there_under_its_name_and_stands_in_the_page(command):
    lazy = COMMANDS[command]
    found = relayd.get_command(click.Context(relayd), command)
    assert found is not None
    assert found.name == command
    assert lazy.summary.endswith(".")
    assert f"| `{command}" in PAGE


def test_the_list_of_commands_is_printed_without_importing_any():
    script = "import sys; from relayd.cli.run import run; run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert all(f"relayd.cli.{lazy.module}'" not in done.stderr for lazy in COMMANDS.values())
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 64, "No such command 'nonsense'; `relayd --help` lists the commands"),
        (["recrod"], 64, "did you mean `record`?"),
        (["follow", "a", "--from", "latest", "--after", "3"], 64, "both say where to begin"),
        (["status"], 64, "Missing argument 'RELAY'"),
        (["status", "NO"], 64, "'NO' is no relay's name; 1 to 64 of a-z 0-9"),
        (["status", "--nonsense", "a"], 64, "No such option"),
        (["follow", "a", "--after", "01"], 64, "'01' is no cursor; one looks like 42"),
        (["follow", "a", "--after", "1", "--cursor-file", "f"], 64, "both say where to begin"),
        (["follow", "a", "-n", "0"], 64, "0 is not in the range"),
        (["record", "a", "--kind", "relay.created"], 64, "one of relayd's own kinds"),
        (["record", "a", "--kind", "No"], 64, "is no kind"),
        (["record", "a", "--producer", " "], 64, "cannot be a name"),
        (["open", "a", "--retention", "8MB"], 64, "neither checkpointed, acknowledged, nor a size"),
        (["acknowledge", "a", "3"], 64, "a cursor with its digest is needed"),
        ([], 64, "Usage: relayd"),
        (["completion", "tcsh"], 64, "'tcsh' is not one of"),
        (["config", "show", "--config", "/nonexistent"], 78, "the settings file /nonexistent cannot be read"),
        (["serve", "--idle-relay", "soon"], 78, "`--idle-relay` is 'soon'; what belongs there is seconds"),
    ],
)
def test_what_is_wrong_is_said_on_standard_error_with_its_code(arguments, code, said, capsys):
    assert run.run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


CURSOR = Cursor(3, bytes(16))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotConnectedError("x"), 69),
        (NotConnectedError("x", silent=True), 75),
        (ConnectionLostError("x"), 75),
        (ProtocolViolationError("x"), 65),
        (errors.InvalidRequestError("x"), 64),
        (errors.HelloRequiredError("x"), 70),
        (errors.IncompatibleProtocolError("x"), 69),
        (errors.ForbiddenError("x"), 77),
        (errors.NotFoundError("x"), 66),
        (errors.AlreadyExistsError("x"), 65),
        (errors.InvalidStateError("x"), 65),
        (errors.ConflictError("x"), 65),
        (errors.DesynchronizedError("x", PositionDetail("ahead", CURSOR, CURSOR, CURSOR)), 65),
        (errors.TooLargeError("x"), 65),
        (errors.OverloadedError("x"), 75),
        (errors.StorageFullError("x"), 75),
        (errors.StorageFailedError("x"), 74),
        (errors.UnavailableError("x", UnavailableDetail("journal_corrupt", "do so")), 69),
        (errors.RelayRemovedError("x"), 69),
        (errors.ShuttingDownError("x"), 75),
        (errors.WaitTimeoutError("x"), 75),
        (errors.RequestCancelledError("x"), 75),
        (errors.InternalError("x"), 70),
        (FileNotFoundError(2, "No such file or directory", "f"), 66),
        (PermissionError(13, "Permission denied", "f"), 77),
        (OSError(5, "Input/output error", "f"), 74),
        (ZeroDivisionError("x"), 70),
    ],
)
def test_each_error_has_its_exit_code_and_one_sentence(error, code, monkeypatch, capsys):
    failing(monkeypatch, error)
    assert run.run(["relays"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("relayd: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [["verify"], ["verify", "--all"], ["verify", "--json"], ["cat"], ["restore", "STATE", "r"], ["salvage"]],
)
def test_a_file_that_is_not_there_is_66(arguments, tmp_path, capsys):
    missing = str(tmp_path / "no")
    arguments = [str(tmp_path) if word == "STATE" else word for word in arguments]
    assert run.run([*arguments, missing, *(["r"] if arguments == ["salvage"] else [])]) == 66
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"relayd: nothing is at {missing}\n")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"config"}))
def test_the_page_names_arguments_as_the_help_does(command):
    (row,) = re.findall(rf"^\| `{command}([^`]*)` \|", PAGE, re.MULTILINE)
    usage = CliRunner().invoke(relayd, [command, "--help"], terminal_width=200).stdout.split("\n\n")[0]
    wanted = [
        re.sub(r"[\[\]{}]", "", word)
        for word in usage.split()
        if word not in ("Usage:", "relayd", "[OPTIONS]", command)
    ]
    wanted = ["SHELL" if "|" in word else word.replace("...", "…") for word in wanted]
    assert re.sub(r" -o FILE|[\[\]]", "", row).split() == wanted


def test_a_relay_that_is_not_there_names_the_list(monkeypatch, capsys):
    failing(monkeypatch, errors.NotFoundError("no", errors.NameDetail("relay", "bild")))
    assert run.run(["status", "bild"]) == 66
    assert capsys.readouterr().err == "relayd: no\n  `relayd relays` lists the relays there are; bild is none of them\n"


@pytest.mark.parametrize(
    ("environ", "flags", "told"),
    [
        ({"RELAYD_SOCKET": "/x/s"}, [], True),
        ({}, ["--socket", "/x/s"], True),
        ({"RELAYD_SOCKET": "/x/s"}, ["--state", "/x/state"], False),
        ({}, [], False),
    ],
)
def test_serve_tells_of_a_fresh_default_state_by_a_named_socket(environ, flags, told, monkeypatch, tmp_path):
    for name in ("RELAYD_SOCKET", "RELAYD_STATE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("relayd.daemon.settings.default_state", lambda _environ: str(tmp_path / "fresh"))
    monkeypatch.setattr("relayd.daemon.service.run", lambda _settings, **_more: 0)
    said = []
    monkeypatch.setattr("relayd.cli.serve.say", said.append)
    assert run.run(["serve", *flags]) == 0
    fresh = tmp_path / "fresh"
    expected = f"relayd: begins with an empty state directory, {fresh} by default; --state names another"
    assert said == [expected] * told


def test_settings_of_few_words_and_paths_complete():
    serve = relayd.get_command(click.Context(relayd), "serve")
    context = click.Context(serve)
    parameters = {parameter.name: parameter for parameter in serve.params}
    found = parameters["log_level"].shell_complete(context, "w")
    assert [item.value for item in found] == ["warning"]
    assert [item.type for item in parameters["state"].shell_complete(context, "")] == ["file"]


def test_every_error_of_the_protocol_has_an_exit_code_of_its_own_choice():
    assert set(errors.ERRORS) <= set(run.EXIT_CODES)


def test_a_relay_that_does_not_open_says_where_and_what_to_run(monkeypatch, capsys):
    detail = UnavailableDetail("journal_corrupt", "run `relayd verify`", "/s/active.log", 48)
    failing(monkeypatch, errors.UnavailableError("it does not open", detail))
    run.run(["relays"])
    assert capsys.readouterr().err == (
        "relayd: it does not open\n  reason: journal_corrupt in /s/active.log at byte 48\n  run `relayd verify`\n"
    )


def test_a_message_cannot_steer_the_terminal(monkeypatch, capsys):
    failing(monkeypatch, errors.InternalError("a\x1b[2Jb\nc"))
    run.run(["relays"])
    assert capsys.readouterr().err == "relayd: a\\x1b[2Jb\\nc\n"


def test_a_traceback_is_shown_where_it_is_asked_for(monkeypatch, capsys):
    failing(monkeypatch, ZeroDivisionError("x"))
    monkeypatch.setenv("RELAYD_TRACEBACK", "1")
    assert run.run(["relays"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_interruption_and_a_broken_pipe_are_left_to_the_process(monkeypatch):
    for error in (KeyboardInterrupt(), BrokenPipeError()):
        failing(monkeypatch, error)
        with pytest.raises(type(error)):
            run.run(["relays"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_of_that_shell(shell):
    result = CliRunner().invoke(relayd, ["completion", shell])
    assert result.exit_code == 0
    assert "_RELAYD_COMPLETE" in result.stdout


def test_completion_of_relays_is_empty_without_a_daemon():
    environment = {
        **os.environ,
        "_RELAYD_COMPLETE": "bash_complete",
        "COMP_WORDS": "relayd status b",
        "COMP_CWORD": "2",
        "RELAYD_SOCKET": "/nonexistent/relayd.sock",
    }
    done = subprocess.run(
        [sys.executable, "-m", "relayd"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_config_show_prints_a_settings_file_that_means_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RELAYD_IDLE_RELAY", "7")
    assert run.run(["config", "show"]) == 0
    text = capsys.readouterr().out
    file = tmp_path / "relayd.toml"
    file.write_text(text)
    monkeypatch.delenv("RELAYD_IDLE_RELAY")
    assert run.run(["config", "show", "--config", str(file)]) == 0
    assert capsys.readouterr().out == text
    assert "idle_relay = 7.0\n" in text


def test_config_show_origin_says_where_each_value_comes_from(monkeypatch, capsys):
    monkeypatch.setenv("RELAYD_IDLE_RELAY", "7")
    assert run.run(["config", "show", "--origin"]) == 0
    out = capsys.readouterr().out
    assert "idle_relay = 7.0  # environment RELAYD_IDLE_RELAY\n" in out
    assert "# log_file is not set  # default\n" in out


def test_config_show_json_is_the_documented_map(monkeypatch, capsys):
    monkeypatch.setenv("RELAYD_IDLE_RELAY", "7")
    assert run.run(["config", "show", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["idle_relay"] == {"value": 7.0, "source": "environment", "where": "RELAYD_IDLE_RELAY"}
    assert document["log_file"] == {"value": None, "source": "default", "where": ""}


def test_version_is_said_in_three_ways(capsys):
    for arguments in (["version"], ["--version"]):
        assert run.run(arguments) == 0
        assert re.fullmatch(r"relayd \d+\.\d+\.\d+\n", capsys.readouterr().out)
    assert run.run(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"version", "protocol_versions", "python"}


ASKING = [
    ["relays"],
    ["status", "a"],
    ["open", "a"],
    ["follow", "a", "--no-wait"],
    ["record", "a"],
    ["acknowledge", "a", "1-" + "0" * 32],
    ["version"],
    ["config", "show"],
]


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_commands_that_only_ask_import_neither_trio_nor_structlog_nor_asyncio(arguments):
    script = (
        "import sys; from relayd.cli.run import run; code = run(sys.argv[1:]);"
        "print(code, sorted({'trio', 'anyio', 'structlog', 'asyncio', 'zstandard'} & set(sys.modules)))"
    )
    environment = {**os.environ, "RELAYD_SOCKET": "/nonexistent/relayd.sock"}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    offline = arguments[0] in ("version", "config")
    assert done.stdout.splitlines()[-1] == f"{0 if offline else 69} []"


def test_a_setting_that_is_wrong_is_told_before_trio_is_imported():
    script = (
        "import sys; from relayd.cli.run import run;"
        "code = run(['serve', '--idle-relay', 'x']); print(code, 'trio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "78 False\n"


def test_every_lazy_command_stands_where_the_table_says():
    assert all((Path(commands.__file__).parent / f"{lazy.module}.py").exists() for lazy in COMMANDS.values())
