"""Fixtures for all tests: both databases, the application, and an organization.

PostgreSQL comes from a wheel and is started once for a run, unless BOOKING_TEST_DATABASE_URL names another server. Each
backend has one database for the run. Each test has its own organization in it, which isolates tests; a test that needs
a separate database uses `fresh_database_url`. With BOOKING_TEST_CELL the tests of the API run on PostgreSQL in that
cell, one of five. BOOKING_TEST_CELLS_URL names an empty database of another server for the cells.
"""

import gc
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from starlette.testclient import TestClient
from support.api.api import Api
from support.api.client import WholeResponses
from support.databases import wheel
from support.databases.cells import installation_of, served_as_cell, settings_of_cells
from support.ordering import slow_first
from support.receivers import redis_server
from support.serving import components
from support.world.operations import Operations
from support.world.world import NOON, SECRET, FixedClock, World, make_world

from booking_core.base.settings import Settings
from booking_core.db import migrate
from booking_core.db.engine import Database
from booking_core.upkeep import cells
from booking_server.app import create_app

BACKENDS = ("sqlite", "postgresql")
CELL = os.environ.get("BOOKING_TEST_CELL")
"""The cell for the tests of the API on PostgreSQL: first, c2, c3, c4, db."""
_STARTS = 3
_GC_THRESHOLDS = 100_000, 20, 20
"""Thresholds of the garbage collector: the interpreter's defaults take a twentieth of the run."""
_MEMORY_WANTED = 4 * 2**30
"""The free memory that is needed to keep databases there: several times the size of the largest run."""

_LOGGERS = "", "booking", "booking.audit", "booking_sdk", "uvicorn", "uvicorn.error", "uvicorn.access"
"""The loggers that the commands and the SDK configure."""


@pytest.fixture(autouse=True)
def _logging_is_left_as_it_was() -> Iterator[None]:
    """Restore the loggers after a test: a handler of its captured stderr would fail in the tests that follow."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(one.handlers[:], one.level, one.propagate, one.disabled) for one in loggers]
    yield
    for one, (handlers, level, propagate, disabled) in zip(loggers, before, strict=True):
        one.handlers[:] = handlers
        if one.level != level:  # setting it empties the caches of all loggers
            one.setLevel(level)
        one.propagate, one.disabled = propagate, disabled


@pytest.fixture(scope="session")
def postgres_server(memory: Path | None) -> Iterator[str]:
    """The URL of a running PostgreSQL server's maintenance database."""
    if url := os.environ.get("BOOKING_TEST_DATABASE_URL"):
        yield url
        return
    # Not in pytest's own folder: another run changes its modes, and the server, which runs as a different user, would
    # lose access to its data.
    folder = Path(tempfile.mkdtemp(prefix="booking-postgres-", dir=memory))
    folder.chmod(0o755)
    server = _start_postgres(folder)
    _configure(server.get_uri())
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def _start_postgres(folder: Path) -> Any:
    """Start the wheel's server, with several attempts: a start that takes more than ten seconds fails."""
    get_server = wheel.load().get_server
    for start in range(_STARTS - 1):
        try:
            return get_server(folder / f"postgres-{start}", cleanup_mode="stop")
        except (subprocess.SubprocessError, OSError, RuntimeError):
            continue
    return get_server(folder / "postgres", cleanup_mode="stop")


