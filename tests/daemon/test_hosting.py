"""Relays opening, closing, and going, each on its own (docs/internals/architecture.md, "The rooms")."""

import fcntl
import os
from pathlib import Path

import pytest
import trio
from support.faults import Faults
from support.inside import inside
from trio.testing import wait_all_tasks_blocked


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def entry(daemon, name="a"):
    return daemon.registry._entries.get(name)


async def test_a_relay_nobody_uses_is_closed_and_gives_its_lock_and_descriptors_back(daemon):
    before = descriptors()
    client = await daemon.relay()
    assert descriptors() > before
    await trio.sleep(55)
    assert entry(daemon).host is not None
    await trio.sleep(15)
    assert entry(daemon) is None
    assert descriptors() == before
    assert (daemon.place / "relays/a/idle").exists()
    (listed,) = (await client.done("relays"))["relays"]
    assert (listed["open"], listed.get("latest")) == (False, None)


async def test_a_closed_relay_opens_when_it_is_asked_and_knows_everything(daemon):
    client = await daemon.relay()
    recorded = await client.done("record", relay="a", events=[["x", 1]], producer="p", sequence=1)
    await daemon.nobody_asks()
    again = await client.done("record", relay="a", events=[["x", 1]], producer="p", sequence=1)
    assert (again["duplicate"], again["through"]) == (True, recorded["through"])
    assert not (daemon.place / "relays/a/idle").exists() or len(await client.read_all("a")) == 2
    assert (await client.done("record", relay="a", events=[["x", 2]]))["first"] == 3
    assert not (daemon.place / "relays/a/idle").exists(), "a relay that was written to does not look closed"


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("attach", {"after": "latest", "wait_ms": 60_000}),
        ("attach", {"after": "latest", "wait_ms": 60_000, "status": True}),
        ("await_acknowledged", {"consumer": "x", "through": [1, None], "wait_ms": 60_000}),
    ],
)  # fmt: skip
async def test_a_relay_with_somebody_who_waits_is_not_idle(place, op, fields):
    async with inside(place, idle_relay=10) as daemon:
        client = await daemon.relay()
        client.send(op, relay="a", **fields)
        await trio.sleep(55)
        assert entry(daemon).host is not None
        await trio.sleep(30)
        assert entry(daemon) is None


async def test_a_request_while_the_relay_is_being_closed_waits_and_is_served(daemon):
    client = await daemon.relay()
    await client.done("record", relay="a", events=[["x"]])
    daemon.gate.hold("mark_idle")
    await trio.sleep(100)
    assert daemon.gate.reached == ["mark_idle"]
    request = client.send("record", relay="a", events=[["x"]])
    await wait_all_tasks_blocked()
    daemon.gate.open()
    assert (await client.answer(request))["first"] == 3


async def test_a_request_waits_for_its_own_relays_opening_and_for_no_other(daemon):
    client = await daemon.relay("a")
    await client.done("open", relay="b", create=True)
    await daemon.nobody_asks()
    await client.done("status", relay="b")
    daemon.gate.hold("open")
    first = client.send("record", relay="a", events=[["x"]])
    second = client.send("attach", relay="a", after="earliest")
    assert (await client.done("record", relay="b", events=[["x"]]))["first"] == 2
    assert client.answered(first) is None
    daemon.gate.open()
    assert (await client.answer(first))["first"] == 2
    await client.answer(second)


async def test_what_waits_for_an_opening_whose_client_goes_is_dropped_without_harm(daemon):
    client, other = await daemon.relay(), await daemon.connect()
    await daemon.nobody_asks()
    daemon.gate.hold("open")
    for _ in range(10):
        other.send("attach", relay="a", after="latest", wait_ms=60_000)
        other.send("record", relay="a", events=[["x"]])
    await wait_all_tasks_blocked()
    other.stream.vanish()
    await wait_all_tasks_blocked()
    daemon.gate.open()
    assert (await client.done("status", relay="a"))["readers"] == 0
    assert not [line for line in daemon.logged if line["level"] in ("error", "exception")]


