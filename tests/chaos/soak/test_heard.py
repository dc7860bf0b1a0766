"""The model sees what may not be: each case is a history with one lie."""

import base64
import hashlib
import struct

import msgspec
import pytest
from chaos.soak.heard import Heard
from chaos.soak.judge import judge
from support import oracle

STORE = base64.b64encode(b"S" * 16).decode()
DIGESTS = [base64.b64encode(bytes([number]) * 16).decode() for number in range(20)]


def asked(request: int, op: str, **fields: object) -> dict:
    return {"at": 1.0, "who": "c", "on": 1, "sent": {"op": op, "id": request, "relay": "a", **fields}}


def got(request: int, re: str, **fields: object) -> dict:
    return {"at": 2.0, "who": "c", "on": 1, "got": {"re": re, "id": request, **fields}}


def opened(request: int = 1, *, created: bool = True, store: str = STORE) -> list[dict]:
    answer = got(request, "opened", relay="a", store=store, latest=[1, DIGESTS[1]], created=created)
    return [asked(request, "open", create=True), answer]


def recorded(request: int, number: int, **answer: object) -> list[dict]:
    event = ["work", ["p", number, f"text {number}"]]
    sent = asked(request, "record", events=[event], producer="p", sequence=number)
    return [sent, got(request, "recorded", **answer)]


def page(request: int, after: int, ordinals: list[int], latest: int) -> list[dict]:
    made, digest = b"", bytes([after]) * 16
    for ordinal in ordinals:
        body = msgspec.msgpack.encode([1, "work", ["p", ordinal, f"text {ordinal}"]])
        hashed = struct.pack("<Q", ordinal) + body
        digest = hashlib.blake2b(hashed, digest_size=16, person=b"relayd.event.v1").digest()
        made += struct.pack("<IQ", len(body), ordinal) + digest + body
    records, through = (
        base64.b64encode(made).decode(),
        [max(ordinals, default=after), base64.b64encode(digest).decode()],
    )
    answer = got(request, "page", records=records, through=through, latest=[latest, DIGESTS[latest]])
    return [asked(request, "attach", after=[after, DIGESTS[after]]), answer]


FIRST = recorded(2, 1, first=2, through=[2, DIGESTS[2]], sequence=1)
DELETED = [asked(8, "delete_relay", store=STORE), got(8, "done")]

LIES = {
    "stored again": [*opened(), *FIRST, *recorded(3, 1, first=3, through=[3, DIGESTS[3]], sequence=1)],
    "a duplicate of 2 stands at 1": [*opened(), *recorded(3, 2, duplicate=True, through=[2, DIGESTS[2]], sequence=1)],
    "stands at 0": [*opened(), *FIRST, asked(3, "record", producer="p"), got(3, "recorded", sequence=None)],
    "stands at 9": [
        *opened(),
        asked(3, "record", producer="p"),
        got(3, "recorded", sequence=9, through=[9, DIGESTS[9]]),
    ],
    "3 came after 1": [*opened(), *page(2, 1, [3], 3)],
    "a page through": [*opened(), *page(2, 1, [2, 3], 3), *page(3, 0, [1], 2)],
    "nobody asked for": [got(7, "recorded")],
    "was made though it is there": [*opened(), *opened(2)],
    "has another store": [*opened(), *opened(2, created=False, store=DIGESTS[7])],
    "is there though it is deleted": [*opened(), *DELETED, *opened(9, created=False)],
    "was answered though it is deleted": [*opened(), *DELETED, *FIRST],
    "shown it is not": [*opened(), *FIRST, *DELETED],
    "acknowledged 2, stands at 1": [
        *opened(),
        asked(2, "acknowledge", through=[2, DIGESTS[2]]),
        got(2, "acknowledged", through=[1, DIGESTS[1]], retained=[1, DIGESTS[1]]),
    ],
}


@pytest.mark.parametrize("said", LIES)
def test_a_lie_is_seen(said):
    (wrong,) = Heard().take(LIES[said]).wrong
    assert said in wrong


HONEST = [*opened(), *FIRST, *page(4, 1, [2], 2), *recorded(5, 1, duplicate=True, through=[2, DIGESTS[2]], sequence=1)]


def refused(at: float, code: str) -> list[dict]:
    answer = {"re": "error", "id": 6, "code": code, "message": "no"}
    return [asked(6, "record", producer="p"), {"at": at, "who": "c", "on": 1, "got": answer}]


FULL = {"at": 3.0, "fault": "full", "until": 4.0}
JUDGED = {
    "a was made, and is not there": HONEST,
    "a was deleted, and is there": [*opened(), *DELETED],
    "a is another one than was answered": [*opened(), *opened(2, created=False)],
    "refusals `storage_full` of `record` a that no fault explains": [FULL, *refused(40.0, "storage_full")],
    "refusals `storage_failed` of `record` a that no fault explains": refused(3.5, "storage_failed"),
    "refusals `unavailable` of `record` a that no fault explains": [FULL, *refused(3.5, "unavailable")],
}


@pytest.mark.parametrize("said", JUDGED)
def test_what_the_log_says_is_held_against_the_files(said, tmp_path):
    log = tmp_path / "history.jsonl"
    log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in JUDGED[said]))
    journal = tmp_path / "state/relays/a/journal"
    journal.parent.parent.mkdir(parents=True)
    if said.startswith(("a was deleted", "a is another")):
        journal.mkdir(parents=True)
        (journal / "active.log").write_bytes(bytes(48))
    (wrong,) = judge(log, tmp_path / "state").wrong
    assert said in wrong


LOST = {
    "answered": FIRST,
    "answered as a duplicate": recorded(2, 1, duplicate=True, through=[2, DIGESTS[2]], sequence=1),
    "shown": page(2, 1, [2], 2),
}


@pytest.mark.parametrize("said", LOST)
def test_what_was_said_and_is_in_no_file_is_lost(said, tmp_path):
    log = tmp_path / "history.jsonl"
    lines = [*opened(store=base64.b64encode(oracle.STORE).decode()), *LOST[said]]
    log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    journal = tmp_path / "state/relays/a/journal"
    journal.mkdir(parents=True)
    created = msgspec.msgpack.encode([1, "relay.created", {}])
    (journal / "active.log").write_bytes(oracle.segment_of([[created]]))
    (wrong,) = judge(log, tmp_path / "state").wrong
    assert wrong.startswith("a: ")


def test_what_is_as_it_has_to_be_is_not_wrong(tmp_path):
    heard = Heard().take([*HONEST, FULL, *refused(3.5, "storage_full")])
    assert not heard.wrong
    assert heard.relays["a"].said["p"].duplicates == 1
    assert heard.relays["a"].said["c"].shown.keys() == {2}
