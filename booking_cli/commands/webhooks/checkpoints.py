"""How far `listen` has come, kept in a file: one for each profile, organization and receiver."""

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
from booking_cli.framework.context import CliError
from booking_core import private_files


class Checkpoint:
    """The place of one listener. It is replaced as a whole, so that whoever is killed leaves the old one or the new."""

    def __init__(self, folder: Path, *, profile: str, organization_id: str, target: str) -> None:
        self._owner = {"profile": profile, "organization_id": organization_id, "target": target}
        name = hashlib.sha256(json.dumps(self._owner, sort_keys=True).encode()).hexdigest()[:20]
        self.path = folder / f"{name}.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps a second listener away for as long as this one lives, however it ends.

        Each would note how far it has come; with other types, one would leave out what the other had noted.

        Raises:
            CliError: there is one already.
        """
        if sys.platform == "win32":
            yield
            return
        import fcntl

        with os.fdopen(self._lock()) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CliError(
                    f"Another listener forwards to {self._owner['target']} already.",
                    code="already_listening",
                    hint="end it, or forward to another path",
                ) from None
            yield

    def load(self) -> Position | None:
        """The place that was kept; none when there is none.

        Raises:
            CliError: the file is there and cannot be read.
        """
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))["position"]
            return Position(**(kept | {"types": tuple(kept["types"])}))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CliError(
                f"{self.path} does not tell where to go on.", code="bad_file", hint="--no-resume begins anew"
            ) from error

    def save(self, position: Position) -> None:
        """Keeps the place.

        Raises:
            CliError: it cannot be written; going on would forward everything again after a restart.
        """
        profiles.write_private(self.path, json.dumps(self._owner | {"position": asdict(position)}) + "\n")

    def _lock(self) -> int:
        path = self.path.with_suffix(".lock")
        try:
            private_files.make_folder(path.parent)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise CliError(f"{path} cannot be written: {error.strerror}.", code="bad_file") from None
