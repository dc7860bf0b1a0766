"""active.log was replaced by a copy while the relay was open, and the relay then did not open any more.

The group after that went into the file that was taken away, and was refused. But the watermark had been written before
the file's place was looked at: it was ahead of the copy, which looked as if answered bytes were missing from it.
"""

import shutil

import pytest
from support.daemon import short_place
from support.inside import inside, run_virtually

LAYER = "real process in a hostile environment"
WRONG = "The watermark was written for a file that is no longer at its place: journal_corrupt, and nothing was lost."


@pytest.mark.parametrize("what", ["journal", "journal/active.log"])
def test_a_copy_in_place_of_the_file_is_served_as_it_is(what):
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                client = await daemon.relay()
                await client.done("record", relay="a", events=[["x", 1]])
                path = place / "relays/a" / what
                path.rename(place / "aside")
                (shutil.copytree if path.name == "journal" else shutil.copy)(place / "aside", path)
                assert (await client.refusal("record", relay="a", events=[["x", 2]]))[0] == "relay_removed"
                await client.done("record", relay="a", events=[["x", 3]])
                assert [one.data for one in await client.read_all("a")][1:] == [1, 3]

    run_virtually(main)
