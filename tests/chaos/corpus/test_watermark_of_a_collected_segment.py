"""A power cut in the middle of a rotation, with a watermark on the disk from long before.

The kernel brings the watermark to the disk when it will. The segment it named then was collected. A rotation has given
active.log its lasting name, and the fresh one has none yet: no file has the id that the watermark names.
"""

import contextlib
import os

import pytest
from chaos.power.machine import LOG_FLUSHED, why_not
from chaos.power.station import Cut, a_station
from support.daemon import until

LAYER = "real file system"
WRONG = "after a power cut in a rotation a relay was refused as corrupt, for the watermark of a collected segment"

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no power to cut: {why_not()}")


class Story:
    """One relay whose files have a few events each; what was acknowledged is collected."""

    def __init__(self, station):
        self.station = station
        self.recorded = 0

    def record(self, wire):
        event = ["x", [self.recorded, "y" * 1000]]
        latest = wire.done("record", relay="a", events=[event], producer="p", sequence=self.recorded + 1)["through"]
        self.recorded += 1
        return latest

    def names(self):
        return sorted(file.name for file in (self.station.relay("a") / "journal").iterdir())

    def begin(self, wire):
        """The watermark names the first file, and is on the disk."""
        wire.done("open", relay="a", create=True, retention="acknowledged")
        self.record(wire)
        watermark = os.open(self.station.relay("a") / "watermark", os.O_RDONLY)
        os.fsync(watermark)
        os.close(watermark)

    def collect_first(self, wire):
        """The first file is gone."""
        while len(self.names()) < 3:
            latest = self.record(wire)
        wire.done("acknowledge", relay="a", through=latest)
        until(lambda: not self.names()[0].startswith(f"{1:020}"), 10, "nothing is collected")


def test_a_power_cut_in_a_rotation_is_no_loss_though_the_watermark_on_the_disk_was_a_collected_segments():
    with a_station(segment_bytes=4096, snapshot_events=4, snapshot_bytes=4096) as station:
        story = Story(station)
        station.start()
        with station.daemon.connect() as wire:
            story.begin(wire)
            story.collect_first(wire)
            cut = Cut(1, LOG_FLUSHED, "renameat active.log.new")
            with station.cutting_at(cut), contextlib.suppress(ConnectionError):
                while True:
                    story.record(wire)
        assert "active.log" not in story.names()
        station.start()
        with station.daemon.connect() as wire:
            latest = wire.done("status", relay="a")["latest"][0]
            assert latest - 1 in (story.recorded, story.recorded + 1), "all that was answered, and perhaps what was not"
