"""Each operation's answer, and each refusal (docs/reference/protocol.md, "Operations", "Errors")."""

import msgspec
import pytest
from support.inside import inside
from support.wire import GENESIS, records

PRODUCER = "build-7"


async def test_hello_is_answered_with_version_daemon_and_limits(daemon):
    client = daemon.connect_silent()
    welcome = await client.done("hello", versions=[1, 7], client="me", asker="a", author="b", worker="c")
    assert (welcome["version"], welcome["daemon"].split()[0]) == (1, "relayd")
    assert welcome["limits"] == {
        "frame_bytes": 8 << 20, "page_bytes": 4 << 20, "event_bytes": 2 << 20, "command_bytes": 1 << 20,
        "in_flight": 1024, "in_flight_bytes": 16 << 20,
    }  # fmt: skip


async def test_without_a_common_version_hello_is_refused_and_may_be_said_again(daemon):
    client = daemon.connect_silent()
    assert await client.refusal("hello", versions=[2], client="me") == (
        "incompatible_protocol", False, {"supported": [1]},
    )  # fmt: skip
    assert (await client.done("hello", versions=[1], client="me"))["version"] == 1


@pytest.mark.parametrize("name", ["", " ", "\t", "a\nb", "x" * 129, "\x00"])
@pytest.mark.parametrize("field", ["client", "asker", "author", "worker"])
async def test_an_identity_is_1_to_128_printable_characters_and_not_blank(daemon, field, name):
    client = daemon.connect_silent()
    refused = await client.refusal("hello", **{"versions": [1], "client": "me", field: name})
    assert refused[0] == "invalid_request"
    assert refused[2]["field"] == field


async def test_another_user_may_not_say_who_it_is_but_may_connect(daemon):
    client = daemon.connect_silent(uid=12345)
    for identity in ("asker", "author", "worker"):
        assert (await client.refusal("hello", versions=[1], client="me", **{identity: "x"}))[:2] == ("forbidden", False)
    await client.done("hello", versions=[1], client="me")
    assert daemon.connect_silent(uid=0) is not None


async def test_hello_comes_first_and_once(daemon):
    client = daemon.connect_silent()
    assert (await client.refusal("relays"))[0] == "hello_required"
    assert (await client.refusal("record", relay="a", events=[["x"]]))[0] == "hello_required"
    await client.done("hello", versions=[1], client="me")
    assert (await client.refusal("hello", versions=[1], client="me"))[0] == "invalid_state"
    assert (await client.done("relays"))["relays"] == []


async def test_open_makes_a_relay_and_opens_it_again(daemon):
    client = await daemon.connect()
    assert await client.refusal("open", relay="a") == ("not_found", False, {"what": "relay", "name": "a"})
    made = await client.done("open", relay="a", create=True)
    assert (made["relay"], made["created"], made["latest"][0], len(made["store"])) == ("a", True, 1, 16)
    again = await client.done("open", relay="a", create=True)
    assert again["store"] == made["store"]
    assert again["created"] is False
    assert await client.done("open", relay="a") == again | {"id": again["id"] + 1}


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", ".a", "-a", "a" * 65, "ä", "a\n", "a b"])
async def test_a_relay_name_outside_the_grammar_is_refused(daemon, name):
    client = await daemon.connect()
    refused = await client.refusal("open", relay=name, create=True)
    assert refused[0] == "invalid_request"
    assert refused[2]["field"] == "relay"
    assert list((daemon.place / "relays").iterdir()) == []


async def test_open_with_settings_that_are_not_its_own_says_its_own(daemon):
    client = await daemon.connect()
    await client.done("open", relay="a", create=True, retention={"bytes": 1000}, max_active=3)
    for same in (
        {},
        {"retention": {"bytes": 1000}},
        {"max_active": 3},
        {"retention": {"bytes": 1000}, "max_active": 3},
    ):
        assert (await client.done("open", relay="a", create=True, **same))["created"] is False
    refused = await client.refusal("open", relay="a", retention="acknowledged", max_active=3)
    assert refused == (
        "already_exists", False, {"what": "relay", "name": "a", "differs": {"retention": {"bytes": 1000}}},
    )  # fmt: skip
    refused = await client.refusal("open", relay="a", create=True, retention="checkpointed", max_active=4)
    assert refused[2]["differs"] == {"retention": {"bytes": 1000}, "max_active": 3}


