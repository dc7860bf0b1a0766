"""Many clients at once, and their end."""

import contextlib
import resource
import select
from collections.abc import Iterator

from support.daemon import Daemon
from support.wire import Wire

OWN_DESCRIPTORS = 200


@contextlib.contextmanager
def crowd(daemon: Daemon, count: int, **more: object) -> Iterator[list[Wire]]:
    """So many clients; the test's own process may have that many descriptors for as long."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(count + OWN_DESCRIPTORS, before[1])), before[1]))
    clients: list[Wire] = []
    try:
        while len(clients) < count:
            clients.append(daemon.connect(**more))
        yield clients
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def ask_and_take_nothing(clients: list[Wire], relay: str, last: int) -> None:
    """Each asks for a page from somewhere before `last`, and once it begins to come the next one asks."""
    for at, client in enumerate(clients):
        client.send("attach", relay=relay, after=[1 + at * 7 % last, None], max_bytes=1 << 20)
        select.select([client.socket], [], [], 10)
