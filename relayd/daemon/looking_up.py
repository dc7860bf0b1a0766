"""Digests of events that only the files know."""

from typing import Final

from relayd.daemon.environment import Environment
from relayd.daemon.memory import RelayMemory
from relayd.journal.pages import Replan
from relayd.protocol.errors import StorageFailedError

REPLANS_MAX: Final = 8
"""How often something is looked for again whose file was moved meanwhile."""


async def find_digest(memory: RelayMemory, environment: Environment, ordinal: int) -> bytes | None:
    """The digest at `ordinal`, None where it cannot be read. Raises StorageFailedError where files never rest."""
    for _ in range(REPLANS_MAX):
        try:
            return await environment.files.run(memory.reader.digest_at, memory.catalogue.view(), ordinal)
        except Replan:
            continue
    raise StorageFailedError("the files kept moving while the cursor was looked up; send it again")
