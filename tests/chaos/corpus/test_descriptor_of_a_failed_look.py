"""A file that was opened, and whose kind and owner could then not be asked (EIO of fstat), left its descriptor open.

Each retry of a snapshot or a sealing left one more, until the daemon had none.
"""

import errno
import os
from pathlib import Path

import pytest

from relayd.journal.real_storage import open_state_directory

LAYER = "every call boundary"
WRONG = "A descriptor was lost each time a file was opened and fstat of it failed."


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    "opening",
    [
        lambda top: top.open("there", "read"),
        lambda top: top.open("fresh", "create"),
        lambda top: top.directory("folder"),
        lambda top: open_state_directory(top.path),
    ],
    ids=["open read", "open create", "directory", "state directory"],
)
def test_a_look_that_fails_leaves_no_descriptor(tmp_path, monkeypatch, opening):
    (tmp_path / "there").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    top = open_state_directory(str(tmp_path))
    before = descriptors()

    def failing(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", failing)
        with pytest.raises(OSError, match="Input/output error"):
            opening(top)
    assert descriptors() == before
    top.close()
