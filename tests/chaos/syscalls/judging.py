"""What is wrong with an outcome, by what had been asked and answered when the power went."""

from chaos.syscalls.disk import Directory
from chaos.syscalls.machine import Machine
from chaos.syscalls.said import Dialogue, Owed, Written
from chaos.syscalls.trial import Held, Outcome, Producer


class Judge:
    """Says in a sentence what may not be; it knows the events from the daemon's own writes."""

    def __init__(self, machine: Machine, dialogue: Dialogue) -> None:
        self._machine = machine
        self._dialogue = dialogue
        self._folded: dict[tuple[int, int], dict[str, Producer]] = {}

    def owed(self, relay: Directory) -> Owed:
        """What is owed of this relay; of one that never had its name, or lost it for good, that it is not there."""
        name = self._machine.standing_name(relay)
        if name is None or self._machine.standing[name] is not relay:
            return Owed(is_there=False)
        return self._dialogue.owed.get(name, Owed())

    def judge(self, relay: Directory, outcome: Outcome) -> str | None:
        """None where all is as it has to be."""
        if outcome.wrong is not None:
            return outcome.wrong
        owed, held = self.owed(relay), outcome.held
        if held is None:
            return "I1: a relay whose making was answered is not there" if owed.is_there else None
        if owed.is_there is False:
            return "a relay is there that was not made whole, or whose deletion was answered"
        written = self._dialogue.written_to(relay.number)
        return (
            _answered(owed, held)
            or _only_what_was_written(held, written)
            or _collected(owed, held, written)
            or self._state(relay, held, written)
            or _acknowledgements(owed, held, written)
        )

    def _state(self, relay: Directory, held: Held, written: Written) -> str | None:
        last = held.last
        if held.frontier != (last, written[last].digest):
            return f"the state stands at {held.frontier[0]}, the journal ends with {last}"
        key = (relay.number, last)
        if key not in self._folded:
            self._folded[key] = fold(written, last)
        if held.producers != self._folded[key]:
            return f"I6: producers stand at {held.producers}, by the events at {self._folded[key]}"
        return None


def fold(written: Written, last: int) -> dict[str, Producer]:
    """Where each producer stands after `last`."""
    found: dict[str, Producer] = {}
    for ordinal in range(1, last + 1):
        fields = written[ordinal].fields
        if len(fields) > 4:
            name, sequence = fields[4]
            found[name] = Producer(sequence, ordinal, written[ordinal].digest)
    return found


def _answered(owed: Owed, held: Held) -> str | None:
    if held.last < owed.through:
        return f"I1: {owed.through} was answered or shown, the journal ends with {held.last}"
    return None


def _only_what_was_written(held: Held, written: Written) -> str | None:
    if held.records.items() <= written.items():
        return None
    strange = [ordinal for ordinal, stored in held.records.items() if written.get(ordinal) != stored]
    return f"I2: the ordinals {strange} are not what was written"


def _collected(owed: Owed, held: Held, written: Written) -> str | None:
    """What is gone was acknowledged, or evicted by an event that is there."""
    gone = held.first - 1
    may_go = 0 if owed.retention == "checkpointed" else max(owed.asked.values(), default=0)
    if isinstance(owed.retention, dict):
        told = [stored.fields for ordinal, stored in written.items() if ordinal <= held.last]
        may_go = max([may_go, *(fields[2]["through"][0] for fields in told if fields[1] == "relay.evicted")])
    if gone > may_go or held.base > may_go:
        return f"I1: ordinals up to {gone} are gone, the base is {held.base}; only those up to {may_go} may go"
    return None


def _acknowledgements(owed: Owed, held: Held, written: Written) -> str | None:
    for consumer, ordinal in owed.acknowledged.items():
        if held.acknowledged.get(consumer, (0, b""))[0] < ordinal:
            return f"the answered acknowledgement of {ordinal} by {consumer} is gone: {held.acknowledged}"
    for consumer, (ordinal, digest) in held.acknowledged.items():
        if ordinal > owed.asked.get(consumer, 0) or (ordinal and written[ordinal].digest != digest):
            return f"{consumer} stands at {ordinal}, which it never acknowledged"
    return None
