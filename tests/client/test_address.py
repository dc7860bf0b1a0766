import pytest

from relayd.protocol.address import default_socket


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"RELAYD_SOCKET": "/a/s", "XDG_RUNTIME_DIR": "/run/user/7"}, "/a/s"),
        ({"RELAYD_SOCKET": "", "XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/relayd/relayd.sock"),
        ({"XDG_RUNTIME_DIR": "/run/user/7/"}, "/run/user/7/relayd/relayd.sock"),
        ({"XDG_RUNTIME_DIR": ""}, "/run/relayd/relayd.sock"),
        ({}, "/run/relayd/relayd.sock"),
    ],
)
def test_the_first_that_is_said_is_the_socket(environ, path):
    assert default_socket(environ) == path


def test_without_a_mapping_it_is_the_process_environment(monkeypatch):
    monkeypatch.setenv("RELAYD_SOCKET", "/from/environment")
    assert default_socket() == "/from/environment"