async def test_a_relay_that_does_not_open_is_unavailable_and_the_others_serve(daemon):
    client = await daemon.relay("good")
    await client.done("open", relay="bad", create=True)
    await client.done("record", relay="bad", events=[["x", bytes(100)]] * 3)
    await daemon.nobody_asks()
    for name in ("snapshot", "snapshot.previous"):
        (daemon.place / "relays/bad" / name).unlink(missing_ok=True)
    active = daemon.journal("bad") / "active.log"
    content = bytearray(active.read_bytes())
    content[130] ^= 1
    active.write_bytes(content)
    for op, fields in (
        ("status", {}),
        ("record", {"events": [["x"]]}),
        ("attach", {"after": "earliest"}),
        ("open", {}),
    ):
        code, retryable, detail = await client.refusal(op, relay="bad", **fields)
        assert (code, retryable, detail["reason"]) == ("unavailable", False, "journal_corrupt")
        assert (detail["file"].endswith("relays/bad/journal/active.log"), detail["offset"]) == (True, 48)
        assert "salvage" in detail["hint"]
    assert active.read_bytes() == content
    assert (await client.done("record", relay="good", events=[["x"]]))["first"] == 2
    listed = {one["relay"]: one.get("execution") for one in (await client.done("relays"))["relays"]}
    assert listed == {"bad": "unavailable", "good": "idle"}
    content[130] ^= 1
    active.write_bytes(content)
    assert (await client.refusal("status", relay="bad"))[0] == "unavailable", "only `open` tries it again"
    assert (await client.done("open", relay="bad"))["latest"][0] == 4
    assert (await client.done("record", relay="bad", events=[["x"]]))["first"] == 5


