"""Wrong requests by table: one typed error each, which names the field, and the connection lives.

The raw forms (0xc1, depth 100,000, claims of 2³²−1, duplicate keys, HTTP, …) with their one code each are proven in
tests/daemon/test_frames.py and tests/protocol/test_hostile_frames.py; here are all fields with all wrong values, and
what the raw forms cost a real daemon.
"""

import struct
from random import Random

import pytest
from chaos.peers.answers import check_shape
from chaos.peers.inside_batch import NoSync
from chaos.peers.model import Model
from chaos.peers.mutator import CLAIMS, HTTP, MOST, ODD, TLS, WRONG_CURSORS, WRONG_VALUES
from chaos.peers.real import MIB, call, drained, good_client, hello
from chaos.peers.rules import FIELDS, Refused, judge
from chaos.peers.valid import OPERATIONS, make_request
from support.daemon import running_daemon, short_place, until
from support.inside import inside, run_virtually
from support.wire import frame

BEFORE = {"op": "record", "id": 5, "relay": "a"}
INSIDE_AN_EVENT = b"\x84\xa2op\xa6record\xa2id\x05\xa5relay\xa1a\xa6events\x91\x92\xa1x"


def complete_request(op):
    """A request with every field that the operation has, all of them right."""
    request = make_request(Random(3), Model(0), op) | {"id": 9}
    everything = {
        "hello": {"asker": "a", "author": "b", "worker": "c"},
        "open": {"retention": "checkpointed", "max_active": 3},
        "record": {"events": [["x", 1, "command-1"]], "producer": "p", "sequence": 1, "oversize": "clamp"},
        "attach": {"after": [0, None], "wait_ms": 0, "max_bytes": 5, "status": False},
        "acknowledge": {"through": [1, bytes(16)], "consumer": "k"},
    }
    return request | everything.get(op, {})


@pytest.mark.parametrize("op", OPERATIONS)
def test_each_field_with_each_wrong_value_is_invalid_request_and_the_detail_names_it(op):
    wrong = []
    request = complete_request(op)
    assert request.keys() == {"op", "id", *(name.rstrip("?") for name in FIELDS[op])}
    for name in FIELDS[op]:
        for value in (*WRONG_VALUES, *WRONG_CURSORS):
            changed = request | {name.rstrip("?"): value}
            if isinstance(judge(frame(changed)[4:]), Refused):
                wrong.append((name.rstrip("?"), changed))
    wrong += [("all", request | {"all": value}) for value in WRONG_VALUES if value is not None]
    wrong += [(name, {key: request[key] for key in request if key != name}) for name in FIELDS[op] if name[-1] != "?"]
    assert len(wrong) > 30

    async def main():
        with short_place() as place:
            async with inside(place, faults=NoSync()) as daemon:
                client, other = await daemon.relay(), await daemon.connect()
                for name, changed in wrong:
                    client.stream.feed(frame(changed))
                    answer = await client.answer(9)
                    check_shape(answer)
                    assert answer["code"] == "invalid_request", (changed, answer)
                    # A producer's events and its sequence are wrong together; either may be named.
                    named = {"events", "sequence"} if op == "record" and name in ("events", "producer") else set()
                    field = answer["detail"]["field"]
                    assert field.split(".")[0].split("[")[0] in {name, *named}, (changed, answer)
                assert (await client.done("status", relay="a"))["latest"][0] == 1, "nothing was stored"
                assert (await other.done("relays"))["re"] == "relays"

    run_virtually(main)


def hostile_frames():
    """Each odd or claiming value in each place, nested ones too."""
    values = [*ODD, *(one for some in CLAIMS.values() for one in some), b"\x91" * 100_000, b"\x81\xa1k" * 100_000]
    places = [b"", b"\x83\xa2op\xa6relays\xa2id\x05\xa1x", INSIDE_AN_EVENT, b"\x82\xa2id\x05\xa2op", b"\x82\xa2id"]
    return [frame(place + value) for place in places for value in values]


def test_hostile_frames_cost_a_real_daemon_no_memory_and_no_descriptor():
    frames = hostile_frames()
    with running_daemon() as daemon, good_client(daemon) as other:
        call(other)
        descriptors = daemon.descriptors

        def send_all():
            with hello(daemon) as client:
                client.socket.sendall(b"".join(frames))
                answers = [client.receive() for _ in frames]
                assert all(one["re"] == "error" or one["id"] == 5 for one in answers)
                assert {one.get("code") for one in answers} <= {"invalid_request", "not_found", None}

        for _ in range(3):
            send_all()
        before = daemon.resident_bytes
        for _ in range(8):
            send_all()
            call(other)
        assert daemon.resident_bytes - before < 8 * MIB
        until(lambda: daemon.descriptors == descriptors, 5, "a descriptor is kept")
        assert not [line for line in daemon.log if line["level"] != "info"]


def test_a_claimed_length_is_no_memory_and_lost_framing_ends_that_connection_alone():
    """200 frames of 8 MiB are begun and not sent; lengths that no frame has end theirs with one answer under id 0."""
    lost = {
        bytes(4): "invalid_request", struct.pack(">I", (8 << 20) + 1): "too_large", b"\x80\x00\x00\x00": "too_large",
        MOST: "too_large", HTTP: "too_large", TLS: "too_large",
    }  # fmt: skip
    with running_daemon() as daemon, good_client(daemon) as other:
        clients = [hello(daemon) for _ in range(200)]
        before = daemon.resident_bytes
        for client in clients:
            client.socket.sendall(struct.pack(">I", 8 << 20) + b"\x81")
        for _ in range(10):
            call(other)
        assert daemon.resident_bytes - before < 8 * MIB
        for sent, code in lost.items():
            with hello(daemon) as client:
                client.socket.sendall(sent)
                assert [(one["id"], one["code"]) for one in drained(client)] == [(0, code)]
        call(other)
        for client in clients:
            client.close()
