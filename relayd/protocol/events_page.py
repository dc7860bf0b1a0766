"""Writes docs/reference/events.md from the structs of the kinds: `python -m relayd.protocol.events_page > FILE`."""

import re
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from relayd.protocol.cursor import Cursor
from relayd.protocol.kinds import KINDS, RESERVED_PREFIXES, EventData, RetentionBytes

_WORD: Final = re.compile(r"[a-z_]+")

_BEGINNING: Final = """\
# Events

An event has a kind and data, and perhaps a `command_id` and the producer that numbered it
([journal](journal.md), "Record"). Everything a relay knows is the fold of its events.

## Kinds of applications

A kind is a lower-case letter and then up to 63 of `a-z 0-9 . _ -`. Its data is the application's own: anything that
MessagePack has, with strings as the keys of every map. relayd reads none of it. Such an event moves the frontier and
its producer's sequence, and changes nothing else.

The command line and the ready-made workers use these, and tools for people show them well:

| kind | data |
| --- | --- |
| `output` | `stream`, and `text` or, where it is no UTF-8, `bytes` |
| `status` | `text` |
| `exit` | `code` or `signal`, and `seconds` |

## relayd's own kinds

Kinds with these prefixes are relayd's own:
{prefixes}.
A client that records one is refused. One that this version does not know refuses the opening of the relay
(`later_format`), because folding past it would be a guess. Their data is a map; fields that a later version adds are
passed over.
"""


def events_page() -> str:
    """The page, whole."""
    prefixes = ", ".join(f"`{prefix}`" for prefix in RESERVED_PREFIXES)
    sections = [_section(kind, data) for kind, data in KINDS.items()]
    return "\n".join([_BEGINNING.format(prefixes=prefixes), *sections])


def _section(kind: str, data: type[EventData]) -> str:
    rows = [f"| `{name}` | {kind_of_value} |" for name, kind_of_value in _fields(data)]
    table = ["| field | |", "| --- | --- |", *rows, ""] if rows else ["No data.", ""]
    return "\n".join([f"### {kind}", "", data.__doc__ or "", "", *table])


def _fields(data: type[EventData]) -> Iterator[tuple[str, str]]:
    described = msgspec.inspect.type_info(data)
    assert isinstance(described, msgspec.inspect.StructType)
    for field in described.fields:
        yield field.encode_name, _value(field.type) + ("" if field.required else ", optional")


def _value(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.IntType():
            return "whole number"
        case msgspec.inspect.StrType(pattern=str(pattern)):
            return " or ".join(f"`{word}`" for word in _WORD.findall(pattern))
        case msgspec.inspect.StrType():
            return "string"
        case msgspec.inspect.BytesType(min_length=int(length)):
            return f"{length} bytes"
        case msgspec.inspect.NamedTupleType(cls=cls) if cls is Cursor:
            return "cursor"
        case msgspec.inspect.StructType(cls=cls) if cls is RetentionBytes:
            return "`{bytes: n}`"
        case msgspec.inspect.RawType():
            return "any value"
        case msgspec.inspect.NoneType():
            return ""
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(word for word in map(_value, types) if word)
        case _:
            raise AssertionError(f"a kind of value that the page has no word for: {kind}")


if __name__ == "__main__":
    sys.stdout.write(events_page())
