"""The events that every measurement uses: about 300 bytes of log-like data, the same for all sides."""

import random

import msgspec

_WORDS = tuple(
    (
        "compiling linking checking module test passed failed warning error retry cache hit miss worker queue stage "
        "deploy artifact upload download commit branch merge container image layer digest probe ready healthy restart"
    ).split()
)


def make_events(count: int, seed: int = 1) -> list[dict[str, object]]:
    """`count` events' data, different from each other, compressible as logs are."""
    draw = random.Random(seed)
    events: list[dict[str, object]] = []
    for number in range(count):
        text = " ".join(draw.choice(_WORDS) for _ in range(34))
        events.append(
            {
                "stream": "stdout",
                "text": f"[{number:08}] {text}"[:282],
                "line": number,
                "seconds": round(draw.random() * 100, 3),
                "ok": draw.random() > 0.1,
                "step": draw.choice(_WORDS),
            }
        )
    return events


def encoded(events: list[dict[str, object]]) -> list[bytes]:
    """The same as the MessagePack bytes that both sides store."""
    return [msgspec.msgpack.encode(data) for data in events]
