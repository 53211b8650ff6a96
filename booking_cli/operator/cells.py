"""Open the cells of the settings, one after the other, and translate their errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.base.settings import Settings
    from booking_core.db.engine import Database
    from booking_core.upkeep.cells import Cell


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of cells and of their databases into errors that say what to do.

    Raises:
        CliError: the cell cannot be used.
    """
    from booking_core.base.settings import SettingError
    from booking_core.upkeep.cells import CellError

    with storage.translate_errors():
        try:
            yield
        except (CellError, SettingError) as error:
            raise CliError(str(error), code="bad_cell", hint="booking cells list") from error


def every(settings: "Settings") -> "list[Cell]":
    """Return the cells of the settings, the first one first."""
    from booking_core.upkeep import cells

    return cells.every(settings)


def get(settings: "Settings", name: str) -> "Cell":
    """Return the cell of a name.

    Raises:
        CliError: there is none.
    """
    from booking_core.upkeep import cells

    with translate_errors():
        return cells.get(settings, name)


@contextmanager
def open_database(cli: Cli, cell: "Cell") -> Iterator["Database"]:
    """Yield the database of a cell, checked to be its own. The change of a command is audited there.

    Raises:
        CliError: it cannot be reached, or belongs to another cell.
    """
    from booking_core.upkeep import cells

    with translate_errors(), storage.open_audited(cli, cell.settings) as database:
        if cell.settings.cells:
            cells.require_own(cell, database)
        yield database


def require_created(cli: Cli, cell: "Cell") -> None:
    """Check that a cell was created.

    Raises:
        CliError: it was not, or its database belongs to another cell.
    """
    with open_database(cli, cell):
        pass