@pytest.mark.parametrize("wrong", [{"retention": "never"}, {"retention": {"bytes": 0}}, {"max_active": 0}])
async def test_open_with_settings_that_are_none_is_refused(daemon, wrong):
    client = await daemon.connect()
    assert (await client.refusal("open", relay="a", create=True, **wrong))[0] == "invalid_request"
    assert (await client.done("relays"))["relays"] == []


async def test_delete_relay_needs_the_store_that_is_meant(daemon):
    client = await daemon.connect()
    opened = await client.done("open", relay="a", create=True)
    assert (await client.refusal("delete_relay", relay="a", store=bytes(16)))[0] == "not_found"
    assert (await client.done("record", relay="a", events=[["x"]]))["first"] == 2
    assert (await client.done("delete_relay", relay="a", store=opened["store"]))["re"] == "done"
    assert (await client.refusal("status", relay="a"))[0] == "not_found"
    assert (await client.refusal("delete_relay", relay="a", store=opened["store"]))[0] == "not_found"
    assert list((daemon.place / "relays").iterdir()) == []
    assert (await client.done("open", relay="a", create=True))["store"] != opened["store"]


async def test_relays_lists_all_in_order_and_opens_none(daemon):
    client = await daemon.connect()
    for name in ("b", "a"):
        await client.done("open", relay=name, create=True)
    await client.done("record", relay="a", events=[["x"]])
    listed = (await client.done("relays"))["relays"]
    assert [(one["relay"], one["open"], one["latest"]) for one in listed] == [("a", True, 2), ("b", True, 1)]
    assert all(one["disk_bytes"] > 0 for one in listed)


async def test_status_says_what_the_relay_is(daemon):
    client = await daemon.relay(retention="acknowledged")
    recorded = await client.done("record", relay="a", events=[["x"], ["y"]])
    await client.done("acknowledge", relay="a", through=recorded["through"], consumer="archive")
    status = await client.done("status", relay="a")
    assert {name: status[name] for name in ("relay", "execution", "latest", "readers", "consumers", "retained")} == {
        "relay": "a", "execution": "idle", "latest": recorded["through"], "readers": 0,
        "consumers": {"archive": recorded["through"]}, "retained": recorded["through"],
    }  # fmt: skip
    assert status["acknowledged"] == recorded["through"]
    assert status["last_event_at"] == daemon.now_ms
    assert 0 < status["journal_bytes"] < status["disk_bytes"]
    assert status.get("trouble") is None


# Records


async def test_recorded_says_the_first_ordinal_and_the_cursor_of_the_last(daemon):
    client = await daemon.relay()
    answer = await client.done("record", relay="a", events=[["x", 1], ["y", None, "command-1"], ["z"]])
    stored = await client.read_all("a")
    assert answer["first"] == 2
    assert answer["through"] == stored[-1].cursor
    assert [(one.ordinal, one.kind, one.data, one.command_id) for one in stored[1:]] == [
        (2, "x", 1, None), (3, "y", None, "command-1"), (4, "z", None, None),
    ]  # fmt: skip
    assert answer.keys() == {"re", "id", "first", "through"}


WRONG_RECORDS = {
    "no events and no producer": {},
    "sequence without a producer": {"events": [["x"]], "sequence": 1},
    "sequence without events": {"producer": PRODUCER, "sequence": 1},
    "producer's events without a sequence": {"events": [["x"]], "producer": PRODUCER},
    "sequence 0": {"events": [["x"]], "producer": PRODUCER, "sequence": 0},
    "a sequence past 2**63": {"events": [["x"], ["y"]], "producer": PRODUCER, "sequence": 2**63},
    "a negative sequence": {"events": [["x"]], "producer": PRODUCER, "sequence": -1},
    "a blank producer": {"events": [["x"]], "producer": " ", "sequence": 1},
    "a producer too long": {"events": [["x"]], "producer": "p" * 129, "sequence": 1},
    "a reserved kind": {"events": [["relay.created", {}]]},
    "another reserved kind": {"events": [["x"], ["command.queued", {}]]},
    "a reserved kind nobody knows": {"events": [["surface.later"]]},
    "a kind outside the grammar": {"events": [["Output"]]},
    "a kind too long": {"events": [["k" * 65]]},
    "an empty kind": {"events": [[""]]},
    "a command id outside the grammar": {"events": [["x", 1, "short"]]},
    "an event with too much in it": {"events": [["x", 1, "command-1", 2]]},
    "an event that is no array": {"events": [{"kind": "x"}]},
    "an event without a kind": {"events": [[]]},
    "an oversize nobody knows": {"events": [["x"]], "oversize": "drop"},
    "an unknown field": {"events": [["x"]], "urgent": True},
    "data with a time stamp": {"events": [["x", msgspec.msgpack.Ext(-1, bytes(4))]]},
    "data with an unknown extension": {"events": [["x", msgspec.msgpack.Ext(5, b"x")]]},
    "data with keys that are no strings": {"events": [["x", {1: 2}]]},
}


