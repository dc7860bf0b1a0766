"""One group that fails in the middle: torn and killed, or short and told so."""

from pathlib import Path
from typing import NamedTuple

from chaos.calls.faults import At, Fail, Fault, Short
from chaos.calls.life import check_log
from chaos.calls.stopping import StoppingDaemon, Zygote
from chaos.history import read_groups
from support.daemon import short_place, until
from support.wire import Wire

ACTIVE = "kept/journal/active.log"
GROUP_BYTES = 64 + 28 + 21
"""Header, the record's own, and the body that `_record` makes."""


class Found(NamedTuple):
    """What is to be looked at after a trial. `answer`: of the group that failed, None where nobody lived to give it."""

    answer: dict | None
    torn_bytes: int
    quarantine: list[bytes]
    size: int


def record(wire: Wire, number: int) -> dict:
    return wire.call("record", relay="kept", events=[["work", number]], producer="p", sequence=number)


def prepare(daemon: StoppingDaemon, wire: Wire) -> bytes:
    """Two groups that were answered; what active.log holds then."""
    wire.done("open", relay="kept", create=True)
    for number in (1, 2):
        assert record(wire, number)["re"] == "recorded"
    return active(daemon).read_bytes()


def active(daemon: StoppingDaemon) -> Path:
    return daemon.state / "relays" / ACTIVE


def torn(zygote: Zygote, taken: int) -> Found:
    """A group of which `taken` bytes were written when the process was killed; opened again, and sent again."""
    with short_place() as place:
        daemon = StoppingDaemon(zygote, place)
        try:
            daemon.start()
            with daemon.connect() as wire:
                before = prepare(daemon, wire)
                daemon.supervisor.plant(Short(At(f"pwritev {ACTIVE}"), taken, kill=True))
                try:
                    record(wire, 3)
                except ConnectionError:
                    daemon.wait()
                else:
                    raise AssertionError("it was answered")
            written = daemon.supervisor.log[-1].size
            assert written == GROUP_BYTES, written
            half = active(daemon).read_bytes()
            assert half[: len(before)] == before
            assert len(half) == len(before) + taken
            daemon.start(stops=False)
            with daemon.connect() as wire:
                assert wire.done("status", relay="kept")["latest"][0] == 3 + (taken == written)
                size = active(daemon).stat().st_size
                assert active(daemon).read_bytes()[: len(before)] == before
                again = record(wire, 3)
                assert (again.get("duplicate") is True) is (taken == written), again
                _check(wire)
            check_log(daemon, frozenset())
            return Found(None, daemon.said("relay_opened")[0]["torn_bytes"], _quarantine(daemon), size - len(before))
        finally:
            daemon.end()


def short(zygote: Zygote, taken: int, *also: Fault) -> Found:
    """A write that took only `taken` bytes of a group, and was told so; sent again until it is recorded."""
    with short_place() as place:
        daemon = StoppingDaemon(zygote, place)
        try:
            daemon.start()
            with daemon.connect() as wire:
                before = prepare(daemon, wire)
                daemon.supervisor.plant(Short(At(f"pwritev {ACTIVE}"), taken), *also)
                answer = record(wire, 3)
                assert daemon.supervisor.met.is_set()
                wire.done("status", relay="kept")
                size = active(daemon).stat().st_size - len(before)
                until(lambda: record(wire, 3)["re"] == "recorded", 5, "recording does not resume")
                _check(wire)
                # Whatever was half there is gone: group after group to the end of the file.
                content = active(daemon).read_bytes()
                assert max(read_groups(content, "active.log")) == 4
                assert content[: len(before)] == before
            daemon.kill()
            daemon.start(stops=False)
            with daemon.connect() as wire:
                _check(wire)
            return Found(answer, 0, _quarantine(daemon), size)
        finally:
            daemon.end()


def _check(wire: Wire) -> None:
    assert [one.data for one in wire.read_all("kept") if one.kind == "work"] == [1, 2, 3]


def _quarantine(daemon: StoppingDaemon) -> list[bytes]:
    folder = daemon.relay("kept") / "quarantine"
    return [one.read_bytes() for one in folder.iterdir()] if folder.exists() else []


NOT_CUT_BACK = Fail(At(f"ftruncate {ACTIVE}"), 5)
"""The cut that follows a short write fails too, once."""
