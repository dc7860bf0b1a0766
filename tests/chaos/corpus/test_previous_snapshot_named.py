"""What could not be read of `snapshot.previous` was told of `snapshot`: somebody would have mended the good one."""

from support.daemon import short_place
from support.inside import inside, run_virtually

LAYER = "real process in a hostile environment"
WRONG = "A refusal named `snapshot` where `snapshot.previous` was a link, a fifo or a directory."


def test_a_refusal_names_the_generation_that_cannot_be_read():
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                await daemon.relay()
                await daemon.nobody_asks()
                previous = place / "relays/a/snapshot.previous"
                previous.unlink(missing_ok=True)
                previous.symlink_to("elsewhere")
                client = await daemon.connect()
                code, _, detail = await client.refusal("open", relay="a")
                assert (code, detail["file"]) == ("unavailable", str(previous))

    run_virtually(main)