def _configure(url: str) -> None:
    """Configure the server not to wait for the disk, and not to vacuum.

    Only a crash of the machine loses commits, not the end of a process. A new database takes twice as long during a
    vacuum, and without vacuums the statistics are exactly as a test requested them.
    """
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "autovacuum"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")  # type: ignore[call-overload]
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def memory() -> Path | None:
    """The folder for databases in memory, if it has room: on disk a new database takes most of its time to write."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > _MEMORY_WANTED else None


@pytest.fixture(scope="session")
def sqlite_folder(memory: Path | None) -> Iterator[Path]:
    """A folder for the files of SQLite."""
    with tempfile.TemporaryDirectory(prefix="booking-sqlite-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def new_database_url(postgres_server: str, sqlite_folder: Path) -> Iterator[Callable[[str], str]]:
    """A function that makes an empty, migrated database of the backend and returns its URL."""
    import psycopg
    from sqlalchemy.engine import make_url

    template: dict[str, str] = {}
    names: list[str] = []

    def run(sql: str) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(sql)  # type: ignore[call-overload]

    with psycopg.connect(postgres_server) as connection:
        # Half the time of a copy through the log; before version 15 it is the only way, and has no name.
        copying = " STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""

    def postgres_name(name: str) -> str:
        return make_url(postgres_server).set(database=name).render_as_string(hide_password=False)

    def make(backend: str) -> str:
        name = f"booking_{uuid.uuid4().hex[:12]}"
        if backend == "sqlite":
            path = Path(tempfile.mkdtemp(dir=sqlite_folder)) / "booking.db"
            if backend not in template:
                template[backend] = str(sqlite_folder / "template.db")
                migrate.upgrade(f"sqlite:///{template[backend]}")
            shutil.copyfile(template[backend], path)
            path.chmod(0o600)
            return f"sqlite:///{path}"
        if backend not in template:
            template[backend] = f"{name}_template"
            run(f"CREATE DATABASE {template[backend]}")
            names.append(template[backend])
            migrate.upgrade(postgres_name(template[backend]))
        run(f"CREATE DATABASE {name} TEMPLATE {template[backend]}{copying}")
        names.append(name)
        return postgres_name(name)

    yield make
    if "BOOKING_TEST_DATABASE_URL" in os.environ:  # our own server is deleted with its databases
        for name in names:
            run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def drop_database(postgres_server: str) -> Callable[[str], None]:
    """A function that deletes a database of `new_database_url`: hundreds of them would fill the memory."""
    import psycopg
    from sqlalchemy.engine import make_url

    def drop(url: str) -> None:
        name = make_url(url).database
        if url.startswith("sqlite"):
            shutil.rmtree(Path(str(name)).parent, ignore_errors=True)
            return
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")  # type: ignore[call-overload]

    return drop


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def postgresql_only(backend: str) -> None:
    """Keeps the test from SQLite: it is about locks of other transactions, lost connections or kept plans."""
    assert backend == "postgresql", "deselected in pytest_collection_modifyitems"


@pytest.fixture(scope="session")
def cells_settings(new_database_url: Callable[[str], str]) -> Settings:
    """Four cells in schemas of one database, and one in another database."""
    return settings_of_cells(new_database_url, first_url=os.environ.get("BOOKING_TEST_CELLS_URL"))


@pytest.fixture(scope="session")
def shared_database_url(backend: str, new_database_url: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """The database that all tests of the run share; with BOOKING_TEST_CELL the database of a cell."""
    if CELL and backend == "postgresql":
        return str(cells.get(request.getfixturevalue("cells_settings"), CELL).settings.database_url)
    return new_database_url(backend)


@pytest.fixture
def fresh_database_url(
    backend: str, new_database_url: Callable[[str], str], drop_database: Callable[[str], None]
) -> Iterator[str]:
    """A database for this test alone."""
    url = new_database_url(backend)
    yield url
    drop_database(url)


@pytest.fixture(scope="session")
def session_clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def clock(session_clock: FixedClock) -> FixedClock:
    """A clock that stays at noon of 2026-11-21 UTC until the test moves it."""
    session_clock.at = NOON
    return session_clock


@pytest.fixture(scope="session")
def session_database(shared_database_url: str, session_clock: FixedClock) -> Iterator[Database]:
    opened = Database(shared_database_url, clock=session_clock)
    yield opened
    opened.close()


@pytest.fixture
def database(session_database: Database, clock: FixedClock) -> Database:
    """The shared database, on the test's clock."""
    return session_database


