"""Dump a PostgreSQL database with `pg_dump`, and restore it with `pg_restore` and `psql` in one transaction."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sqlalchemy import text

from booking_core.base.clock import system_clock
from booking_core.base.settings import Settings
from booking_core.db import sql_files
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import OF_INSTALLATION
from booking_core.upkeep.backups import copy_format, postgres_tools
from booking_core.upkeep.backups.errors import BackupError, damaged
from booking_core.upkeep.backups.postgres_tools import Tools
from booking_core.upkeep.backups.progress import Advance
from booking_core.upkeep.secret_keys import KINDS, Kind, Problem, find_problem_of_values

_LOCK_WAIT_MS = 60_000
"""`pg_dump` waits so long for a table that an upgrade has locked."""
_LOOKS, _LOOK_AGAIN_S = 10, 0.1
_REVISIONS = "alembic_version"
_SETTINGS = {b"SET transaction_timeout = 0;\n": 17}
"""Settings that newer programs make on every server, with the first version of PostgreSQL that has them."""
_END_OF_SETTINGS = b"SELECT pg_catalog.set_config('search_path'"

_SQL = sql_files.load(__name__)
_ANALYZE = Statement(text("ANALYZE"))


@dataclass(frozen=True, slots=True)
class Target:
    """The database and the programs for it."""

    url: str
    """Without its password."""
    environment: Any
    tools: Tools
    schema: str
    """The name of the schema in which the service has its tables."""
    server_major: int

    def run(self, program: str, *arguments: str, **streams: Any) -> "subprocess.Popen[bytes]":
        command = self.tools.command(program, *arguments)
        return subprocess.Popen(  # noqa: S603 - the arguments are this module's, and no shell reads them
            command, env=self.environment, **{"stdin": subprocess.DEVNULL, **streams}
        )


class PostgresStore:
    """Backups as archives of `pg_dump` in the custom format, which `pg_restore` reads too."""

    @staticmethod
    def dump(settings: Settings, draft: Path, advance: Advance) -> None:
        """Dump the tables of the service, as one snapshot, into an empty file."""
        target = _target(settings)
        tables = f"--table={_pattern(target.schema)}.*"
        options = ("--format=custom", "--no-owner", "--no-privileges", f"--lock-wait-timeout={_LOCK_WAIT_MS}", tables)
        with _running(target, "pg_dump", *options, f"--file={draft}", f"--dbname={target.url}") as (_, finish):
            finish()

    @staticmethod
    def inspect(settings: Settings, file: Path) -> tuple[str | None, Problem | None]:
        """Return the revision of a backup, and a problem of the secret keys with its values.

        Raises:
            BackupError: the file is damaged, or its tables belong to another schema.
        """
        with file.open("rb"):  # a missing file is reported as such
            target = _target(settings)
        _read(target, file, "--file=/dev/null")  # reads every block
        revisions, values = _samples(target, file)
        return (revisions[0] if revisions else None), find_problem_of_values(settings, values)

    @staticmethod
    def load(settings: Settings, file: Path, force: bool, advance: Advance) -> None:
        """Replace the tables of the schema by those of the backup, in one transaction."""
        target = _target(settings)
        tables = _tables(settings, target.schema, force)
        with tempfile.TemporaryFile() as errors, _running(target, "pg_restore", *_plain(file)) as (script, finish):
            client = target.run(
                *("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={target.url}"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            try:
                _send(client, tables, script, finish, target.server_major)
            finally:
                _end(client)  # without COMMIT the server rolls back
            if client.returncode:
                message = _last_line(errors)
                raise BackupError(
                    f"The backup was not restored, and nothing was changed: {message}", code="not_restored"
                )
        _analyze(settings)


def _analyze(settings: Settings) -> None:
    """Give the planner the statistics of the restored tables."""
    with (
        closing(Database(settings.session_url)) as database,
        database.reading() as tx,
        tx.without_statement_timeout(),
    ):
        tx.run(_ANALYZE)


def _target(settings: Settings) -> Target:
    with closing(Database(settings.session_url)) as database, database.reading() as tx:
        row = tx.first(_SQL.statement("server"))
        assert row is not None
        version, schema, may_read_folder = row
        folder = tx.first(_SQL.statement("program_folder")) if may_read_folder else None
    if schema is None:
        raise BackupError("The search path of the database names no schema.", code="no_schema")
    url, environment = postgres_tools.connection(settings.session_url)
    major = int(version) // 10_000
    tools = postgres_tools.find(major, Path(folder[0]) if folder else None)
    return Target(url, environment, tools, schema, major)


def _pattern(name: str) -> str:
    """Return the name as a pattern of pg_dump that matches nothing else."""
    return '"' + name.replace('"', '""') + '"'


def _tables(settings: Settings, schema: str, force: bool) -> list[str]:
    """Return the quoted names of the tables to be replaced.

    Raises:
        BackupError: another client is connected; or a table has rows, unless they are to be replaced.
    """
    with closing(Database(settings.session_url)) as database, database.reading() as tx:
        others = _other_clients(tx)
        tables = [str(row[0]) for row in tx.all(_SQL.statement("tables"))]
        is_empty = force or not any(
            tx.first(Statement(text(f"SELECT 1 FROM {table} LIMIT 1")))  # noqa: S608 - quoted by the server
            for table in tables
            if table.rpartition(".")[2].strip('"') not in OF_INSTALLATION
        )
    if others:
        raise BackupError(
            f"{others} other clients are connected to the database.",
            code="database_in_use",
            hint="stop serve and worker, and disconnect other clients",
        )
    if not is_empty:
        raise BackupError(
            f"The schema {schema} is not empty.", code="not_empty", hint="pass --force to replace all of its data"
        )
    return tables


def _other_clients(tx: Tx) -> int:
    """Return the number of other clients. One that has left is counted by the server for a moment longer."""
    for _ in range(_LOOKS):
        row = tx.first(_SQL.statement("other_clients"))
        others = int(row[0]) if row else 0
        if not others:
            break
        time.sleep(_LOOK_AGAIN_S)
    return others


def _send(
    client: "subprocess.Popen[bytes]",
    tables: list[str],
    script: IO[bytes],
    finish: Callable[[], None],
    server_major: int,
) -> None:
    assert client.stdin is not None
    drop = f"DROP TABLE {', '.join(tables)} CASCADE;\n" if tables else ""
    try:
        client.stdin.write(f"BEGIN;\n{drop}".encode())
        copy_script(script, client.stdin, server_major)
        finish()
        client.stdin.write(b"COMMIT;\n")
        client.stdin.close()
    except BrokenPipeError:  # the client has reported why
        return
    client.wait()


def copy_script(script: IO[bytes], to: IO[bytes], server_major: int) -> None:
    """Copy a script of `pg_restore` without settings at its head that the server does not have."""
    for line in script:
        if _SETTINGS.get(line, 0) <= server_major:
            to.write(line)
        if line.startswith(_END_OF_SETTINGS):
            break
    shutil.copyfileobj(script, to)


def _plain(file: Path) -> tuple[str, ...]:
    return "--no-owner", "--no-privileges", "--file=-", str(file)


def _samples(target: Target, file: Path) -> tuple[list[str], list[tuple[Kind, dict[str, str]]]]:
    """Return the revisions of the backup, and the first and the last sealed value of each kind that is in use.

    Raises:
        BackupError: its tables are in another schema than those of the database.
    """
    kinds = {kind.table.name: kind for kind in KINDS}
    only = [f"--table={name}" for name in (_REVISIONS, *kinds)]
    revisions: list[str] = []
    first: dict[str, dict[str, str]] = {}
    last: dict[str, dict[str, str]] = {}
    with _running(target, "pg_restore", "--data-only", *only, *_plain(file)) as (script, finish):
        for schema, table, row in copy_format.rows(script):
            if schema != target.schema:
                raise BackupError(f"{file} holds the schema {schema}, not {target.schema}.", code="other_schema")
            if table == _REVISIONS:
                revisions.append(str(row["version_num"]))
            elif _is_in_use(kinds[table], row):
                last[table] = {name: str(value) for name, value in row.items()}
                first.setdefault(table, last[table])
        finish()
    return revisions, [(kinds[table], row) for found in (first, last) for table, row in found.items()]


def _is_in_use(kind: Kind, row: dict[str, str | None]) -> bool:
    """Return whether the value may be opened again, as `Kind.in_use` says in SQL."""
    if not row[kind.column]:
        return False
    if kind.name == "mail":
        return row["status"] == "queued"
    expires_at = row.get("expires_at") if kind.name == "webhook_secret" else None
    return expires_at is None or int(expires_at) > system_clock()


def _read(target: Target, file: Path, *arguments: str) -> None:
    with _running(target, "pg_restore", *arguments, str(file)) as (_, finish):
        finish()


@contextmanager
def _running(target: Target, program: str, *arguments: str) -> Iterator[tuple[IO[bytes], Callable[[], None]]]:
    """Run a program and yield its output, and a function that waits for its end. It is killed when the block ends.

    Raises:
        BackupError: by that function, when the program failed.
    """
    with tempfile.TemporaryFile() as errors:
        process = target.run(program, *arguments, stdout=subprocess.PIPE, stderr=errors)

        def finish() -> None:
            if process.wait():
                message = _last_line(errors)
                if program == "pg_restore":
                    raise damaged(arguments[-1], message)
                raise BackupError(f"{program} failed: {message}", code="backup_failed")

        assert process.stdout is not None
        try:
            yield process.stdout, finish
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the program if it still runs, and close its streams."""
    if process.poll() is None:
        process.terminate()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            try:
                stream.close()
            except BrokenPipeError:
                continue


def _last_line(errors: IO[bytes]) -> str:
    """Return the program's last message."""
    errors.seek(0)
    lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("pg_restore: ").removeprefix("pg_dump: ") if lines else "it said nothing"
