"""Why a relay does not open, in words that say what to run (docs/reference/journal.md, "Opening")."""

from pathlib import PurePath
from typing import Final, Literal

from relayd.journal.active import SyncedEnd
from relayd.journal.storage import Directory
from relayd.protocol.errors import UnavailableDetail, UnavailableError

Reason = Literal[
    "journal_corrupt",
    "journal_undecided",
    "journal_gap",
    "journal_conflict",
    "snapshot_lost",
    "snapshot_ahead",
    "snapshot_conflict",
    "later_format",
    "storage_failed",
]

_VERIFY_THEN_SALVAGE: Final = (
    "`relayd verify {path}` says which events are damaged; bring the files back from a backup, or "
    "`relayd salvage {state} {relay}` sets what is damaged aside and keeps the rest"
)
_HINTS: Final[dict[Reason, str]] = {
    "journal_corrupt": _VERIFY_THEN_SALVAGE,
    "journal_undecided": (
        "`relayd verify {path}` shows the place; `relayd salvage --tail {state} {relay}` accepts the loss of what "
        "stands behind it"
    ),
    "journal_gap": (
        "put the missing segments back into {path}/journal, or `relayd salvage {state} {relay}` gives their ordinals up"
    ),
    "journal_conflict": (
        "`relayd verify {path}` names what stands where; move the file that does not belong there out of the directory"
    ),
    "snapshot_lost": (
        "bring snapshot or seed back from a backup, or `relayd salvage {state} {relay}` keeps what can be read"
    ),
    "snapshot_ahead": (
        "bring the journal's newer files back from a backup, or `relayd salvage {state} {relay}` gives up what is gone"
    ),
    "snapshot_conflict": (
        "`relayd verify {path}` names both digests; bring the file that belongs to this journal back from a backup, or "
        "`relayd salvage {state} {relay}`"
    ),
    "later_format": "start the version of relayd that wrote it; nothing was changed",
    "storage_failed": (
        "mend the disk or the permissions, then open the relay again; `relayd verify {path}` reads every byte"
    ),
}


class OpeningError(UnavailableError):
    """A relay did not open. `synced` is to be given to the next opening in this process.

    It is what this process knows of a failed sync, and nothing on disk tells it.
    """

    def __init__(
        self, message: str, detail: UnavailableDetail, synced: SyncedEnd | None = None, *, found: str | None = None
    ) -> None:
        super().__init__(message, detail)
        self.synced = synced
        self.found = message if found is None else found
        """The message without what to do."""

    @property
    def reason(self) -> str:
        """The reason's word."""
        assert isinstance(self.detail, UnavailableDetail)
        return self.detail.reason


def refusal(
    relay: Directory,
    reason: Reason,
    message: str,
    *,
    file: str | None = None,
    offset: int | None = None,
    hint: str | None = None,
) -> OpeningError:
    """The error for `reason`. `file` is relative to the relay's directory; `message` says what was found.

    `hint`: what to do, where that is not the reason's own, with `{path}`, `{state}` and `{relay}` in it.
    """
    path = PurePath(relay.path)
    hint = (hint or _HINTS[reason]).format(path=path, state=path.parent.parent, relay=path.name)
    place = None if file is None else str(path / file)
    where = "" if place is None else f"{place}: " if offset is None else f"{place}, offset {offset}: "
    found = f"relay {path.name} does not open ({reason}): {where}{message}"
    detail = UnavailableDetail(reason=reason, hint=hint, file=place, offset=offset)
    return OpeningError(f"{found}. What to do: {hint}", detail, found=found)


def storage_refusal(relay: Directory, error: OSError, doing: str, *, file: str | None = None) -> OpeningError:
    """The error for a call that the disk failed; `doing` is what was being done."""
    said = error.strerror or str(error) or type(error).__name__
    return refusal(relay, "storage_failed", f"{doing} failed: {said}", file=file)
