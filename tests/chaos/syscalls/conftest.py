import pytest
from chaos.syscalls.recording import STRACE_MISSING, WITHOUT_STRACE
from chaos.syscalls.scenarios import SCENARIOS, record_everything, record_scenario
from chaos.syscalls.trial import Bench


@pytest.fixture(scope="session")
def everything_log(tmp_path_factory):
    """The directory of a recording in which everything happens and nothing is killed, and the recording."""
    if STRACE_MISSING:
        pytest.skip(WITHOUT_STRACE)
    directory = tmp_path_factory.mktemp("everything")
    return directory, record_everything(directory)


@pytest.fixture(scope="session")
def everything(everything_log):
    return everything_log[1]


@pytest.fixture(scope="session")
def restarted(tmp_path_factory):
    """Gives the recording of a scenario with a kill and a restart, made when it is first asked for."""
    if STRACE_MISSING:
        pytest.skip(WITHOUT_STRACE)
    known = {}

    def recording_of(name: str):
        if name not in known:
            known[name] = record_scenario(tmp_path_factory.mktemp(name), SCENARIOS[name])
        return known[name]

    return recording_of


@pytest.fixture
def bench():
    with Bench() as bench:
        yield bench