@pytest.mark.parametrize("fields", WRONG_RECORDS.values(), ids=WRONG_RECORDS)
async def test_a_record_wrong_by_its_schema_is_refused_and_stores_nothing(daemon, fields):
    client = await daemon.relay()
    before = (daemon.journal() / "active.log").read_bytes()
    assert (await client.refusal("record", relay="a", **fields))[:2] == ("invalid_request", False)
    assert (daemon.journal() / "active.log").read_bytes() == before


async def test_an_event_of_exactly_2_mib_is_recorded_and_one_more_byte_is_too_large(daemon):
    client = await daemon.relay()
    size = (2 << 20) - len(msgspec.msgpack.encode([daemon.now_ms, "x", b""])) - 3
    assert (await client.done("record", relay="a", events=[["x", bytes(size)]]))["first"] == 2
    refused = await client.refusal("record", relay="a", events=[["y"], ["x", bytes(size + 1)]])
    assert refused == ("too_large", False, {"limit_bytes": 2 << 20, "size_bytes": (2 << 20) + 1})
    stored = await client.read_all("a")
    assert len(stored) == 2
    assert len(stored[1].body) == 2 << 20


async def test_an_oversize_event_is_clamped_on_request_and_keeps_its_producer(daemon):
    client = await daemon.relay()
    large = {"text": "ü" * (5 << 18), "short": "kept"}
    many = [b"x" * 4096] * 1000
    answer = await client.done(
        "record",
        relay="a",
        events=[["output", large], ["output", many]],
        producer=PRODUCER,
        sequence=1,
        oversize="clamp",
    )
    assert answer["sequence"] == 2
    first, second = (await client.read_all("a"))[1:]
    assert (first.kind, first.data["short"]) == ("output", "kept")
    assert len(first.body) <= 2 << 20
    assert (second.kind, second.data["kind"], second.producer) == ("relay.clamped", "output", [PRODUCER, 2])


async def test_a_producers_repeats_are_skipped_and_what_is_new_is_recorded(daemon):
    client = await daemon.relay()

    async def record(sequence, *texts):
        events = [["x", text] for text in texts]
        return await client.call("record", relay="a", events=events, producer=PRODUCER, sequence=sequence)

    unknown = await client.done("record", relay="a", producer=PRODUCER)
    assert unknown.keys() == {"re", "id"}
    first = await record(5, "five", "six")
    assert (first["first"], first["sequence"]) == (2, 6)
    again = await record(5, "five", "six")
    assert again == {"re": "recorded", "id": again["id"], "duplicate": True, "through": first["through"], "sequence": 6}
    older = await record(1, "one")
    assert (older["duplicate"], older["through"], older["sequence"]) == (True, first["through"], 6)
    partly = await record(6, "six", "seven", "eight")
    assert (partly["first"], partly["through"][0], partly["sequence"], "duplicate" in partly) == (4, 5, 8, False)
    ahead = await record(10, "ten")
    assert (ahead["code"], ahead["detail"]) == ("invalid_state", {"expected": 9})
    stands = await client.done("record", relay="a", producer=PRODUCER)
    assert stands == {"re": "recorded", "id": stands["id"], "through": partly["through"], "sequence": 8}
    assert [one.data for one in (await client.read_all("a"))[1:]] == ["five", "six", "seven", "eight"]
    assert (await client.done("record", relay="a", events=[["x"]], producer="other", sequence=2**63))["first"] == 6


