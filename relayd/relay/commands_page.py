"""The page docs/internals/commands.md, its diagram drawn from the table: `python -m relayd.relay.commands_page`."""

import sys
from typing import Final

from relayd.relay.ledger import TRANSITIONS

_HEAD: Final = """\
# Commands

What a command can be, and which event makes it so. Generated from the table in `relayd/relay/ledger.py`, which the fold
goes by; an event that the table does not have cannot follow. What each command does stands in
[protocol](../reference/protocol.md), "Commands".

"""

_WHO: Final = """
| event | recorded when |
| --- | --- |
| `command.queued` | `submit` accepts it |
| `command.started` | it is the head of its lane, and may run |
| `checkpoint.ready` | nothing that was started before a `begin_checkpoint` runs any more |
| `command.claimed` | it is handed to a worker |
| `command.requeued` | its worker was lost, and it asked to be repeated |
| `command.completed`, `command.rejected`, `command.interrupted` | it ends, by its worker or by relayd |

A command that relayd finishes itself goes from queued to its end in one group. A task, configure or side task stands in
the queue, among the side tasks, or among the started ones; a cancel waits for its target; a checkpoint stands alone.
"""


def commands_page() -> str:
    """The whole page."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in TRANSITIONS.items():
        arrows.setdefault((before, after), []).append(event)
    lines = [f"    {before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    ends = [f"    {state} --> [*]" for state in ("completed", "rejected", "interrupted")]
    diagram = ["```mermaid", "stateDiagram-v2", "    [*] --> queued: command.queued", *lines, *ends, "```"]
    return _HEAD + "\n".join(diagram) + "\n" + _WHO


if __name__ == "__main__":
    sys.stdout.write(commands_page())
