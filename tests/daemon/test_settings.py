"""Settings: where values come from, which are refused and how it is said (docs/reference/settings.md)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relayd.daemon.settings import (
    SETTINGS,
    Origin,
    Settings,
    SettingsError,
    default_state,
    format_size,
    load_settings,
    reload_settings,
)
from relayd.daemon.settings_page import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def write_config(directory, text):
    config = directory / "relayd.toml"
    config.write_text(text)
    return str(config)


def refused(**given):
    with pytest.raises(SettingsError) as caught:
        load_settings(**{"environ": {}, **given})
    return caught.value.message


def test_without_anything_given_every_setting_has_a_value_and_the_origin_default():
    settings, origins = load_settings(environ={})
    assert list(origins) == list(Settings.__struct_fields__)
    assert set(origins.values()) == {Origin("default")}
    assert (settings.idle_relay, settings.segment_bytes, settings.socket_mode_bits) == (60.0, 8 * 1024 * 1024, 0o600)


def test_flag_wins_over_environment_over_file_over_default(tmp_path):
    config = write_config(tmp_path, "idle_relay = 1\ndrain = 1\nin_flight = 7\n")
    environ = {"RELAYD_IDLE_RELAY": "2", "RELAYD_DRAIN": "2"}
    settings, origins = load_settings(config=config, environ=environ, flags={"idle_relay": "3"})
    assert (settings.in_flight, settings.drain, settings.idle_relay, settings.waiting) == (7, 2.0, 3.0, 256)
    assert origins["in_flight"] == Origin("file", config)
    assert origins["drain"] == Origin("environment", "RELAYD_DRAIN")
    assert origins["idle_relay"] == Origin("flag", "--idle-relay")
    assert str(origins["drain"]) == "environment RELAYD_DRAIN"


def test_the_environment_can_name_the_file_and_the_argument_wins(tmp_path):
    config = write_config(tmp_path, "idle_relay = 4")
    assert load_settings(environ={"RELAYD_CONFIG": config}).settings.idle_relay == 4
    other = tmp_path / "other.toml"
    other.write_text("idle_relay = 5")
    assert load_settings(config=str(other), environ={"RELAYD_CONFIG": config}).settings.idle_relay == 5


@pytest.mark.parametrize(
    ("text", "size"),
    [("8388608", 8388608), ("8 MiB", 8388608), ("8mib", 8388608), ("64KiB", 65536), ("1 GiB", 2**30), ("5000 B", 5000)],
)
def test_sizes_are_bytes_or_have_a_unit(text, size, tmp_path):
    assert load_settings(environ={"RELAYD_SEGMENT_BYTES": text}).settings.segment_bytes == size
    assert (
        load_settings(config=write_config(tmp_path, f'segment_bytes = "{text}"'), environ={}).settings.segment_bytes
        == size
    )


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (100, "100"), (1024, "1 KiB"), (15 * 2**20, "15 MiB"), (2**30, "1 GiB")]
)
def test_sizes_are_written_with_the_largest_unit_that_is_exact(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"flags": {"idle_reley": "3"}}, "flags: there is no setting `idle_reley`; did you mean `idle_relay`?"),
        (
            {"environ": {"RELAYD_IDLE_RELEY": "3"}},
            "environment: there is no setting `RELAYD_IDLE_RELEY`; did you mean `RELAYD_IDLE_RELAY`?",
        ),
        ({"environ": {"RELAYD_ASKR": "3"}}, "did you mean `RELAYD_ASKER`?"),
        ({"environ": {"RELAYD_ZZZZZZ": "3"}}, "`relayd config show` lists all there are"),
        (
            {"environ": {"RELAYD_IDLE_RELAY": "soon"}},
            "`RELAYD_IDLE_RELAY` is 'soon'; what belongs there is seconds, from 0.1 to 86400",
        ),
        ({"environ": {"RELAYD_IDLE_RELAY": "nan"}}, "seconds, from 0.1"),
        ({"environ": {"RELAYD_IDLE_RELAY": "inf"}}, "seconds, from 0.1"),
        ({"environ": {"RELAYD_IDLE_RELAY": "0"}}, "seconds, from 0.1"),
        ({"environ": {"RELAYD_IN_FLIGHT": "0"}}, "a whole number from 1 to 65536"),
        ({"environ": {"RELAYD_IN_FLIGHT": "1.5"}}, "a whole number from 1 to 65536"),
        ({"environ": {"RELAYD_IN_FLIGHT_BYTES": "1 MiB"}}, "a size from 8 MiB to 1 GiB"),
        ({"environ": {"RELAYD_SEGMENT_BYTES": "8 MB"}}, "with KiB, MiB, GiB"),
        ({"environ": {"RELAYD_LOG_LEVEL": "loud"}}, "one of debug, error, info, warning"),
        ({"environ": {"RELAYD_SOCKET_MODE": "0999"}}, 'three octal digits in quotes, like "0600"'),
        ({"flags": {"idle_relay": "x"}}, "`--idle-relay` is 'x'"),
        (
            {"config": "/nonexistent/relayd.toml"},
            "No such file or directory; name another with --config or RELAYD_CONFIG",
        ),
        ({"flags": {"socket": "/" + "a" * 107}}, "is a path of 108 bytes; the system takes at most 107"),
    ],
)
def test_what_does_not_belong_is_refused_with_what_does(given, said):
    assert said in refused(**given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("idle_reley = 3", "relayd.toml: there is no setting `idle_reley`; did you mean `idle_relay`?"),
        ("[daemon]\nlease = 3", "relayd.toml: there is no setting `daemon`"),
        ('idle_relay = "3"', "relayd.toml: `idle_relay` is '3'; what belongs there is seconds"),
        ("idle_relay = true", "`idle_relay` is True"),
        ("idle_relay = nan", "seconds"),
        ("in_flight = 2.0", "a whole number"),
        ("socket_mode = 600", "three octal digits in quotes"),
        ("log_level = 3", "one of debug"),
        ("state = 3", "a path"),
        ('state = ""', "a path"),
        ("idle_relay = ", "relayd.toml is no TOML: "),
    ],
)
def test_what_does_not_belong_in_the_file_is_refused_with_its_place(text, said, tmp_path):
    assert said in refused(config=write_config(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path):
    config = tmp_path / "relayd.toml"
    config.write_bytes(b"\xff\xfe")
    assert "is no TOML" in refused(config=str(config))


def test_variables_of_the_clients_are_no_unknown_settings():
    names = ("CLIENT", "ASKER", "AUTHOR", "WORKER", "TRACEBACK")
    assert load_settings(environ={f"RELAYD_{name}": "someone" for name in names}).settings.idle_relay == 60


def test_a_variable_set_to_nothing_counts_as_not_set():
    assert load_settings(environ={"RELAYD_IDLE_RELAY": "", "RELAYD_NONSENSE": ""}).origins["idle_relay"] == Origin(
        "default"
    )


def test_relative_paths_begin_at_the_file_or_at_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", "/home/someone")
    config = write_config(tmp_path, 'state = "var"\nlog_file = "~/log"')
    settings = load_settings(config=config, environ={"RELAYD_SOCKET": "run/x.sock"}).settings
    assert settings.state == str(tmp_path / "var")
    assert settings.log_file == "/home/someone/log"
    assert settings.socket == "/run/x.sock"


def test_a_user_has_a_state_directory_of_their_own_and_root_the_machines(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_state({"XDG_STATE_HOME": "/x"}) == "/var/lib/relayd"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_state({"XDG_STATE_HOME": "/x"}) == "/x/relayd"
    assert default_state({}) == "/home/someone/.local/state/relayd"


def test_a_reload_takes_what_may_change_and_names_what_may_not():
    current = load_settings(environ={}).settings
    fresh = load_settings(
        environ={"RELAYD_IDLE_RELAY": "5", "RELAYD_STATE": "/elsewhere", "RELAYD_LOG_LEVEL": "debug"}
    ).settings
    settings, passed_over = reload_settings(current, fresh)
    assert (settings.idle_relay, settings.log_level, settings.state) == (5.0, "debug", current.state)
    assert passed_over == ["state"]


def test_no_two_settings_share_a_flag_or_variable_and_each_is_described():
    assert len({setting.flag for setting in SETTINGS.values()}) == len(SETTINGS)
    assert all(setting.description.endswith(".") and setting.expected for setting in SETTINGS.values())


def test_the_page_is_what_the_struct_says():
    assert PAGE.read_text() == settings_page(), (
        "run `python -m relayd.daemon.settings_page > docs/reference/settings.md`"
    )


def test_reading_settings_imports_neither_trio_nor_structlog():
    script = "import sys, relayd.daemon.settings; print({'trio', 'structlog', 'anyio', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
