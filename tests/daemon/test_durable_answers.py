"""Law 1: nothing leaves before what it depends on is synced (docs/internals/architecture.md, "The seven laws")."""

import errno
import threading
import time

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults import Fail, Faults, named
from support.inside import inside
from support.oracle import read_journal
from support.wire import records
from trio.testing import wait_all_tasks_blocked

from relayd.daemon.output_commit import OutputCommit
from relayd.protocol.errors import StorageFailedError
from relayd.protocol.messages import Done


class HeldSync(Faults):
    """A storage whose syncs of active.log do not return while they are held."""

    def __init__(self):
        super().__init__()
        self.hold = threading.Event()
        self.go = threading.Event()
        self.entered = threading.Event()
        self.synced = 0

    def make(self, name, target, effect):
        if (name, target) != ("sync", "active.log") or not self.hold.is_set():
            return super().make(name, target, effect)
        self.entered.set()
        assert self.go.wait(20)
        result = super().make(name, target, effect)
        self.synced += 1
        return result

    async def held(self):
        """Waits until a sync is being held, and nothing else goes on."""
        assert await trio.to_thread.run_sync(self.entered.wait, 10)
        await wait_all_tasks_blocked(0.02)

    def release(self):
        self.hold.clear()
        self.go.set()


async def test_while_the_sync_runs_nothing_that_depends_on_it_leaves(place, real_time):
    faults = HeldSync()
    async with inside(place, faults=faults, threads=True) as daemon:
        client, reader = await daemon.relay(), await daemon.connect()
        waiting = reader.send("attach", relay="a", after="latest", wait_ms=60_000)
        through = (await client.done("record", relay="a", events=[["x"]], producer="p", sequence=1))["through"]
        await reader.answer(waiting)
        waiting = reader.send("attach", relay="a", after="latest", wait_ms=60_000)
        faults.hold.set()
        depends = {
            "record": client.send("record", relay="a", events=[["x"]], producer="p", sequence=2),
            "duplicate": client.send("record", relay="a", events=[["x"]], producer="p", sequence=2),
            "refusal": client.send("record", relay="a", events=[["x"]], producer="p", sequence=9),
            "mark": client.send("record", relay="a", producer="p"),
            "status": client.send("status", relay="a"),
            "open": client.send("open", relay="a"),
            "differing": client.send("open", relay="a", max_active=7),
            "other store": client.send("delete_relay", relay="a", store=bytes(16)),
            "no such cursor": client.send("attach", relay="a", after=[99, None]),
            "page with status": client.send("attach", relay="a", after="earliest", status=True),
            "second record": client.send("record", relay="a", events=[["y"]]),
        }
        await faults.held()
        assert not client.stream.answers
        assert not reader.stream.answers
        # What was durable before is shown meanwhile, and no more than that.
        page = await reader.done("attach", relay="a", after="earliest")
        assert page["latest"] == page["through"] == through
        (listed,) = (await reader.done("relays"))["relays"]
        assert listed["latest"] == through[0]
        faults.release()
        answers = {name: await client.answer(request) for name, request in depends.items()}
        assert answers["record"]["first"] == 3
        assert answers["duplicate"] == {
            "re": "recorded", "id": depends["duplicate"], "duplicate": True, "through": answers["record"]["through"],
            "sequence": 2,
        }  # fmt: skip
        assert answers["refusal"]["detail"] == {"expected": 3}
        assert answers["mark"]["sequence"] == 2
        assert answers["status"]["latest"][0] == 3
        assert answers["differing"]["code"] == "already_exists"
        assert answers["other store"]["code"] == "not_found"
        assert answers["page with status"]["status"]["latest"] == answers["page with status"]["latest"]
        assert (await reader.answer(waiting))["through"][0] >= 3


async def test_a_request_wrong_by_its_schema_is_refused_at_once(place, real_time):
    faults = HeldSync()
    async with inside(place, faults=faults, threads=True) as daemon:
        client = await daemon.relay()
        faults.hold.set()
        record = client.send("record", relay="a", events=[["x"]])
        await faults.held()
        assert (await client.refusal("record", relay="a", events=[["relay.x"]]))[0] == "invalid_request"
        faults.release()
        await client.answer(record)


async def test_what_comes_while_a_sync_runs_gathers_in_one_group(place, real_time):
    faults = HeldSync()
    async with inside(place, faults=faults, threads=True) as daemon:
        client = await daemon.relay()
        faults.hold.set()
        first = client.send("record", relay="a", events=[["x"]])
        await faults.held()
        sent = [client.send("record", relay="a", events=[["x", number]]) for number in range(500)]
        await wait_all_tasks_blocked(0.02)
        before = faults.names().count("write active.log")
        faults.release()
        await client.answer(first)
        assert [(await client.answer(request))["first"] for request in sent] == list(range(3, 503))
        assert faults.names().count("write active.log") == before + 1


