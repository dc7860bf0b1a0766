"""Readers that took nothing held 200 KiB each in the system's socket buffers, which no bound of relayd's counted.

Pages grew small only by what the daemon itself still had to send. One that fits the system's buffer leaves nothing to
send, so a thousand slow readers held 200 MiB of memory that counts as the daemon's, and had it killed.
"""

from chaos.environment.account import Account
from chaos.environment.cgroup import MIB, memory_limit, needs_cgroup
from chaos.environment.crowd import ask_and_take_nothing, crowd
from support.daemon import Daemon, short_place

LAYER = "real process in a hostile environment"
WRONG = "A reader that took nothing held 200 KiB of the kernel's memory, without a bound on all of them together."


@needs_cgroup
def test_300_readers_that_take_nothing_hold_less_than_30_mib():
    account = Account()
    with short_place() as place, memory_limit(1024 * MIB) as limit:
        daemon = limit.hold(Daemon(place)).start()
        try:
            with daemon.connect() as wire:
                account.open(wire)
                for _ in range(8):
                    account.insist(wire, size=1000, count=1000)
                with crowd(daemon, 300) as lazy:
                    before = limit.held
                    ask_and_take_nothing(lazy, "a", 4000)
                    account.insist(wire)
                    assert limit.held - before < 30 * MIB
        finally:
            daemon.end()
