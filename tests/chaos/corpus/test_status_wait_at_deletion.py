"""A relay that was deleted while `attach` with status took the disk's measure ended as if its directory were gone.

The wait ended by the deletion, which the reader's own status job took for a directory that is no longer there: what had
been accepted before the deletion, and was being written, was answered `relay_removed`.
"""

from support.daemon import short_place
from support.inside import inside, run_virtually
from trio.testing import wait_all_tasks_blocked

LAYER = "frames and peers"
WRONG = "A record sent before `delete_relay` was answered `relay_removed` where a reader with status was waiting."


def test_what_was_sent_before_a_deletion_is_recorded_though_a_reader_with_status_waits():
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                client = await daemon.connect()
                store = (await client.done("open", relay="a", create=True))["store"]
                daemon.gate.hold("measure", "commit")
                wait = client.send("attach", relay="a", after="latest", wait_ms=60_000, status=True)
                await wait_all_tasks_blocked()
                record = client.send("record", relay="a", events=[["x"]])
                await wait_all_tasks_blocked()
                delete = client.send("delete_relay", relay="a", store=store)
                await wait_all_tasks_blocked()
                daemon.gate.open("measure")
                await wait_all_tasks_blocked()
                daemon.gate.open()
                answers = [await client.answer(request) for request in (wait, record, delete)]
                assert [one.get("code", one["re"]) for one in answers] == ["relay_removed", "recorded", "done"]
                assert not daemon.said("relay_removed_while_open")

    run_virtually(main)
