"""Cells of PostgreSQL: several in schemas of one database, and one in a separate database."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import patch

from starlette.testclient import TestClient

from booking_core.base.context import Installation
from booking_core.base.settings import CellAddress, Settings
from booking_core.base.tokens import SecretKeys
from booking_core.db import migrate
from booking_core.db.engine import Database
from booking_core.upkeep import cells
from booking_core.upkeep.cells import Cell
from booking_server.cells import create_app
from support.api.client import WholeResponses
from support.world.world import SECRET, FixedClock, World, make_world

SCHEMAS = ("c2", "c3", "c4")
OWN_DATABASE = "db"


def settings_of_cells(
    new_database_url: Callable[[str], str], *, schemas: tuple[str, ...] = SCHEMAS, first_url: str | None = None
) -> Settings:
    """Create a first cell, further ones in schemas of its database, and one in another database.

    Args:
        first_url: an empty database for the first cell; None: a new one of the server of the tests.
    """
    other = new_database_url("postgresql")
    if first_url:
        migrate.upgrade(first_url)
    settings = Settings(
        database_url=first_url or new_database_url("postgresql"),
        secret_key=SECRET,
        rate_limit=None,
        cells=(*(CellAddress(name) for name in schemas), CellAddress(OWN_DATABASE, other)),
    )
    for cell in cells.every(settings)[1:]:
        create(cell)
    return settings


def create(cell: Cell) -> bool:
    """Create a cell; return True if it did not exist."""
    with contextlib.closing(Database(cell.settings.database_url)) as database:
        return cells.create(cell, database)


@contextlib.contextmanager
def world_in(cell: Cell, clock: FixedClock) -> Iterator[World]:
    """Make an organization in a cell, and close its database in the end."""
    with contextlib.closing(Database(cell.settings.database_url, clock=clock)) as database:
        world = make_world(database, clock)
        world.installation = cell.settings.installation()
        yield world


@contextlib.contextmanager
def served_as_cell(settings: Settings, name: str, database: Database) -> Iterator[TestClient]:
    """Serve all cells, the named cell on this database; yield a client of the application with that cell's state."""
    app = create_app(replace(settings, secret_key_check="warn"), flush_s=math.inf)
    url = cells.get(settings, name).settings.database_url

    def opened(own_url: str) -> Database:
        return database if own_url == url else Database(own_url)

    with patch("booking_server.app.Database", opened), WholeResponses(app) as client:
        app.state = app.slots[name].opened.app.state  # type: ignore[attr-defined, union-attr]
        yield client


def installation_of(name: str | None) -> Installation:
    """Return the installation as the cell of that name has it."""
    return Installation(SecretKeys(SECRET), cell=name if name and name != cells.FIRST else "")
