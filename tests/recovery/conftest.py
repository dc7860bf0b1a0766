"""Where these tests keep their relays: in memory where there is such a place, because they sync thousands of times."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path):
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="relayd-", dir=MEMORY))
    yield path
    shutil.rmtree(path)
