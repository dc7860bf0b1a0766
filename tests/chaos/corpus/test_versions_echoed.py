"""A hello with millions of versions was answered `too_large`: its refusal repeated them all and was no frame then."""

from support.daemon import short_place
from support.inside import inside, run_virtually

LAYER = "frames and peers"
WRONG = "A hello with very many unknown versions was answered `too_large`, not `incompatible_protocol`."


def test_a_hello_with_4_million_versions_is_incompatible_and_little_of_it_is_said_again():
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                client = daemon.connect_silent()
                answer = await client.call("hello", versions=[7] * 4_000_000, client="x")
                assert (answer["code"], answer["detail"]) == ("incompatible_protocol", {"supported": [1]})
                assert len(answer["message"]) < 500
                assert (await client.call("hello", versions=[1], client="x"))["re"] == "welcome"

    run_virtually(main)