@pytest.mark.parametrize("sync_fails", [False, True])
async def test_a_repeat_that_came_while_the_first_waits_shares_its_fate(place, real_time, sync_fails):
    faults = HeldSync()
    async with inside(place, faults=faults, threads=True) as daemon:
        one, two = await daemon.relay(), await daemon.connect()
        faults.hold.set()
        faults.go.clear()
        fields = {"relay": "a", "events": [["x"]], "producer": "p", "sequence": 1}
        first = one.send("record", **fields)
        await faults.held()
        repeat = two.send("record", **fields)
        await wait_all_tasks_blocked(0.02)
        assert not one.stream.answers
        assert not two.stream.answers
        if sync_fails:
            faults.counted, faults.plan = named("sync active.log"), Fail(1, errno.EIO)
            faults.count = 0
        faults.release()
        answers = await one.answer(first), await two.answer(repeat)
        if sync_fails:
            assert [each["code"] for each in answers] == ["storage_failed", "storage_failed"]
            again = await two.done("record", **fields)
            assert ("duplicate" in again, again["first"]) == (False, 2), "it is stored, not swallowed as a duplicate"
        else:
            assert answers[0]["through"] == answers[1]["through"]
            assert answers[1]["duplicate"] is True
        assert [event.data for event in (await one.read_all("a"))[1:]] == [None]


async def test_acknowledgements_are_answered_when_their_file_is_synced(daemon):
    client = await daemon.relay()
    through = (await client.done("record", relay="a", events=[["x"]]))["through"]
    daemon.gate.hold("replace")
    requests = [client.send("acknowledge", relay="a", through=through, consumer=name) for name in ("a", "b", "c")]
    forget = client.send("forget_consumer", relay="a", consumer="a")
    waiting = client.send("await_acknowledged", relay="a", consumer="b", through=through, wait_ms=60_000)
    # What asks where consumers stand is decided after what was said before it, and shares its wait.
    status = client.send("status", relay="a")
    await wait_all_tasks_blocked()
    assert not client.stream.answers
    before = daemon.files.jobs.count("replace")
    daemon.gate.open()
    for request in [*requests, forget, waiting]:
        assert (await client.answer(request))["re"] in ("acknowledged", "done")
    assert daemon.files.jobs.count("replace") <= before + 2, "many in one write"
    assert (await client.answer(status))["consumers"] == {"b": through, "c": through}
    assert (await client.done("status", relay="a"))["consumers"] == {"b": through, "c": through}


async def test_each_answered_record_is_in_a_synced_group_when_its_answer_leaves(place):
    """At each answer the bytes on disk are looked at by a reader that is not relayd's."""
    faults = Faults()
    async with inside(place, faults=faults, segment_bytes=4096) as daemon:
        clients = [await daemon.relay() for _ in range(3)]
        sent = [
            (client, number, client.send("record", relay="a", events=[["x", [at, number]]] * 3))
            for number in range(60)
            for at, client in enumerate(clients)
        ]
        for client, _, request in sent:
            answer = await client.answer(request)
            last = max(at for at, call in enumerate(faults.log) if str(call) == "write active.log")
            assert "sync active.log" in [str(call) for call in faults.log[last:]]
            page = await client.done("attach", relay="a", after=[answer["first"] - 1, None], max_bytes=1)
            assert records(page["records"])[0].digest
        bodies = read_journal(daemon.journal())
        assert max(bodies) == 1 + 60 * 3 * 3


# The mechanism itself


class Kept:
    """A request in flight that keeps what it was answered."""

    def __init__(self, number, log):
        self.number, self.log = number, log

    def answer(self, response):
        self.log.append((self.number, response))

    def refuse(self, error):
        self.log.append((self.number, error))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.tuples(st.just("hold"), st.integers(0, 3)), st.tuples(st.just("sync"), st.integers(0, 4))))
)
def test_nothing_leaves_before_its_ordinal_is_synced_and_all_leave_in_order(steps):
    frontier = synced = 0
    log, held = [], []
    commit = OutputCommit(0)
    for number, (step, amount) in enumerate(steps):
        if step == "hold":
            frontier += amount
            error = StorageFailedError("x")
            answer = [Done(number), error, lambda number=number: log.append((number, "called"))][number % 3]
            held.append((number, frontier))
            commit.hold(frontier, Kept(number, log), answer)
        else:
            synced = min(frontier, synced + amount)
            commit.advance(synced)
        assert [number for number, _ in log] == [number for number, ordinal in held if ordinal <= synced]
    failure = StorageFailedError("failed")
    left = [number for number, ordinal in held if ordinal > synced]
    commit.fail(failure)
    assert log[len(held) - len(left) :] == [(number, failure) for number in left]
    assert len(commit) == 0


def test_holding_and_releasing_cost_the_same_however_much_is_held():
    commit, log = OutputCommit(0), []
    began = time.perf_counter()
    for number in range(1, 100_001):
        commit.hold(number, Kept(number, log), Done(number))
    for number in range(1, 100_001):
        commit.advance(number)
    assert len(log) == 100_000
    assert time.perf_counter() - began < 5
