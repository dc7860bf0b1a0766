"""What an answer adds to what a client was told, and what is wrong with it: one judgement for clients and for logs."""

from chaos.history import Said, Sent
from support.wire import records


def hear_recorded(said: Said, first: int, count: int, answer: dict, *, sequenced: bool = True) -> None:
    """`count` events, numbered from `first`, were recorded, or were there."""
    last = first + count - 1
    ordinal, digest = answer["through"]
    if answer.get("duplicate") and sequenced:
        said.duplicates += 1
        if answer["sequence"] < last:
            said.wrong.append(f"a duplicate of {last} stands at {answer['sequence']}")
        said.stood.append((answer["sequence"], ordinal, digest))
        return
    if answer.get("first") is None:
        said.wrong.append(f"{count} events were answered as {answer}")
        return
    new = ordinal - answer["first"] + 1
    if not 1 <= new <= count or (new != count and not sequenced):
        said.wrong.append(f"{count} events were answered as {answer}")
    for at in range(new):
        said.answered[answer["first"] + at] = last - new + 1 + at
    said.through[ordinal] = digest


def hear_stands(said: Said, least: int, most: int, answer: dict) -> int:
    """A producer asked where it stands, which is from `least` to `most`; the sequence it was told, 0 for unknown."""
    sequence = answer.get("sequence") or 0
    if not least <= sequence <= most:
        said.wrong.append(f"stands at {sequence}, but {least} to {most} is what can be")
    if sequence:
        said.stood.append((sequence, *answer["through"]))
    return sequence


def hear_page(said: Said, after: list | None, latest: int, page: dict) -> list:
    """A page behind the cursor `after` (None: wherever it begins), when `latest` was known; the cursor behind it."""
    cursor = after
    for stored in records(page["records"]):
        if cursor is not None and stored.ordinal != cursor[0] + 1:
            said.wrong.append(f"{stored.ordinal} came after {cursor[0]}")
        cursor = stored.cursor
        if said.shown.setdefault(stored.ordinal, stored.digest) != stored.digest:
            said.wrong.append(f"{stored.ordinal} is shown otherwise than before")
        if not stored.kind.startswith("relay."):
            said.shown_events[stored.ordinal] = Sent(*stored.data)
    if (cursor is not None and page["through"] != cursor) or page["latest"][0] < latest:
        said.wrong.append(f"a page through {page['through'][0]} of {page['latest'][0]}, behind {after} of {latest}")
    return page["through"]


def hear_acknowledged(said: Said, through: list, answer: dict) -> None:
    """A consumer has everything up to the cursor `through`."""
    if answer["through"] != through:
        said.wrong.append(f"acknowledged {through[0]}, stands at {answer['through'][0]}")
    said.acknowledged = max(said.acknowledged, answer["through"][0])
