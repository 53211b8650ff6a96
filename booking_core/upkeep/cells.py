"""Cells: the databases and schemas of one installation, each with separate organizations (decision 0005).

A cell has every table. Everything but this module, and the composition of a process in `booking_server.cells`, works
on one `Database` and knows of no other.

A comment on the column of `alembic_version` names the cell, as the comment on that table says which releases can use
the schema (decision 0003): so a URL that leads to the database of another cell is noticed before anything is written.
"""

import contextlib
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import text

from booking_core.base import database_urls
from booking_core.base.settings import SettingError, Settings
from booking_core.db import revisions
from booking_core.db.engine import Database, Tx
from booking_core.db.revisions import SchemaState
from booking_core.db.statements import Statement

FIRST = "first"
"""The name of the cell in BOOKING_DATABASE_URL. Its keys and links name none."""
_MARK = "cell "

_COMMENT = Statement(text("SELECT col_description(to_regclass('alembic_version'), 1)"))
_HAS_SCHEMA = Statement(text("SELECT 1 FROM pg_namespace WHERE nspname = :name"))


class CellError(Exception):
    """A cell that cannot be used. The message is one line and names it."""


class CellState(StrEnum):
    """The state of a cell."""

    READY = "ready"
    MISSING = "missing"
    """It was not created yet."""
    OUTDATED = "outdated"
    """Its schema is older than this release's."""
    TOO_NEW = "too_new"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell, with the settings of a process that works on it."""

    name: str
    settings: Settings

    @property
    def is_first(self) -> bool:
        return self.name == FIRST

    @property
    def schema(self) -> str | None:
        """The schema of its tables, where the URL names one."""
        return database_urls.schema_of(database_urls.parse(self.settings.database_url))


def every(settings: Settings) -> list[Cell]:
    """Return all cells, the first one first; only the cell of BOOKING_CELL, if it is set."""
    if settings.cell:
        return [Cell(settings.cell, settings)]
    return [Cell(FIRST, settings), *(Cell(address.name, settings.of_cell(address.name)) for address in settings.cells)]


def get(settings: Settings, name: str) -> Cell:
    """Return the cell of a name.

    Raises:
        CellError: the settings have none.
    """
    cell = next((cell for cell in every(settings) if cell.name == name), None)
    if cell is None:
        raise CellError(f"There is no cell {name!r}: the cells are {', '.join(cell.name for cell in every(settings))}.")
    return cell


def state_of(cell: Cell, database: Database) -> CellState:
    """Return the state of a cell.

    Raises:
        CellError: the database belongs to another cell.
        Unavailable: it cannot be reached.
    """
    name = database.read(_name)
    if name is None and not cell.is_first:
        return CellState.MISSING
    if name is not None:
        require_own(cell, database)
    state = database.read(revisions.state)
    if state is SchemaState.OLDER:
        return CellState.OUTDATED
    return CellState.TOO_NEW if state is SchemaState.TOO_NEW else CellState.READY


def require_own(cell: Cell, database: Database) -> None:
    """Check that the database belongs to the cell.

    Raises:
        CellError: it belongs to another cell, or to none.
        Unavailable: it cannot be reached.
    """
    name = database.read(_name)
    if (name or FIRST) != cell.name:
        description = f"the database of the cell {name}" if name else "not a cell's database"
        raise CellError(f"The database of the cell {cell.name} is {description}: compare BOOKING_CELLS.")


def create(cell: Cell, database: Database) -> bool:
    """Create the schema of a cell and its tables, and return True if there were none. An interrupted creation goes on.

    Raises:
        CellError: the database holds the tables of another cell, or of an installation.
        SessionRequired: the URL leads through a pooler.
        SettingError: the cell is the first one, which `booking db upgrade` creates.
    """
    if cell.is_first:
        raise SettingError("the first cell is created by `booking db upgrade`")
    name = database.read(_name)
    if name is not None:
        require_own(cell, database)
    elif _has_revision(cell):
        raise CellError(f"The database of the cell {cell.name} holds an installation already: name another schema.")
    from booking_core.db import migrate  # with Alembic, which processes that serve a cell do not need

    migrate.upgrade(cell.settings.session_url, prepare=lambda tx: _create_schema(tx, cell.schema))
    database.write(
        lambda tx: tx.run(Statement(text(f"COMMENT ON COLUMN alembic_version.version_num IS '{_MARK}{cell.name}'")))
    )
    return name is None


def _create_schema(tx: Tx, schema: str | None) -> None:
    if schema and not tx.first(_HAS_SCHEMA, name=schema):
        tx.run(Statement(text(f"CREATE SCHEMA {schema}")))


def _has_revision(cell: Cell) -> bool:
    """Return whether the tables of a release are there. A creation that was interrupted leaves none with rows."""
    with contextlib.closing(Database(cell.settings.database_url)) as database:
        return bool(database.read(_has_rows))


_ORGANIZATIONS = Statement(text("SELECT to_regclass('organizations')"))
_ANY_ORGANIZATION = Statement(text("SELECT 1 FROM organizations LIMIT 1"))


def _has_rows(tx: Tx) -> bool:
    return tx.all(_ORGANIZATIONS) != [(None,)] and tx.first(_ANY_ORGANIZATION) is not None


def _name(tx: Tx) -> str | None:
    """Return the name that the database keeps; None for the first cell, and for a database without tables."""
    row = tx.first(_COMMENT)
    return str(row[0]).removeprefix(_MARK) if row and row[0] else None