async def test_a_relay_that_another_process_has_locked_is_unavailable_until_it_is_given_back(daemon):
    client = await daemon.relay()
    await daemon.nobody_asks()
    held = os.open(daemon.place / "relays/a", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert (await client.refusal("record", relay="a", events=[["x"]]))[2]["reason"] == "locked"
    finally:
        os.close(held)
    assert (await client.done("open", relay="a"))["latest"][0] == 1


@pytest.mark.parametrize(
    "how", ["deleted", "moved", "replaced", "journal deleted", "active.log deleted", "active.log replaced"]
)
async def test_a_relay_taken_away_while_open_is_removed_within_one_group_and_nothing_is_answered_into_it(daemon, how):
    client, reader = await daemon.relay(), await daemon.connect()
    await client.done("record", relay="a", events=[["x"]])
    waiting = reader.send("attach", relay="a", after="latest", wait_ms=60_000)
    await wait_all_tasks_blocked()
    relay, aside = daemon.place / "relays/a", daemon.place / "aside"
    match how:
        case "deleted":
            os.system(f"rm -r {relay}")
        case "moved":
            relay.rename(aside)
        case "replaced":
            os.system(f"cp -a {relay} {aside}; rm -r {relay}; cp -a {aside} {relay}")
        case "journal deleted":
            os.system(f"rm -r {relay}/journal")
        case "active.log deleted":
            (relay / "journal/active.log").unlink()
        case "active.log replaced":
            os.system(f"cp -a {relay}/journal/active.log {aside}; mv {aside} {relay}/journal/active.log")
    requests = [client.send("record", relay="a", events=[["y"]], producer="p", sequence=1) for _ in range(3)]
    for answer in [await client.answer(request) for request in requests] + [await reader.answer(waiting)]:
        assert (answer["code"], answer["retryable"]) == ("relay_removed", False)
    if how == "moved":
        assert (await client.refusal("status", relay="a"))[0] == "not_found"
        aside.rename(relay)
        assert (await client.done("record", relay="a", events=[["z"]]))["first"] >= 3
    if how == "deleted":
        assert not relay.exists(), "no late write recreates it"
        assert (await client.done("open", relay="a", create=True))["created"] is True
    await client.done("open", relay="b", create=True)


@pytest.mark.parametrize("how", ["moved", "replaced"])
@pytest.mark.parametrize(
    "asked", ["acknowledge", "forget_consumer", "status", "attach with status", "record", "acknowledge, then status"]
)
async def test_nothing_is_answered_of_a_relay_that_was_moved_away(daemon, how, asked):
    client = await daemon.relay(retention="acknowledged")
    at = [(await client.done("record", relay="a", events=[["x"]]))["through"] for _ in range(3)]
    await client.done("acknowledge", relay="a", through=at[0], consumer="k")
    await wait_all_tasks_blocked()
    relay, aside = daemon.place / "relays/a", daemon.place / "aside"
    os.system(f"mv {relay} {aside}" + (f"; cp -a {aside} {relay}" if how == "replaced" else ""))
    fields = {
        "acknowledge": {"through": at[2]}, "forget_consumer": {"consumer": "k"},
        "attach": {"after": "earliest", "status": True}, "record": {"events": [["y"]]}, "status": {},
    }  # fmt: skip
    requests = [client.send(op.split()[0], relay="a", **fields[op.split()[0]]) for op in asked.split(", then ")]
    for request in requests:
        answer = await client.answer(request)
        assert (answer["code"], answer["retryable"]) == ("relay_removed", False)
    if how == "moved":
        assert (await client.refusal("status", relay="a"))[0] == "not_found"
        assert not relay.exists(), "nothing makes it again"
    else:
        status = await client.done("status", relay="a")
        assert (status["latest"], status["consumers"]) == (at[2], {"k": at[0]}), "what is there now is served"


async def test_delete_relay_waits_for_what_was_asked_before_it(daemon):
    client = await daemon.connect()
    store = (await client.done("open", relay="a", create=True))["store"]
    daemon.gate.hold("commit")
    record = client.send("record", relay="a", events=[["x"]])
    await wait_all_tasks_blocked()
    delete = client.send("delete_relay", relay="a", store=store)
    after = client.send("record", relay="a", events=[["y"]])
    again = client.send("open", relay="a", create=True)
    await wait_all_tasks_blocked()
    assert not client.stream.answers
    daemon.gate.open()
    assert (await client.answer(record))["first"] == 2
    assert (await client.answer(delete))["re"] == "done"
    assert (await client.answer(after))["code"] == "not_found"
    assert (await client.answer(again))["created"] is True


async def test_delete_relay_of_a_closed_relay_opens_it_to_see_its_store(daemon):
    client = await daemon.connect()
    store = (await client.done("open", relay="a", create=True))["store"]
    await daemon.nobody_asks()
    assert (await client.refusal("delete_relay", relay="a", store=bytes(16)))[0] == "not_found"
    await daemon.nobody_asks()
    assert (await client.done("delete_relay", relay="a", store=store))["re"] == "done"
    assert not (daemon.place / "relays/a").exists()


async def test_a_bug_in_one_relays_upkeep_costs_nobody_else_and_the_relay_opens_again(daemon, monkeypatch):
    client, other = await daemon.relay(), await daemon.relay("b")
    waiting = client.send("attach", relay="a", after="latest", wait_ms=60_000)
    await wait_all_tasks_blocked()

    async def fail(_upkeep):
        raise ZeroDivisionError

    monkeypatch.setattr("relayd.daemon.upkeep.Upkeep._do_all", fail)
    entry(daemon).host.upkeep.look()
    await wait_all_tasks_blocked()
    monkeypatch.undo()
    assert (await client.answer(waiting))["code"] == "internal"
    assert daemon.said("relay_entry_failed")
    assert (await other.done("record", relay="b", events=[["x"]]))["first"] == 2
    assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2


async def test_at_a_clean_stop_everything_accepted_is_synced_answered_and_snapshotted(place):
    async with inside(place) as daemon:
        client = await daemon.relay()
        sent = [client.send("record", relay="a", events=[["x", number]]) for number in range(1000)]
        await wait_all_tasks_blocked()
        await daemon.registry.stop()
        await daemon.server.finish()
        assert [client.answered(request)["first"] for request in sent] == list(range(2, 1002))
        assert client.stream.closed
    async with inside(place) as daemon:
        await daemon.registry.open_unfinished()
        assert not daemon.registry._entries, "it was closed with nothing pending: nobody opens it before its first use"
        client = await daemon.connect()
        assert (await client.done("status", relay="a"))["latest"][0] == 1001
        (opened,) = daemon.said("relay_opened")
        assert (opened["folded_events"], opened["source"]) == (0, "snapshot")


@pytest.mark.parametrize("step", ["encode_snapshot", "write_new", "install", "commit"])
async def test_a_clean_stop_while_a_snapshot_is_being_written_leaves_a_whole_one(place, step):
    faults = Faults()
    async with inside(place, faults=faults, snapshot_events=5) as daemon:
        client = await daemon.relay()
        daemon.gate.hold(step)
        sent = [client.send("record", relay="a", events=[["x", number]]) for number in range(7)]
        await wait_all_tasks_blocked()
        assert daemon.gate.reached
        began = len(faults.log)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.registry.stop)
            await trio.sleep(0.1)
            daemon.gate.open()
        assert [(await client.answer(request))["first"] for request in sent] == list(range(2, 9))
        calls = [str(call) for call in faults.log[began:] if "snapshot.new" in call.target]
        makings = [at for at, call in enumerate(calls) if call == "open create snapshot.new"]
        assert all("replace snapshot.new snapshot" in calls[:at] for at in makings[1:]), "one after the other"
        assert not daemon.said("closing_snapshot_failed")
    assert not [entry.name for entry in (place / "relays/a").iterdir() if entry.name.endswith(".new")]
    async with inside(place) as daemon:
        client = await daemon.connect()
        assert (await client.done("status", relay="a"))["latest"][0] == 8
        (opened,) = daemon.said("relay_opened")
        assert (opened["folded_events"], opened["source"]) == (0, "snapshot")


async def test_requests_after_a_clean_stop_began_are_told_so(daemon):
    client = await daemon.relay()
    daemon.gate.hold("commit")
    record = client.send("record", relay="a", events=[["x"]])
    await wait_all_tasks_blocked()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.registry.stop)
        await wait_all_tasks_blocked()
        late = [client.send("record", relay="a", events=[["y"]]), client.send("open", relay="new", create=True)]
        assert (await client.answer(late[1]))["code"] == "shutting_down"
        daemon.gate.open()
    assert (await client.answer(record))["first"] == 2
    assert (await client.answer(late[0]))["code"] == "shutting_down"
    assert not (daemon.place / "relays/new").exists()


