"""An opening wrote the pages that a failed sync had lost over themselves and synced them; a power cut took them.

ext4 gives a page its blocks, marked as never written, before the write that then fails. It keeps the page, marked clean
and with its place known; a write over it goes to that place and is synced without an error, and the mark stays. After a
power cut the file reads as zeros there. Only a page that was dropped from memory before is given its place anew.
"""

import pytest
from chaos.power.machine import NOTHING_FLUSHED, a_place, why_not
from chaos.power.thin import ThinMachine

from relayd.journal.real_storage import open_state_directory

LAYER = "real file system"
WRONG = "a power cut took what was answered after a failed sync and a restart: the rewrite was not durable on ext4"

PAGE = 4096
LOST = b"l" * 2 * PAGE

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no power to cut: {why_not()}")


def test_pages_that_a_failed_sync_lost_are_on_the_disk_when_they_were_written_again_and_synced():
    with a_place() as place:
        machine = ThinMachine(place)
        machine.make()
        directory = open_state_directory(str(machine.root))
        file = directory.open("file", "create")
        file.write((b"s" * PAGE,), 0)
        file.sync()
        machine.fill()
        file.write((LOST,), PAGE)
        with pytest.raises(OSError, match="No space left on device"):
            file.sync()
        file.close()
        machine.free()
        file = directory.open("file", "update")
        file.write((LOST,), PAGE)
        file.sync()
        file.close()
        directory.close()
        machine.cut(NOTHING_FLUSHED)
        machine.restart()
        assert (machine.root / "file").read_bytes() == b"s" * PAGE + LOST