async def test_the_content_of_a_repeat_is_not_compared(daemon):
    client = await daemon.relay()
    await client.done("record", relay="a", events=[["x", 1]], producer=PRODUCER, sequence=1)
    other = await client.done("record", relay="a", events=[["y", 2]], producer=PRODUCER, sequence=1)
    assert other["duplicate"] is True


async def test_a_producer_is_known_again_after_the_relay_was_closed(daemon):
    client = await daemon.relay()
    first = await client.done("record", relay="a", events=[["x"]], producer=PRODUCER, sequence=3)
    await daemon.nobody_asks()
    stands = await client.done("record", relay="a", producer=PRODUCER)
    assert (stands["sequence"], stands["through"]) == (3, first["through"])


# Reading


async def test_attach_gives_whole_records_up_to_the_bytes_asked_but_one_at_least(daemon):
    client = await daemon.relay()
    await client.done("record", relay="a", events=[["x", bytes(100)]] * 10)
    page = await client.done("attach", relay="a", after="earliest", max_bytes=1)
    assert (page["count"], page["through"][0], page["latest"][0]) == (1, 1, 11)
    page = await client.done("attach", relay="a", after=page["through"], max_bytes=500)
    assert 2 <= page["count"] <= 4
    assert len(page["records"]) <= 500
    assert page["verified"] is True
    rest = await client.done("attach", relay="a", after=[page["through"][0], None])
    assert rest["verified"] is False
    assert [one.ordinal for one in records(rest["records"])] == list(range(page["through"][0] + 1, 12))


async def test_attach_by_words_and_by_consumer(daemon):
    client = await daemon.relay()
    recorded = await client.done("record", relay="a", events=[["x"], ["y"]])
    earliest = await client.done("attach", relay="a", after="earliest")
    assert (earliest["count"], "gap" in earliest) == (3, False)
    latest = await client.done("attach", relay="a", after="latest")
    assert (latest["records"], latest["count"], latest["through"]) == (b"", 0, recorded["through"])
    unheard = await client.done("attach", relay="a", after={"consumer": "archive"})
    assert unheard["count"] == 3
    await client.done("acknowledge", relay="a", through=records(earliest["records"])[1].cursor, consumer="archive")
    assert (await client.done("attach", relay="a", after={"consumer": "archive"}))["count"] == 1
    assert (await client.done("attach", relay="a", after=GENESIS))["count"] == 3


async def test_attach_with_status_has_both_at_one_frontier(daemon):
    client = await daemon.relay()
    await client.done("record", relay="a", events=[["x"]])
    page = await client.done("attach", relay="a", after="earliest", status=True)
    assert page["status"]["latest"] == page["latest"] == page["through"]
    assert (page["count"], page["status"]["relay"]) == (2, "a")


async def test_a_cursor_that_is_no_place_in_this_history_is_refused(daemon):
    client = await daemon.relay()
    recorded = await client.done("record", relay="a", events=[["x"]])
    ahead = await client.refusal("attach", relay="a", after=[9, None])
    assert ahead[:2] == ("desynchronized", False)
    assert ahead[2] == {
        "reason": "ahead", "requested": [9, None], "earliest": GENESIS, "latest": recorded["through"],
    }  # fmt: skip
    other = await client.refusal("attach", relay="a", after=[1, bytes(16)])
    assert other[2]["reason"] == "digest_mismatch"
    at_latest = await client.refusal("attach", relay="a", after=[2, bytes(16)])
    assert at_latest[2]["reason"] == "digest_mismatch"


@pytest.mark.parametrize("after", [None, "newest", [], [1, b"short"], [-1, None], ["1", None], {"consumer": ""}, 5, {}])
async def test_a_malformed_position_is_refused_and_never_read_as_a_fresh_start(daemon, after):
    client = await daemon.relay()
    assert (await client.refusal("attach", relay="a", after=after))[0] == "invalid_request"


@pytest.mark.parametrize(
    "wrong", [{"wait_ms": 60_001}, {"wait_ms": -1}, {"max_bytes": 0}, {"max_bytes": (4 << 20) + 1}]
)
async def test_attach_beyond_its_bounds_is_refused(daemon, wrong):
    client = await daemon.relay()
    refused = await client.refusal("attach", relay="a", after="latest", **wrong)
    assert refused[0] == "invalid_request"
    assert refused[2]["field"] == next(iter(wrong))


