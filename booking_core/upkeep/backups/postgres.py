"""Dump a PostgreSQL database with `pg_dump`, and restore it with `pg_restore` and `psql` in one transaction."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sqlalchemy import text

from booking_core.base import database_urls
from booking_core.base.settings import Settings
from booking_core.base.tokens import SEALED_PREFIX
from booking_core.db import sql_files
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import OF_INSTALLATION
from booking_core.upkeep.backups.errors import BackupError, Content, damaged
from booking_core.upkeep.secret_keys import KINDS

_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")
"""The folders of the packages of Debian, Red Hat and Homebrew, in addition to the PATH."""
_LOCK_WAIT_MS = 60_000
"""`pg_dump` waits so long for a table that an upgrade has locked."""
_LOOKS, _LOOK_AGAIN_S = 10, 0.1
_SETTINGS = {b"SET transaction_timeout = 0;\n": 17}
"""Settings that newer programs make on every server, with the first version of PostgreSQL that has them."""
_END_OF_SETTINGS = b"SELECT pg_catalog.set_config('search_path'"
_COPY = re.compile(rb'COPY (?P<schema>"(?:[^"]|"")+"|\w+)\.(?P<table>\w+) \(.*\) FROM stdin;\n')
_END_OF_COPY = b"\\.\n"
_SERVICE = "booking"
_WITHOUT_VARIABLE = ("sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Secrets that libpq reads from no variable of the environment."""
_SEALED = re.compile(re.escape(SEALED_PREFIX.encode()) + rb"(\w+)\.")

_SQL = sql_files.load(__name__)