@pytest.fixture(scope="session")
def session_app(
    session_database: Database, shared_database_url: str, request: pytest.FixtureRequest
) -> Iterator[TestClient]:
    if CELL and not session_database.is_sqlite:
        with served_as_cell(request.getfixturevalue("cells_settings"), CELL, session_database) as running:
            yield running
        return
    # Another test may have stored values in the shared database that another key sealed.
    settings = Settings(database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
    # The application writes nothing in the background, since tests count the statements on this database.
    app = create_app(settings, database=session_database, flush_s=math.inf)
    with WholeResponses(app) as running:
        yield running


@pytest.fixture
def fresh_database(fresh_database_url: str, clock: FixedClock) -> Iterator[Database]:
    """A database for this test alone, on the test's clock."""
    with closing(Database(fresh_database_url, clock=clock)) as opened:
        yield opened


@pytest.fixture
def alone(fresh_database: Database, clock: FixedClock) -> World:
    """An organization that is alone in its database, since a worker and its jobs serve every organization."""
    return make_world(fresh_database, clock)


@pytest.fixture(scope="module")
def module_database(
    backend: str, new_database_url: Callable[[str], str], session_clock: FixedClock
) -> Iterator[Database]:
    """A database for the tests of a module, for the same reason."""
    with closing(Database(new_database_url(backend), clock=session_clock)) as opened:
        yield opened


@pytest.fixture
def api(session_app: TestClient, world: World) -> Api:
    """The application, called with a key of the test's own organization that holds every scope."""
    return Api(session_app, world)


@pytest.fixture
def new_world(database: Database, clock: FixedClock) -> Callable[..., World]:
    """A function that makes further organizations: `new_world(timezone=...)`."""
    installation = installation_of(None if database.is_sqlite else CELL)
    return lambda **columns: replace(make_world(database, clock, **columns), installation=installation)


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    """An organization for this test alone."""
    return new_world()


@pytest.fixture
def ops(world: World) -> Operations:
    """Functions of the core for that organization, as staff and guests call them."""
    return Operations(world)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running Redis server."""
    with redis_server.running(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def example_dir() -> Path:
    return Path(__file__).parents[1] / "examples"


@pytest.fixture
def statements(database: Database) -> Iterator[list[str]]:
    """The text of every later statement on `database`."""
    texts: list[str] = []
    database.observer = texts.append
    yield texts
    database.observer = None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: each process makes fifteen thousand tests, and frees none of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        gc.enable()


class _Rotated(pytest.Dir):
    """A folder that each process of a run lists from another place on.

    Rewriting the assertions of a module takes longer than all else of its collection. A process finds the modules that
    another one has rewritten, unless all rewrite the same module at once.
    """

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        items = list(super().collect())
        first = len(items) * _process(self.config) // _processes(self.config)
        return items[first:] + items[:first]


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return None if (path / "__init__.py").exists() else _Rotated.from_parent(parent, path=path)


_ID_LENGTH_MAX = 80


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a row by its content, where pytest would number it: `<lambda>3` or `argv3` say nothing about a failure."""
    if isinstance(val, date):
        return str(val)
    if isinstance(val, dict | list | tuple):
        return repr(_plain(val, argname))[:_ID_LENGTH_MAX]
    if isinstance(val, str | bytes) and len(val) > _ID_LENGTH_MAX:
        return repr(val)[:_ID_LENGTH_MAX]
    if isinstance(val, str | bytes | int | float | Enum | re.Pattern | None):
        return None
    if getattr(val, "__name__", "<lambda>") != "<lambda>":
        return None
    raise pytest.UsageError(f"the rows of {argname} need ids: pytest would number {val!r:.200}")


def _plain(value: object, argname: str) -> object:
    """Return a value with the same text in every process: no address, and no members that come from a set."""
    if isinstance(value, dict):
        return {_plain(key, argname): _plain(item, argname) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(item, argname) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Enum):
        return value.value
    if type(value) in (str, bytes, int, float, bool, date, type(None)):
        return value
    raise pytest.UsageError(f"the rows of {argname} need ids: pytest would number {value!r:.200}")


def _processes(config: pytest.Config) -> int:
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def _process(config: pytest.Config) -> int:
    return int(getattr(config, "workerinput", {}).get("workerid", "gw0").removeprefix("gw"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=("all", "quick", "exhaustive"),
        default="all",
        help="quick: the tests of `make test`; exhaustive: those that `make test-all` adds",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    processes = _processes(config)
    items.sort(key=lambda item: item.path.parts)  # the same order in every process
    yield  # pytest groups the tests by the backend
    part = config.getoption("part")
    chosen, others = [], []
    for item in items:
        (chosen if _is_chosen(item, part) else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen if processes == 1 else slow_first(chosen, processes)


def _is_chosen(item: pytest.Item, part: str) -> bool:
    """Return whether a test belongs to the part, and is not one of PostgreSQL on SQLite."""
    if _backend(item) == "sqlite" and "postgresql_only" in getattr(item, "fixturenames", ()):
        return False
    return part == "all" or _is_exhaustive(item) == (part == "exhaustive")


def _backend(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("backend") if callspec else None


def _is_exhaustive(item: pytest.Item) -> bool:
    """Return whether `make test` leaves the test to `make test-all`."""
    if _backend(item) == "postgresql" and item.get_closest_marker("one_database"):
        return True
    marker = item.get_closest_marker("exhaustive")
    if marker is None:
        return False
    words, case = marker.kwargs.get("but", ()), item.name.partition("[")[2]
    return not case.startswith(words)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("component"):
        for name in marker.args:
            components.program(name, marker.kwargs["package"])


def pytest_configure(config: Any) -> None:
    os.environ.pop("PYTHONUNBUFFERED", None)  # commands write into buffers, as on a user's machine
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A background run of a shell ignores SIGINT, and commands that a test interrupts would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "exhaustive(but=BEGINNINGS): runs in `make test-all`, but for the cases whose ids begin so"
    )
    config.addinivalue_line("markers", "one_database: runs on PostgreSQL in `make test-all`, since no SQL decides it")
    config.addinivalue_line("markers", "both_databases: a test of the command line that SQL decides")
    config.addinivalue_line("markers", "component(*names, package): needs programs that no Python package brings")
    # Slow examples are allowed, since they show a busy machine and no fault. Every run has the same examples: a failure
    # is caused by a change. `make explore` searches for others.
    hypothesis_settings.register_profile(
        "tests",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=config.getoption("--hypothesis-seed") is None,
    )
    hypothesis_settings.load_profile("tests")


def pytest_unconfigure() -> None:
    """Collect the garbage of the last tests once: pytest would five times, and the interpreter again at its end."""
    gc.collect()
    gc.freeze()
