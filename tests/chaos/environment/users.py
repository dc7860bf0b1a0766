"""Doing something as another user of the machine."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

NOBODY = 65_534


def as_user(uid: int, call: Callable[[], str]) -> str:
    """What `call` returns in a process of that user's."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(writing, call().encode())
        except BaseException:  # noqa: BLE001 - a child has nobody else to tell
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def let_in(path: Path) -> None:
    """Others may pass through a directory of the test's own."""
    path.chmod(0o711)
