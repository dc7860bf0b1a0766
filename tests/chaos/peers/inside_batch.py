"""A hostile connection to a daemon in memory: sends a stream of bytes, and holds its answers against the model."""

import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import trio
from chaos.history import read_relay
from chaos.peers.answers import WrongAnswerError, check_shape, expect, outcome
from chaos.peers.model import Model
from chaos.peers.rules import Refused, Request, judge
from support.faults import Faults
from support.inside import Client, Inside, inside
from support.wire import frame

FRAME_BYTES_MAX = 8 << 20
SETTINGS = {"segment_bytes": 64 << 20, "idle_relay": 86_400}


class NoSync(Faults):
    """A storage that syncs nothing and keeps no log: nobody cuts the power here, and there are a million frames."""

    def make(self, name, target, effect):  # noqa: ARG002 - the seam's own
        return None if name == "sync" else effect()


class Cut(NamedTuple):
    """A stream as frames. `lost`: how framing ends it, None where it does not."""

    frames: list[bytes]
    lost: str | None


def cut_stream(stream: bytes) -> Cut:
    """protocol.md, "Frames"."""
    frames, at = [], 0
    while len(stream) - at >= 4:
        (length,) = struct.unpack_from(">I", stream, at)
        if not 1 <= length <= FRAME_BYTES_MAX:
            return Cut(frames, "invalid_request" if length == 0 else "too_large")
        if len(stream) - at - 4 < length:
            break
        frames.append(stream[at + 4 : at + 4 + length])
        at += 4 + length
    return Cut(frames, None)


class Hostile:
    """A daemon in memory, the model of it, and a good client that has to be answered as ever.

    `counts`: outcomes, by their names.
    """

    def __init__(self, daemon: Inside) -> None:
        self.daemon = daemon
        self.model = Model(daemon.now_ms)
        self.counts: dict[str, int] = {}
        self._good: Client | None = None
        self._number = 0

    async def send(self, pieces: list[bytes]) -> int:
        """One connection that sends these, and then no more; how many frames that was. Raises WrongAnswerError."""
        stream = b"".join(pieces)
        cut = cut_stream(stream)
        judged = [judge(one) for one in cut.frames]
        client = self.daemon.connect_silent()
        for piece in pieces:
            client.stream.feed(piece)
            if len(pieces) > 1:
                await trio.lowlevel.checkpoint()
        if cut.lost is None:
            client.stream.half_close()
        with trio.fail_after(1000):
            await client.closed()
        answers = client.stream.answers
        for answer in answers:
            check_shape(answer)
            self.counts[outcome(answer)] = self.counts.get(outcome(answer), 0) + 1
        cancels = {one.fields["request"] for one in judged if isinstance(one, Request) and one.op == "cancel_request"}
        self.model.begin(cancels=cancels, framing_lost=cut.lost is not None)
        for one, content, answer in zip(judged, cut.frames, matched_answers(cut, judged, answers), strict=True):
            if isinstance(one, Refused):
                self.model.refused(answer)
            elif answer["id"] == 0:
                expect(answer, "invalid_request")
            else:
                self.model.answered(one, content, answer)
        self.model.end()
        return len(cut.frames)

    async def good_client(self) -> None:
        """Somebody else is answered rightly, and at once."""
        began = trio.current_time()
        if self._good is None:
            self._good = await self.daemon.connect()
            await self._ask({"op": "open", "relay": "good", "create": True})
        self._number += 1
        await self._ask({"op": "record", "relay": "good", "events": [["x", self._number]]})
        await self._ask({"op": "attach", "relay": "good", "after": [self._number, None]})
        assert trio.current_time() == began, "the good client had to wait"

    async def _ask(self, fields: dict) -> None:
        request = {"id": 1, **fields}
        self._good.stream.feed(frame(request))
        answer = await self._good.answer(1)
        check_shape(answer)
        self.model.begin(cancels=set(), framing_lost=False)
        self.model._welcomed = True
        content = frame(request)[4:]
        self.model.answered(judge(content), content, answer)
        self.model.end()

    async def everything_is_as_it_was_recorded(self) -> int:
        """Reads every relay over the wire and in its files: each event byte for byte, and none more; gives how many."""
        trouble = [line for line in self.daemon.logged if line["level"] not in ("debug", "info")]
        assert not trouble, trouble
        reader, count = await self.daemon.connect(), 0
        for name, relay in self.model.relays.items():
            if relay.keeps_all:
                stored = await reader.read_all(name)
                assert [one.body for one in stored] == relay.bodies[1:], f"relay {name} has other events"
            on_disk = read_relay(self.daemon.place / "relays" / name).records
            assert [on_disk[at].body for at in sorted(on_disk)] == relay.bodies[1:], f"{name}'s files have other events"
            count += len(on_disk)
        listed = (await reader.done("relays"))["relays"]
        assert sorted(one["relay"] for one in listed) == sorted(self.model.relays)
        return count


def matched_answers(cut: Cut, judged: list[Request | Refused], answers: list[dict]) -> Iterator[dict]:
    """The answer of each frame. One under an id that was in flight may have been refused, under id 0."""
    by_id: dict[int, list[dict]] = {}
    for answer in answers:
        by_id.setdefault(answer["id"], []).append(answer)
    nobody = by_id.pop(0, [])
    found: list[dict] = []
    seen: set[int] = set()
    left_of_id = Counter(one.id for one in judged)
    for one in judged:
        own, far = by_id.get(one.id), isinstance(one, Refused) and one.far
        left_of_id[one.id] -= 1
        if own and not (far and len(own) <= left_of_id[one.id]):
            found.append(own.pop(0))
        elif one.id == 0 or one.id in seen or far:
            if not nobody:
                raise WrongAnswerError(f"{one} was not answered")
            found.append(nobody.pop(0))
        else:
            raise WrongAnswerError(f"{one} was not answered under its id; under 0 were {nobody}")
        if isinstance(one, Request):
            seen.add(one.id)
    left = [answer for some in (*by_id.values(), nobody) for answer in some]
    if [outcome(answer) for answer in left] != ([cut.lost] if cut.lost else []):
        raise WrongAnswerError(f"answers to nothing: {left}")
    yield from found


@contextlib.asynccontextmanager
async def hostile(place: Path) -> AsyncIterator[Hostile]:
    """A daemon that is about to be ill-treated."""
    async with inside(place, faults=NoSync(), **SETTINGS) as daemon:
        yield Hostile(daemon)
