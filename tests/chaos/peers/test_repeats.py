"""The same sequence from two clients, twice in one group, and while its first sending waits or has failed.

Stored once, at the same ordinal, and neither is answered before the sync; a waiting repeat shares the first one's fate;
one whose first attempt failed is stored, and not swallowed as a duplicate.
"""

import errno
from itertools import product

import pytest
import trio
from support.daemon import short_place
from support.faults import Fail, Faults, each_fault, named
from support.inside import inside, run_virtually
from trio.testing import wait_all_tasks_blocked

EVENTS = [["x", 1], ["x", 2], ["x", 3]]
BATCH = {"relay": "a", "events": EVENTS, "producer": "p", "sequence": 1}


async def stored(client):
    return [(one.ordinal, one.data, one.producer) for one in (await client.read_all("a"))[1:]]


@pytest.mark.parametrize("clients", [1, 2, 20])
@pytest.mark.parametrize("times", [2, 5])
def test_the_same_sequence_sent_at_once_is_stored_once_and_answered_with_one_ordinal_after_the_sync(clients, times):
    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                made = [await daemon.relay() for _ in range(clients)]
                daemon.gate.hold("commit")
                sent = [(client, client.send("record", **BATCH)) for _ in range(times) for client in made]
                await wait_all_tasks_blocked()
                assert not any(client.stream.answers for client in made), "none is answered before the sync"
                daemon.gate.open()
                answers = [await client.answer(request) for client, request in sent]
                # Whose was taken first is nobody's to say where several clients send at once.
                assert [one["first"] for one in answers if "duplicate" not in one] == [2]
                assert sum("duplicate" in one for one in answers) == len(sent) - 1
                assert {(*one["through"],) for one in answers} == {(4, answers[0]["through"][1])}
                assert await stored(made[0]) == [(1 + at, at, ["p", at]) for at in (1, 2, 3)]

    run_virtually(main)


@pytest.mark.parametrize("sizes", [(1, 3), (2, 2), (3, 1)], ids=str)
def test_two_clients_whose_batches_overlap_store_each_sequence_once(sizes):
    """The second begins inside the first one's batch: what is new of it follows, what is there is skipped."""

    async def main():
        with short_place() as place:
            async with inside(place) as daemon:
                one, two = await daemon.relay(), await daemon.connect()
                daemon.gate.hold("commit")
                first = one.send("record", relay="a", events=EVENTS[: sizes[0]], producer="p", sequence=1)
                second = two.send("record", relay="a", events=EVENTS[: sizes[1]], producer="p", sequence=1)
                third = one.send("record", relay="a", events=EVENTS[2:], producer="p", sequence=3)
                await wait_all_tasks_blocked()
                daemon.gate.open()
                answers = [await one.answer(first), await two.answer(second), await one.answer(third)]
                assert {answer.get("code") for answer in answers[:2]} == {None}
                known = max(sizes)
                assert answers[2].get("first") == (None if known == 3 else 4)
                assert [producer for _, _, producer in await stored(one)] == [["p", at] for at in (1, 2, 3)]

    run_virtually(main)


FAULTS = list(product(("write", "sync"), (errno.EIO, errno.ENOSPC), (False, True)))


@pytest.mark.parametrize(
    ("call", "error", "after"), FAULTS, ids=[f"{a} {errno.errorcode[b]} {c}" for a, b, c in FAULTS]
)
@pytest.mark.parametrize("other_client", [False, True])
def test_a_waiting_repeat_shares_the_failure_and_what_is_sent_again_is_stored_once(call, error, after, other_client):
    """`after`: the call failed though all of it had its effect, so that the first attempt may be on disk."""

    async def main():
        with short_place() as place:
            faults = Faults()
            async with inside(place, faults=faults) as daemon:
                one = await daemon.relay()
                two = await daemon.connect() if other_client else one
                daemon.gate.hold("commit")
                sent = [(one, one.send("record", **BATCH)), (two, two.send("record", **BATCH))]
                await wait_all_tasks_blocked()
                faults.plan, faults.counted, faults.count = Fail(1, error, after), named(f"{call} active.log"), 0
                daemon.gate.open()
                code = "storage_full" if (call, error) == ("write", errno.ENOSPC) else "storage_failed"
                assert [(await client.answer(request))["code"] for client, request in sent] == [code, code]
                faults.plan = None
                await one.done("open", relay="a")
                while (again := await two.call("record", **BATCH))["re"] == "error":
                    assert again["retryable"], again
                    await trio.sleep(1)
                repeat = await one.done("record", **BATCH)
                assert repeat["duplicate"] is True
                assert again["through"] == repeat["through"]
                assert again["through"][0] == 4, "the ordinals of the first attempt"
                assert await stored(one) == [(1 + at, at, ["p", at]) for at in (1, 2, 3)]

    run_virtually(main)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_whichever_call_fails_the_same_batch_sent_again_and_again_is_stored_once(error):
    """Call 1 of recording fails, then call 2, … until a run meets no fault; three clients repeat until answered."""
    runs = 0

    async def main(faults):
        with short_place() as place:
            async with inside(place, faults=faults) as daemon:
                clients = [await daemon.relay() for _ in range(3)]
                faults.counted, faults.count = lambda call: call.target.startswith(("active.log", "journal")), 0
                answers = []
                for client in clients:
                    while (answer := await client.call("record", **BATCH))["re"] == "error":
                        assert answer["code"] in ("storage_failed", "storage_full", "unavailable"), answer
                        await trio.sleep(1)
                        await client.call("open", relay="a")
                    answers.append(answer)
                assert {(*answer["through"],) for answer in answers} == {(4, answers[0]["through"][1])}
                assert await stored(clients[0]) == [(1 + at, at, ["p", at]) for at in (1, 2, 3)]

    for faults in each_fault(lambda n: Fail(n, error), counted=lambda _: False):
        run_virtually(lambda faults=faults: main(faults))
        runs += 1
    assert runs > 3, "it met faults"