# Acknowledging


async def test_an_acknowledgement_is_kept_per_consumer_and_never_moves_back(daemon):
    client = await daemon.relay(retention="acknowledged")
    await client.done("record", relay="a", events=[["x"]] * 4)
    at = {one.ordinal: one.cursor for one in await client.read_all("a")}
    first = await client.done("acknowledge", relay="a", through=at[3])
    assert first == {"re": "acknowledged", "id": first["id"], "through": at[3], "retained": at[3]}
    back = await client.done("acknowledge", relay="a", through=at[2])
    assert back["through"] == at[3]
    other = await client.done("acknowledge", relay="a", through=at[4], consumer="archive")
    assert (other["through"], other["retained"]) == (at[4], at[3])
    await client.done("forget_consumer", relay="a", consumer="controller")
    assert (await client.done("status", relay="a"))["consumers"] == {"archive": at[4]}
    assert (await client.done("acknowledge", relay="a", through=at[5], consumer="archive"))["retained"] == at[5]
    await client.done("forget_consumer", relay="a", consumer="archive")
    assert (await client.done("status", relay="a"))["acknowledged"] == at[5], "with none left it stays"


async def test_an_acknowledgement_needs_the_right_digest(daemon):
    client = await daemon.relay()
    recorded = await client.done("record", relay="a", events=[["x"]])
    through = recorded["through"]
    assert (await client.refusal("acknowledge", relay="a", through=[2, None]))[0] == "invalid_request"
    assert (await client.refusal("acknowledge", relay="a", through=[2, bytes(16)]))[2]["reason"] == "digest_mismatch"
    assert (await client.refusal("acknowledge", relay="a", through=[3, through[1]]))[2]["reason"] == "ahead"
    assert (await client.done("status", relay="a"))["consumers"] == {}


async def test_a_consumer_more_than_the_bound_is_overloaded_until_one_is_forgotten(place):
    async with inside(place, consumers=2) as daemon:
        client = await daemon.relay()
        through = (await client.done("record", relay="a", events=[["x"]]))["through"]
        for name in ("one", "two"):
            await client.done("acknowledge", relay="a", through=through, consumer=name)
        refused = await client.refusal("acknowledge", relay="a", through=through, consumer="three")
        assert refused == ("overloaded", True, {"bound": "consumers"})
        await client.done("forget_consumer", relay="a", consumer="one")
        await client.done("acknowledge", relay="a", through=through, consumer="three")


async def test_acknowledgements_survive_closing_and_opening(daemon):
    client = await daemon.relay()
    through = (await client.done("record", relay="a", events=[["x"]]))["through"]
    await client.done("acknowledge", relay="a", through=through, consumer="archive")
    await daemon.nobody_asks()
    assert (await client.done("status", relay="a"))["consumers"] == {"archive": through}


# What has no state


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("attach", {"after": "latest"}), ("status", {}), ("record", {"events": [["x"]]}),
        ("acknowledge", {"through": GENESIS}),
        ("await_acknowledged", {"through": GENESIS, "consumer": "x", "wait_ms": 1}),
        ("forget_consumer", {"consumer": "x"}),
        ("delete_relay", {"store": bytes(16)}), ("open", {}),
    ],
)  # fmt: skip
async def test_every_operation_on_a_relay_that_is_not_there_says_not_found(daemon, op, fields):
    client = await daemon.connect()
    assert await client.refusal(op, relay="nowhere", **fields) == (
        "not_found", False, {"what": "relay", "name": "nowhere"},
    )  # fmt: skip
    assert list((daemon.place / "relays").iterdir()) == []


async def test_leave_without_an_asker_is_invalid_state(daemon):
    client = await daemon.connect()
    assert (await client.refusal("leave"))[0] == "invalid_state"


async def test_leave_with_an_asker_is_done(daemon):
    client = daemon.connect_silent()
    await client.done("hello", versions=[1], client="test", asker="build 7")
    assert (await client.done("leave"))["re"] == "done"


async def test_cancel_request_of_nothing_is_done(daemon):
    client = await daemon.connect()
    assert (await client.done("cancel_request", request=77))["re"] == "done"