async def test_relays_that_were_not_closed_cleanly_open_in_the_background_a_few_at_a_time(place):
    async with inside(place) as daemon:
        client = await daemon.connect()
        for number in range(12):
            await client.done("open", relay=f"r{number}", create=True)
    async with inside(place) as daemon:
        daemon.gate.hold("open")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.registry.open_unfinished)
            await wait_all_tasks_blocked()
            assert daemon.gate.reached == ["open"] * 4
            daemon.gate.open()
        await wait_all_tasks_blocked()
        assert len(daemon.said("relay_opened")) == 12
        await daemon.nobody_asks()
        assert all((place / "relays" / f"r{number}" / "idle").exists() for number in range(12))


async def twelve_unfinished(place):
    names = [f"r{number}" for number in range(12)]
    async with inside(place) as daemon:
        client = await daemon.connect()
        for name in names:
            await client.done("open", relay=name, create=True)
    return names


@pytest.mark.parametrize("first", [1, 4, 12])
@pytest.mark.parametrize("use", ["attach", "attach with status", "await_acknowledged", "open"])
async def test_relays_that_clients_opened_first_keep_none_from_opening_in_the_background(place, first, use):
    names = await twelve_unfinished(place)
    async with inside(place, idle_relay=600) as daemon:
        client = await daemon.connect()
        for name in names[:first]:
            latest = (await client.done("open", relay=name))["latest"]
            wait = {"wait_ms": 60_000}
            if use.startswith("attach"):
                client.send("attach", relay=name, after=latest, status="status" in use, **wait)
            elif use == "await_acknowledged":
                client.send(use, relay=name, consumer="k", through=latest, **wait)
        await wait_all_tasks_blocked()
        await daemon.registry.open_unfinished()
        await trio.sleep(1)
        assert sorted(line["relay"] for line in daemon.said("relay_opened")) == sorted(names), "each once"


@pytest.mark.parametrize("what", ["corrupt", "locked"])
async def test_relays_that_were_refused_first_keep_none_from_opening_in_the_background(place, what):
    names = await twelve_unfinished(place)
    held = []
    for name in names[:5]:
        if what == "locked":
            held.append(os.open(place / "relays" / name, os.O_RDONLY))
            fcntl.flock(held[-1], fcntl.LOCK_EX)
        else:
            (place / "relays" / name / "journal/active.log").write_bytes(bytes(48))
    async with inside(place) as daemon:
        client = await daemon.connect()
        for name in names[:5]:
            await client.refusal("status", relay=name)
        await wait_all_tasks_blocked()
        with trio.move_on_after(60):
            await daemon.registry.open_unfinished()
        await trio.sleep(1)
        assert sorted(line["relay"] for line in daemon.said("relay_opened")) == sorted(names[5:])
    for descriptor in held:
        os.close(descriptor)


async def test_a_start_opens_none_of_thousands_of_closed_relays(place):
    """What it costs is one look at each name."""
    faults = Faults()
    async with inside(place) as daemon:
        client = await daemon.relay("r0")
        await client.done("record", relay="r0", events=[["x"]])
        await daemon.nobody_asks()
    for number in range(1, 2000):
        relay = place / "relays" / f"r{number}"
        relay.mkdir(mode=0o700)
        (relay / "idle").touch()
    async with inside(place, faults=faults) as daemon:
        await daemon.registry.open_unfinished()
        assert not daemon.registry._entries
        assert not daemon.said("relay_opened")
        assert len(faults.log) <= 2 + 3 * 2000
        assert {call.name for call in faults.log} == {"entries", "directory", "stat"}
        client = await daemon.connect()
        assert (await client.done("status", relay="r0"))["latest"][0] == 2
        assert len((await client.done("relays"))["relays"]) == 2000


async def test_a_relay_that_is_no_directory_of_ours_is_not_opened_and_keeps_no_other_from_it(place):
    async with inside(place) as daemon:
        await daemon.relay("good")
    (place / "relays/link").symlink_to(place / "relays/good")
    (place / "relays/file").write_text("x")
    (place / "relays/.hidden").mkdir()
    (place / "relays/Upper").mkdir()
    (place / "relays/foreign").mkdir()
    os.chown(place / "relays/foreign", 12345, 12345)
    async with inside(place) as daemon:
        await daemon.registry.open_unfinished()
        client = await daemon.connect()
        assert (await client.done("status", relay="good"))["latest"][0] == 1
        for name in ("link", "file"):
            assert (await client.refusal("status", relay=name))[0] in ("unavailable", "not_found")
        assert (await client.refusal("status", relay="foreign"))[0] == "unavailable"
        assert {one["relay"] for one in (await client.done("relays"))["relays"]} == {"good", "foreign"}
