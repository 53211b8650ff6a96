"""Open the cells of the settings, one after the other, and translate their errors."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.cells import Cell, Mover
    from booking_core.db.engine import Database, Tx
    from booking_core.settings import Settings


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of cells and of their databases into errors that say what to do.

    Raises:
        CliError: the cell cannot be used.
    """
    from booking_core.cells import CellError
    from booking_core.settings import SettingError

    with storage.translate_errors():
        try:
            yield
        except (CellError, SettingError) as error:
            raise CliError(str(error), code="bad_cell", hint="booking cells list") from error


def every(settings: "Settings") -> "list[Cell]":
    """Return the cells of the settings, the first one first."""
    from booking_core import cells

    return cells.every(settings)


def get(settings: "Settings", name: str) -> "Cell":
    """Return the cell of a name.

    Raises:
        CliError: there is none.
    """
    from booking_core import cells

    with translate_errors():
        return cells.get(settings, name)


@contextmanager
def open_database(cli: Cli, cell: "Cell") -> Iterator["Database"]:
    """Yield the database of a cell, checked to be its own. The change of a command is audited there.

    Raises:
        CliError: it cannot be reached, or belongs to another cell.
    """
    from booking_core import cells

    with translate_errors(), storage.open_audited(cli, cell.settings) as database:
        if cell.settings.cells:
            cells.require_own(cell, database)
        yield database


def require_created(cli: Cli, cell: "Cell") -> None:
    """Check that a cell was created.

    Raises:
        CliError: it was not, or its database is that of another cell.
    """
    with open_database(cli, cell):
        pass


# Moves ---------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(cli: Cli, settings: "Settings") -> "Iterator[dict[str, Database]]":
    """Yield the database of each cell by its name. A move has to look into all of them.

    Raises:
        CliError: one cannot be reached.
    """
    with contextlib.ExitStack() as stack:
        yield {cell.name: stack.enter_context(open_database(cli, cell)) for cell in every(settings)}


def source_of(places: "Mapping[str, Database]", slug: str, target: "Cell") -> "Cell":
    """Return the cell that an organization leaves: where a move of it was begun, else where it lives.

    Raises:
        CliError: there is no such organization, or it lives in the target.
    """
    from booking_core import cells, organizations

    settings = storage.load_settings()
    for name, database in places.items():
        if any(each[3] == slug for each in database.read(cells.under_way)):
            return cells.get(settings, name)
    for name, database in places.items():
        if any(each.slug == slug for each in database.read(organizations.find)):
            if name == target.name:
                raise CliError(f"The organization {slug} lives in the cell {name} already.", code="moved_already")
            return cells.get(settings, name)
    raise CliError(f"There is no organization {slug!r}.", ExitCode.NOT_FOUND, code="not_found")


def mover(
    places: "Mapping[str, Database]",
    slug: str,
    source: "Cell",
    target: "Cell",
    report: "Callable[[str, int], None]",
) -> "Mover":
    """Return the move of an organization, which the doctor examines where it has arrived.

    Raises:
        CliError: one of the cells does not have the schema of this release.
    """
    from booking_core import cells, doctor

    for cell in (source, target):
        if cells.state_of(cell, places[cell.name]) is not cells.CellState.READY:
            raise CliError(f"The cell {cell.name} is not ready.", code="bad_cell", hint="booking db upgrade")

    def examine(tx: "Tx", organization_id: str) -> list[str]:
        found = doctor.examine(tx, organization_id)
        return [f"{each.subject}: {each.message}" for each in found if each.kind is doctor.FindingKind.BROKEN]

    from_place, to_place = (source, places[source.name]), (target, places[target.name])
    return cells.Mover(slug, from_place, to_place, examine=examine, report=report)


def elsewhere(cli: Cli, settings: "Settings", cell: "Cell") -> set[str]:
    """Return the organizations with rows in a cell that live in another one, since a move of them is under way."""
    from booking_core import cells

    found: set[str] = set()
    for other in every(settings):
        with contextlib.suppress(CliError), open_database(cli, other) as database:
            for organization_id, to_cell, state, _ in database.read(cells.under_way):
                has_left = state == cells.MOVED
                if (other.name == cell.name and has_left) or (to_cell == cell.name and not has_left):
                    found.add(organization_id)
    return found
