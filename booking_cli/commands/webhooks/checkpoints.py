"""Save the position of `listen` in a file for each profile, organization and receiver."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from booking_cli.client import profiles
from booking_cli.client.event_feed import Position
from booking_cli.framework.errors import CliError, bad_file
from booking_core.base import private_files


class Checkpoint:
    """The saved position of a listener. The file is replaced atomically."""

    def __init__(self, folder: Path, *, profile: str, organization_id: str, target: str) -> None:
        self._owner = {"profile": profile, "organization_id": organization_id, "target": target}
        name = hashlib.sha256(json.dumps(self._owner, sort_keys=True).encode()).hexdigest()[:20]
        self.path = folder / f"{name}.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold a lock against a second listener; the lock ends with the process.

        Two listeners would overwrite each other's position.

        Raises:
            CliError: another listener has the lock.
        """
        if sys.platform == "win32":
            yield
            return
        import fcntl

        with os.fdopen(self._open_lock()) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CliError(
                    f"Another listener forwards to {self._owner['target']} already.",
                    code="already_listening",
                    hint="stop it, or forward to another path",
                ) from None
            yield

    def load(self) -> Position | None:
        """Return the saved position, or None.

        Raises:
            CliError: the file cannot be read.
        """
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))["position"]
            return Position(**(saved | {"types": tuple(saved["types"])}))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            hint = "begin with new events: --no-resume"
            raise bad_file(self.path, "holds no valid position", hint=hint) from error

    def save(self, position: Position) -> None:
        """Save the position.

        Raises:
            CliError: it cannot be written. A restart would forward all events again.
        """
        profiles.write_private(self.path, json.dumps(self._owner | {"position": asdict(position)}) + "\n")

    def _open_lock(self) -> int:
        path = self.path.with_suffix(".lock")
        try:
            private_files.make_folder(path.parent)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise bad_file(path, f"cannot be written: {error.strerror}") from None
