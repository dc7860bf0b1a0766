import os

from chaos.soak.soak import run_soak

CLIENTS = 8
WOUNDS = (
    "killed",
    "full",
    "killed while opening",
    "relay removed",
    "stopped",
    "mutated frames",
    "few descriptors",
    "slow reader",
    "half closed",
    "crowd",
)


def test_under_faults_of_all_kinds_nothing_answered_is_lost_nothing_is_stored_twice_and_service_comes_back():
    """A short soak; `python tests/chaos/soak/long.py` is a long one."""
    wounds = [name for name in WOUNDS if name != "full" or os.geteuid() == 0]
    outcome = run_soak(iter(wounds), CLIENTS, seed=7)
    assert not outcome.verdict.wrong, f"kept in {outcome.kept}: {outcome.verdict.wrong}"
    assert outcome.wounds.total() == len(wounds)
    relays = {one.relay: one for one in outcome.verdict.relays}
    assert relays["kept"].answered > 50
    assert relays["read"].shown > 50
    # Each relay's producers' events, once more at the end, and what was sent again on purpose.
    assert sum(one.duplicates for one in relays.values()) > 3
