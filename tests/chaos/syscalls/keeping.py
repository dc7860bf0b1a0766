"""A recording that showed something wrong, kept, and the command that shows it again."""

import shlex
from pathlib import Path

import msgspec
from chaos.syscalls.cutting import SECOND, Cutting, Wrong
from chaos.syscalls.law import check_order
from chaos.syscalls.openings import states_within_opening
from chaos.syscalls.recording import load
from chaos.syscalls.states import Bounds, State, chosen
from chaos.syscalls.trial import Bench

_TESTS = Path(__file__).resolve().parents[2]


def keep(directory: Path, bounds: Bounds, wrong: Wrong | None = None) -> str:
    """The command that shows `wrong` again from the recording in `directory`; without it, all the log itself shows."""
    (directory / "bounds").write_bytes(msgspec.json.encode(bounds))
    script = Path(__file__).with_name("replay.py").relative_to(_TESTS.parent)
    command = f"python {script} --log {shlex.quote(str(directory))}"
    if wrong is not None:
        command += f" --prefix {wrong.prefix} --choice {wrong.choice}"
        command += f" --second {wrong.second} --second-choice {wrong.second_choice}" if wrong.second else ""
    return command


def show_log(directory: Path) -> list[str]:
    """What the log itself shows: answers before their sync, events that nobody sent."""
    recording = load(directory)
    wrong = [f"told before a sync had covered it: {one}" for one in check_order(recording).early]
    with Bench() as bench:
        for _ in Cutting(recording, bench, Bounds()).steps():
            pass
    return wrong


def show_state(directory: Path, prefix: int, choice: str, second: int = 0, second_choice: str = "") -> str | None:
    """Opens that very state once more; what is wrong with it."""
    bounds = msgspec.json.decode((directory / "bounds").read_bytes(), type=Bounds)
    with Bench() as bench:
        cutting = Cutting(load(directory), bench, bounds)
        for step, relays in cutting.steps():
            if step.number == prefix:
                state = chosen(cutting.machine.root, relays, bounds, choice)
                relay = relays[state.choice[0]]
                if second:
                    state = _second(bench, state, second, second_choice)
                return cutting.judge.judge(relay, bench.try_state(state))
    raise ValueError(f"the log has no step {prefix}")


def _second(bench: Bench, first: State, second: int, choice: str) -> State:
    found = states_within_opening(bench, first, SECOND)
    return next(state for call, state in found if call == second and state.text == choice)
