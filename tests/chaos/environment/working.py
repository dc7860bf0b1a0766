"""Producers and readers that go on through whatever happens, each in a thread of its own."""

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from chaos.environment.account import Account
from support.daemon import Daemon, until

ANSWER_SECONDS = 100.0
PASSING = ("storage_full", "storage_failed", "overloaded", "shutting_down")


class Worker(threading.Thread):
    """Keeps an account at work until `stop`; what may not be ends it, as `failed`."""

    def __init__(self, daemon: Daemon, account: Account, seed: str, size_max: int) -> None:
        super().__init__(name=account.said.client, daemon=True)
        self.account = account
        self.steps = 0
        self.failed: Exception | None = None
        self._daemon = daemon
        self._random = random.Random(f"{seed} {account.said.client}")
        self._size_max = size_max
        self._told_to_stop = threading.Event()

    def run(self) -> None:
        while not self._told_to_stop.is_set():
            try:
                with self._daemon.connect(timeout=ANSWER_SECONDS) as wire:
                    while not self._told_to_stop.is_set():
                        self._step(wire)
            except TimeoutError as error:
                self.failed = error
                return
            except OSError:
                time.sleep(0.01)
            except Exception as error:  # noqa: BLE001 - told to whoever waits for this thread
                self.failed = error
                return

    def stop(self) -> None:
        self._told_to_stop.set()

    def _step(self, wire) -> None:
        answer = self.account.record(wire, self._random.randrange(20, self._size_max), self._random.choice((1, 1, 4)))
        if answer["re"] == "error":
            assert answer["code"] in PASSING, answer
            time.sleep(0.02)
            return
        if self._random.random() < 0.1:
            self.account.read(wire, PASSING)
        self.steps += 1


@contextlib.contextmanager
def at_work(daemon: Daemon, seed: str, count: int = 3, size_max: int = 1000) -> Iterator[list[Worker]]:
    """Workers on relay `a` of a daemon that serves; they have stopped, and none has failed, when this is left."""
    workers = [Worker(daemon, Account("a", f"producer-{at}"), seed, size_max) for at in range(count)]
    with daemon.connect() as wire:
        workers[0].account.open(wire)
    for worker in workers:
        worker.start()
    try:
        yield workers
        get_on(workers)
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(ANSWER_SECONDS)
    _none_has_failed(workers)


def get_on(workers: list[Worker], seconds: float = 20) -> None:
    """Each of them is answered once more: service is there."""
    before = [worker.steps for worker in workers]
    until(
        lambda: all(w.failed or w.steps > steps for w, steps in zip(workers, before, strict=True)), seconds,
        f"somebody is not served in {seconds:g} s",
    )  # fmt: skip
    _none_has_failed(workers)


def _none_has_failed(workers: list[Worker]) -> None:
    for worker in workers:
        if worker.failed is not None:
            raise worker.failed
