import contextlib
import errno

import pytest
from support import oracle
from support.bench import WHOLE, Bench, commit_both
from support.faults import Fail, Faults, Kill, Killed, each_fault

from relayd.journal.active import make_active, open_or_make

HEADER = oracle.segment_header(segment=bytes(16))


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_fresh_active_log_is_synced_before_it_has_its_name_and_its_name_before_it_is_used(bench):
    commit_both(bench.writer())
    faults = Faults()
    _, journal = bench.directories(faults)
    make_active(journal, oracle.STORE, bytes(16)).close()
    assert bench.active.read_bytes() == HEADER
    assert faults.names() == [
        "open create active.log.new",
        "write active.log.new",
        "sync active.log.new",
        "replace active.log.new active.log",
        "sync journal/",
    ]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fault", [Fail, Kill])
def test_making_one_failed_or_killed_at_each_call_keeps_the_old_file_or_has_the_new_one(bench, fault, after):
    for faults in each_fault(lambda n: fault(n, after=after)):
        commit_both(bench.writer())
        (bench.journal / "active.log.new").write_bytes(b"left over")
        _, journal = bench.directories(faults)
        with contextlib.suppress(OSError, Killed):
            make_active(journal, oracle.STORE, bytes(16)).close()
            assert not faults.met
        assert bench.active.read_bytes() in (WHOLE, HEADER)
        if fault is Fail and str(faults.met_at).startswith(("write", "sync active")):
            assert not (bench.journal / "active.log.new").exists()


def test_a_file_is_opened_or_made_and_a_failure_to_open_makes_none(bench):
    bench.writer()
    faults = Faults()
    relay, _ = bench.directories(faults)
    open_or_make(relay, "watermark").close()
    open_or_make(relay, "watermark").close()
    assert faults.names() == ["open update watermark", "open create watermark", "open update watermark"]
    faults = Faults(Fail(1, errno.EIO))
    relay, _ = bench.directories(faults)
    with pytest.raises(OSError, match="Input/output"):
        open_or_make(relay, "another")
    assert not (bench.relay / "another").exists()
