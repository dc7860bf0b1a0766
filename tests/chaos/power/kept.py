"""The disk of a violation, kept with what was told, and the command that shows it again."""

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.power.machine import NOTHING_FLUSHED, Machine, a_place
from chaos.power.station import Station
from chaos.power.story import Told

_TESTS = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def keeping(station: Station, told: Callable[[], Told]) -> Iterator[None]:
    """An AssertionError that leaves this says where the disk is, as the last cut left it."""
    try:
        yield
    except AssertionError as error:
        place = Path(tempfile.mkdtemp(prefix="kept-disk-"))
        if station.last_image.exists():
            station.last_image.rename(place / "disk.ext4")
        told().save(place / "told")
        script = Path(__file__).with_name("replay.py").relative_to(_TESTS.parent)
        error.replay = f"python {script} --image {shlex.quote(str(place / 'disk.ext4'))}"
        error.add_note(error.replay)
        raise


def replay(image: Path) -> list[str]:
    """Holds a kept disk against what was told: as it is, and after an opening and one more cut. What is wrong."""
    told = Told.load(image.with_name("told"))
    wrong = []
    with a_place() as place:
        machine = Machine(place)
        machine.take(image)
        station = Station(place, machine)
        try:
            for moment in ("as the cut left it", "opened, and cut again"):
                try:
                    told.check_disk(station.daemon.state)
                    station.start()
                    for relay in told.relays:
                        with station.daemon.connect() as wire:
                            wire.done("status", relay=relay)
                except AssertionError as error:
                    wrong.append(f"{moment}: {error}")
                    break
                station.cut(NOTHING_FLUSHED)
        finally:
            station.close()
    return wrong