@dataclass(frozen=True, slots=True)
class _Target:
    """The database and the programs for it."""

    url: str
    """Without its secrets."""
    environment: Mapping[str, str]
    folder: Path
    schema: str
    """The name of the schema of the service's tables."""
    server_major: int

    @contextmanager
    def running(self, program: str, *arguments: str, **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a program while the body runs, and wait for its end. An exception kills it."""
        command = [str(self.folder / program), *arguments]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams}
        with subprocess.Popen(command, env=self.environment, **streams) as process:  # noqa: S603 - no shell reads them
            try:
                yield process
            except BaseException:
                process.kill()
                process.wait()
                raise


def dump(settings: Settings, draft: Path, _: object) -> None:
    """Dump the tables of the service, as one snapshot, into an empty file."""
    options = ("--format=custom", "--no-owner", "--no-privileges", f"--lock-wait-timeout={_LOCK_WAIT_MS}")
    with _target(settings) as target, tempfile.TemporaryFile() as errors:
        tables = f"--table={_quoted(target.schema)}.*"
        files = (f"--file={draft}", f"--dbname={target.url}")
        with target.running("pg_dump", *options, tables, *files, stderr=errors) as process:
            process.wait()
        if process.returncode:
            raise BackupError(f"pg_dump failed: {_last_line(errors)}", code="backup_failed")


def inspect(settings: Settings, file: Path) -> Content:
    """Read every block of an archive, and return its content.

    Raises:
        BackupError: the file is damaged, or its tables belong to another schema.
    """
    # A missing file is reported as such, before the database is opened.
    with file.open("rb"), _target(settings) as target, tempfile.TemporaryFile() as errors:
        with target.running("pg_restore", "--data-only", "--file=-", str(file), stderr=errors) as process:
            assert process.stdout is not None
            schemas, content = _read(process.stdout)
            process.wait()
        if process.returncode:
            raise damaged(file, _last_line(errors))
    for schema in schemas - {target.schema}:
        raise BackupError(f"{file} holds the schema {schema}, not {target.schema}.", code="other_schema")
    return content


def _read(script: Iterable[bytes]) -> tuple[set[str], Content]:
    """Return the schemas of the tables in a script of `pg_restore`, and its content."""
    kinds, schemas, content, table = {kind.table.name: kind for kind in KINDS}, set[str](), Content(), ""
    for line in script:
        if line == _END_OF_COPY:
            table = ""
        elif table == "alembic_version":
            content.revision = line.decode().strip()
        elif table in kinds:
            content.key_ids.setdefault(kinds[table], set()).update(key_id.decode() for key_id in _SEALED.findall(line))
        elif not table and (block := _COPY.fullmatch(line)):
            schema, table = block["schema"].decode(), block["table"].decode()
            schemas.add(schema[1:-1].replace('""', '"') if schema.startswith('"') else schema)
    return schemas, content


def load(settings: Settings, file: Path, force: bool, _: object) -> None:
    """Replace the tables of the schema with the tables of the backup, in one transaction."""
    script_of = ("pg_restore", "--no-owner", "--no-privileges", "--file=-", str(file))
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with _target(settings) as target, tempfile.TemporaryFile() as errors:
        send_to = ("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={target.url}")
        tables = _tables(settings, target.schema, force)
        drop = f"DROP TABLE {', '.join(tables)} CASCADE;\n" if tables else ""
        with (
            contextlib.suppress(BrokenPipeError),  # psql has ended, and reported why
            target.running(*script_of, stderr=errors) as script,
            target.running(*send_to, **streams, stderr=errors) as client,
        ):
            assert client.stdin is not None
            assert script.stdout is not None
            client.stdin.write(f"BEGIN;\n{drop}".encode())
            copy_script(script.stdout, client.stdin, target.server_major)
            if script.wait() == 0:  # without COMMIT the server rolls back
                client.stdin.write(b"COMMIT;\nANALYZE;\n")
        if script.returncode or client.returncode:
            message = f"The backup was not restored, and nothing was changed: {_last_line(errors)}"
            raise BackupError(message, code="not_restored")


def copy_script(script: IO[bytes], to: IO[bytes], server_major: int) -> None:
    """Copy a script of `pg_restore` without settings at its head that the server does not have."""
    for line in script:
        if _SETTINGS.get(line, 0) <= server_major:
            to.write(line)
        if line.startswith(_END_OF_SETTINGS):
            break
    shutil.copyfileobj(script, to)


def _tables(settings: Settings, schema: str, force: bool) -> list[str]:
    """Return the quoted names of the tables to be replaced.

    Raises:
        BackupError: another client is connected; or a table has rows, unless they are to be replaced.
    """
    with closing(Database(settings.session_url)) as database, database.reading() as tx:
        if others := _other_clients(tx):
            raise BackupError(
                f"{others} other clients are connected to the database.",
                code="database_in_use",
                hint="stop serve and worker, and disconnect other clients",
            )
        tables = [str(row[0]) for row in tx.all(_SQL.statement("tables"))]
        data_tables = [table for table in tables if table.rpartition(".")[2].strip('"') not in OF_INSTALLATION]
        if not force and any(tx.first(Statement(text(f"SELECT 1 FROM {table} LIMIT 1"))) for table in data_tables):  # noqa: S608
            raise BackupError(
                f"The schema {schema} is not empty.", code="not_empty", hint="pass --force to replace all of its data"
            )
    return tables


def _other_clients(tx: Tx) -> int:
    """Return the number of other clients. The server counts a disconnected client for a moment longer."""
    for _ in range(_LOOKS):
        ((others,),) = tx.all(_SQL.statement("other_clients"))
        if not others:
            break
        time.sleep(_LOOK_AGAIN_S)
    return int(others)


def _quoted(name: str) -> str:
    """Return the name as a pattern of pg_dump that matches nothing else."""
    return '"' + name.replace('"', '""') + '"'


def _last_line(errors: IO[bytes]) -> str:
    """Return the program's last message."""
    errors.seek(0)
    lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("pg_restore: ").removeprefix("pg_dump: ") if lines else "it said nothing"


# Programs --------------------------------------------------------------------------------------------------------


@contextmanager
def _target(settings: Settings) -> Iterator[_Target]:
    with closing(Database(settings.session_url)) as database, database.reading() as tx:
        ((version, schema, may_read_folder),) = tx.all(_SQL.statement("server"))
        (folder,) = (may_read_folder and tx.first(_SQL.statement("program_folder"))) or ("",)
    if schema is None:
        raise BackupError("The search path of the database names no schema.", code="no_schema")
    with connection(settings.session_url) as (url, environment):
        yield _Target(url, environment, find_programs(folder), schema, int(version) // 10_000)


def find_programs(beside_server: str) -> Path:
    """Return the folder of the programs: the server's folder if it is on this machine, else a folder of the PATH or of
    packages.

    Raises:
        BackupError: there are none.
    """
    installed = [str(folder) for pattern in _FOLDERS for folder in sorted(Path("/").glob(pattern), reverse=True)]
    folders = filter(None, [beside_server, os.environ.get("PATH"), *installed])
    if program := shutil.which("pg_dump", path=os.pathsep.join(folders)):
        return Path(program).parent
    hint = "install the package postgresql-client (Debian, Ubuntu) or postgresql (Red Hat, Homebrew)"
    raise BackupError("pg_dump, pg_restore and psql were not found.", code="no_pg_dump", hint=hint)


@contextmanager
def connection(database_url: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield libpq's connection string without its secrets, and the environment that holds them or names their file:
    arguments of a process can be read by other users.

    Raises:
        BackupError: the URL has a secret that only a service file can hold, and another service file is in use.
    """
    from psycopg.conninfo import make_conninfo  # psycopg is not installed where only SQLite is used

    params = database_urls.parameters(database_urls.parse(database_url))
    password = params.pop("password", None)
    environment = {**os.environ, **({"PGPASSWORD": password} if password else {}), "PGCLIENTENCODING": "UTF8"}
    secrets = {name: params.pop(name) for name in _WITHOUT_VARIABLE if name in params}
    if not secrets:
        yield make_conninfo("", **params), environment
        return
    if "service" in params or "PGSERVICE" in environment:
        message = f"The database URL has {next(iter(secrets))} beside a service."
        raise BackupError(message, code="bad_setting", hint="write it into the service file instead")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:  # mode 0600
        file.write("\n".join((f"[{_SERVICE}]", *(f"{name}={value}" for name, value in secrets.items()), "")))
        file.flush()
        yield make_conninfo("", **params, service=_SERVICE), environment | {"PGSERVICEFILE": file.name}
