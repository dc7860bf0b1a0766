"""Grammars of kinds, identities, command ids, and the data of relayd's own kinds."""

import msgspec
import pytest

from relayd.protocol import kinds
from relayd.protocol.cursor import Cursor
from relayd.protocol.kinds import KINDS, is_kind, is_reserved
from relayd.protocol.names import is_command_id, is_identity, is_relay_name

pack = msgspec.msgpack.encode
STORE = bytes(range(16))


@pytest.mark.parametrize("kind", ["a", "output", "a.b_c-d9", "x" * 64, "relay", "relays.x", "commandx.y", "replying"])
def test_a_kind_of_the_grammar_is_an_applications(kind):
    assert is_kind(kind)
    assert not is_reserved(kind)


@pytest.mark.parametrize(
    "kind", ["", "A", "9a", ".a", "_a", "-a", "a b", "a\n", "ä", "x" * 65, "a/b", "a:b", "aB", "²"]
)
def test_no_other_text_is_a_kind(kind):
    assert not is_kind(kind)


@pytest.mark.parametrize("prefix", ["relay", "command", "checkpoint", "surface", "reply", "edits"])
@pytest.mark.parametrize("rest", ["created", "later", ""])
def test_kinds_with_these_prefixes_are_relayds(prefix, rest):
    assert is_reserved(f"{prefix}.{rest}")


DATA = {
    "relay.created": (
        {"store": STORE, "retention": {"bytes": 5}, "max_active": 1},
        kinds.RelayCreated(STORE, kinds.RetentionBytes(5), 1),
    ),
    "relay.restored": (
        {"store": STORE, "seed": bytes(32), "retention": "checkpointed", "max_active": 2},
        kinds.RelayRestored(STORE, bytes(32), "checkpointed", 2),
    ),
    "relay.evicted": ({"through": [5, STORE]}, kinds.RelayEvicted(Cursor(5, STORE))),
    "relay.lost": ({"first": 5, "last": 6, "reason": "r"}, kinds.RelayLost(5, 6, "r")),
    "relay.clamped": ({"kind": "output", "bytes": 5}, kinds.RelayClamped("output", 5)),
}


@pytest.mark.parametrize("kind", DATA)
def test_the_data_of_relayds_own_kinds_is_the_map_of_the_page_of_events(kind):
    wire, data = DATA[kind]
    assert msgspec.msgpack.decode(pack(wire), type=KINDS[kind]) == data
    assert msgspec.msgpack.decode(pack(data)) == wire


@pytest.mark.parametrize("kind", DATA)
def test_fields_of_a_later_version_in_the_data_of_a_known_kind_are_passed_over(kind):
    wire, data = DATA[kind]
    assert msgspec.msgpack.decode(pack({**wire, "later": 1}), type=KINDS[kind]) == data


@pytest.mark.parametrize("text", ["command-1", "A" * 128, "00000000", "a_b-c_d-"])
def test_a_command_id_of_the_grammar(text):
    assert is_command_id(text)


@pytest.mark.parametrize(
    "text", ["", "1234567", "A" * 129, "command.1", "command 1", "command-1\n", "commandé1", "²" * 8]
)
def test_no_other_text_is_a_command_id(text):
    assert not is_command_id(text)


@pytest.mark.parametrize(
    ("text", "good"), [("a b", True), ("漢" * 128, True), ("漢" * 129, False), ("", False), (" ", False)]
)
def test_an_identity(text, good):
    assert is_identity(text) is good


@pytest.mark.parametrize(
    ("name", "good"), [("a", True), ("a" * 64, True), ("a" * 65, False), (".a", False), ("a\n", False)]
)
def test_a_relay_name(name, good):
    assert is_relay_name(name) is good
