"""Run the contract suite in a cell whose schema Citus has distributed: a coordinator with two workers on this machine.

    python -m scripts.citus /usr/lib/postgresql/16/bin tests/contract -q

The first argument is the folder with the programs of a PostgreSQL that has Citus, the others are for pytest. The
servers use free ports of the loopback interface, and folders that are deleted at the end. If started by root, they run
as `postgres`.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

WORKERS = 2
CELL = "c2"
_DATABASE = "booking"
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
shared_preload_libraries = 'citus'
max_connections = 300
fsync = off
full_page_writes = off
citus.node_conninfo = 'sslmode=disable'
"""
_STARTS_WITHIN_S = 60


@contextmanager
def server(programs: Path, folder: Path) -> Iterator[int]:
    """Run a server with Citus and an empty database, and yield its port."""
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    data, port = folder / "data", _free_port()

    def run(program: str, *arguments: str) -> None:
        words = [programs / program, "-D", data, *arguments]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, user=user)  # noqa: S603 - this module's words

    run("initdb", "-U", "postgres", "-A", "trust", "--no-sync")
    with (data / "postgresql.conf").open("a") as file:
        file.write(_CONFIGURATION.format(port=port))
    run("pg_ctl", "start", "-w", "-t", str(_STARTS_WITHIN_S), "-l", str(folder / "log"))
    try:
        execute(port, f"CREATE DATABASE {_DATABASE}", database="postgres")
        execute(port, "CREATE EXTENSION citus")
        yield port
    finally:
        run("pg_ctl", "stop", "-m", "immediate")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def execute(port: int, *statements: str, database: str = _DATABASE) -> list[tuple[object, ...]]:
    """Run statements, and return the rows of the last one."""
    with psycopg.connect(_url(port, database), autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _url(port: int, database: str = _DATABASE) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/{database}"


@contextmanager
def cluster(programs: Path) -> Iterator[int]:
    """Run a coordinator that distributes each new schema to one of its workers, and yield its port."""
    with ExitStack() as stack:
        ports = []
        for name in range(WORKERS + 1):
            folder = Path(tempfile.mkdtemp(prefix=f"booking-citus-{name}-"))
            folder.chmod(0o755)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            ports.append(stack.enter_context(server(programs, folder)))
        coordinator, *workers = ports
        execute(
            coordinator,
            f"SELECT citus_set_coordinator_host('127.0.0.1', {coordinator})",
            *(f"SELECT citus_add_node('127.0.0.1', {port})" for port in workers),
            f"ALTER DATABASE {_DATABASE} SET citus.enable_schema_based_sharding = on",
        )
        yield coordinator


def main() -> int:
    """Run the suite, and return its exit code; 1 if no cell was distributed."""
    parser = argparse.ArgumentParser(description="Run the contract suite in a cell that Citus has distributed.")
    parser.add_argument("programs", type=Path, help="folder of the programs of a PostgreSQL with Citus")
    arguments, of_pytest = parser.parse_known_args()
    with cluster(arguments.programs) as coordinator:
        environment = {**os.environ, "BOOKING_TEST_CELL": CELL, "BOOKING_TEST_CELLS_URL": _url(coordinator)}
        words = [sys.executable, "-m", "pytest", "-k", "postgresql", *(of_pytest or ["tests/contract", "-q"])]
        code = subprocess.run(words, env=environment, check=False).returncode  # noqa: S603 - pytest's own words
        schemas = execute(coordinator, "SELECT schema_name::text FROM citus_schemas ORDER BY 1")
    names = [str(name) for (name,) in schemas]
    sys.stdout.write(f"distributed schemas: {', '.join(names) or 'none'}\n")
    return code if f"booking_{CELL}" in names else 1


if __name__ == "__main__":
    sys.exit(main())
