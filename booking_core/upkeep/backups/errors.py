"""The error of a backup or a restoration that was not done, and the content of a file that was read."""

from dataclasses import dataclass, field

from booking_core.upkeep.secret_keys import SealedKind


class BackupError(Exception):
    """A reason why nothing was written. The message is one line.

    Args:
        code: a stable name of the reason.
        hint: the next step.
    """

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


def damaged(file: object, problem: str) -> BackupError:
    """Return the error for a file that cannot be restored."""
    return BackupError(f"{file} is damaged or no backup: {problem}", code="bad_backup", hint="take another backup")


@dataclass(slots=True)
class Content:
    """The content of a whole file: the revision of its schema, and the secret keys that its sealed values name."""

    revision: str | None = None
    key_ids: dict[SealedKind, set[str]] = field(default_factory=dict)
