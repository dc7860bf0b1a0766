"""The harness itself: its daemons are as real as any, and what it plants is exactly what happens."""

import errno
import os
from collections import Counter, defaultdict

import pytest
from chaos.calls.faults import At, Delay, Fail, Kill, Short
from chaos.calls.life import begin, life, until_quiet_or_killed
from chaos.calls.stopping import StoppingDaemon
from support.daemon import short_place, until


def calls_of(zygote, *, cold):
    """The calls of a short life by file, from before the first line of the program to its exit."""
    with short_place() as place:
        daemon = StoppingDaemon(zygote, place, reads=True, cold=cold, segment_bytes=4096)
        try:
            daemon.start()
            with daemon.connect() as wire:
                wire.done("open", relay="a", create=True)
                for number in range(1, 5):
                    wire.done("record", relay="a", events=[["x", bytes(300)]], producer="p", sequence=number)
                wire.read_all("a")
            assert daemon.stop() == 0
            # Threads take turns as they will; for each file there is one order.
            made = defaultdict(list)
            for name in daemon.supervisor.names():
                word, _, target = name.rpartition(" ")
                made[target].append(word)
            return made
        finally:
            daemon.end()


def test_a_copy_of_the_zygote_makes_the_same_calls_as_a_daemon_that_was_started_by_hand(zygote):
    warm, cold = calls_of(zygote, cold=False), calls_of(zygote, cold=True)
    assert warm == cold
    assert sum(map(len, warm.values())) > 100


def test_two_lives_make_the_same_calls_so_that_the_nth_of_a_name_is_always_the_same_one(zygote):
    first, second = (_served(zygote), _served(zygote))
    differing = (first - second) + (second - first)
    assert sum(differing.values()) < 0.1 * sum(first.values()), differing
    for word in ("pwritev", "fdatasync", "fsync", "rename", "unlink", "open create", "send"):
        assert any(name.startswith(word) for name in first), f"the life has no {word}"


def _served(zygote):
    with life(zygote) as (daemon, clients):
        before = begin(daemon, clients)
        clients.serve()
        until_quiet_or_killed(daemon)
        return Counter(daemon.supervisor.names(before))


@pytest.fixture
def daemon(zygote):
    with short_place() as place:
        made = StoppingDaemon(zygote, place)
        yield made.start()
        made.end()


@pytest.fixture
def wire(daemon):
    with daemon.connect() as connected:
        connected.done("open", relay="a", create=True)
        yield connected


def active(daemon):
    return daemon.relay("a") / "journal" / "active.log"


def test_a_kill_at_a_call_comes_before_its_effect(daemon, wire):
    size = active(daemon).stat().st_size
    daemon.supervisor.plant(Kill(At("pwritev a/journal/active.log", 2)))
    assert wire.call("record", relay="a", events=[["x"]])["re"] == "recorded"
    grown = active(daemon).stat().st_size
    assert grown > size
    with pytest.raises(ConnectionError):
        wire.call("record", relay="a", events=[["x"]])
    assert daemon.wait() == -9
    assert active(daemon).stat().st_size == grown
    assert str(daemon.supervisor.log[-1]) == "pwritev a/journal/active.log"


@pytest.mark.parametrize("taken", [0, 1, 64, 65, 100])
@pytest.mark.parametrize("kill", [True, False])
def test_a_short_write_has_written_exactly_its_first_bytes(daemon, wire, taken, kill):
    """They are those that the whole write would have written, and nobody is told of more."""
    before = active(daemon).read_bytes()
    # Nothing is cut back, so that it can be seen.
    daemon.supervisor.plant(
        Short(At("pwritev a/journal/active.log"), taken, kill=kill), Kill(At("ftruncate a/journal/active.log"))
    )
    with pytest.raises(ConnectionError):
        wire.call("record", relay="a", events=[["x", bytes(range(200))]])
    assert daemon.wait() == -9
    group = active(daemon).read_bytes()[len(before) :]
    assert len(group) == taken
    assert group == b"RLYG\1\0\0\0"[:taken] + group[8:]
    assert active(daemon).read_bytes()[: len(before)] == before
    assert daemon.supervisor.log[-1].name.startswith("pwritev" if kill else "ftruncate")


def test_an_errno_is_what_the_call_gets_and_it_has_no_effect(daemon, wire):
    size = active(daemon).stat().st_size
    daemon.supervisor.plant(Fail(At("pwritev a/journal/active.log"), errno.EDQUOT))
    answer = wire.call("record", relay="a", events=[["x"]])
    assert os.strerror(errno.EDQUOT) in answer["message"]
    assert active(daemon).stat().st_size == size


def test_a_delayed_call_keeps_no_other_thread_waiting(daemon, wire):
    daemon.supervisor.plant(Delay(At("fdatasync a/journal/active.log"), 1.0))
    waiting = wire.send("record", relay="a", events=[["x"]])
    until(daemon.supervisor.met.is_set, 5, "the call is not made")
    with daemon.connect() as other:
        assert other.done("relays")["relays"][0]["relay"] == "a"
    wire.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        wire.answer(waiting)
    wire.socket.settimeout(20)
    assert wire.answer(waiting)["re"] == "recorded"
