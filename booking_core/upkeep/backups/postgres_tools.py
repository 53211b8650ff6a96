"""Find the client programs of PostgreSQL that can read a server, and run them."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from booking_core.base import database_urls
from booking_core.upkeep.backups.errors import BackupError

PROGRAMS = ("pg_dump", "pg_restore", "psql")
_FOLDERS = (
    "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "usr/pgsql-*/bin",  # Red Hat
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)
"""The folders in which packages install them, beside the PATH."""
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs in one folder, of one version."""

    folder: Path
    major: int

    def command(self, program: str, *arguments: str) -> list[str]:
        return [str(self.folder / program), *arguments]


def find(server_major: int, beside_server: Path | None) -> Tools:
    """Return the programs that can back up a server: of its version, or the next newer one.

    Args:
        beside_server: the folder of the server's programs, if it is on this machine.

    Raises:
        BackupError: there are none, or only older ones.
    """
    found = list(_installed([*_folders(), *([beside_server] if beside_server else [])]))
    usable = [tools for tools in found if tools.major >= server_major]
    if usable:
        return min(usable, key=lambda tools: tools.major)
    newest = max((tools.major for tools in found), default=None)
    raise BackupError(
        "pg_dump, pg_restore and psql were not found."
        if newest is None
        else f"pg_dump {newest} cannot back up PostgreSQL {server_major}: it is older than the server.",
        code="no_pg_dump",
        hint=f"install the package postgresql-client-{server_major} (Debian, Ubuntu), postgresql{server_major} (Red"
        f" Hat) or postgresql@{server_major} (Homebrew)",
    )


def _folders() -> list[Path]:
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return on_path + [folder for pattern in _FOLDERS for folder in sorted(Path("/").glob(pattern))]


def _installed(folders: Iterable[Path]) -> Iterator[Tools]:
    for folder in dict.fromkeys(folders):
        if all((folder / program).is_file() for program in PROGRAMS):
            command = [str(folder / "pg_dump"), "--version"]
            version = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if match := _VERSION.search(version.stdout):
                yield Tools(folder, int(match[1]))


def connection(database_url: str) -> tuple[str, Mapping[str, str]]:
    """Return libpq's connection string without the password, and the environment that holds it: arguments of a process
    can be read by other users."""
    from psycopg.conninfo import make_conninfo  # psycopg is not installed where only SQLite is used

    named = database_urls.parameters(database_urls.parse(database_url))
    password = named.pop("password", None)
    environment = {**os.environ, **({"PGPASSWORD": password} if password else {}), "PGCLIENTENCODING": "UTF8"}
    return make_conninfo("", **named), environment
