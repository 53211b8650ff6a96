"""`booking cells`: list and create the cells of the installation."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.options import argument
from booking_cli.operator import cells, storage

if TYPE_CHECKING:
    from booking_core.upkeep.cells import Cell

app = command_group("List and create the cells of the installation (operator).")

COLUMNS = ("name", "state", "organizations", "location")


@command(app, "list", shape="cell")
def list_(cli: Cli) -> None:
    """List the cells of BOOKING_CELLS with their state: ready, missing, outdated, too_new or unreachable.

    Examples:
        booking cells list
        booking cells list -o json
    """
    settings = storage.load_settings()
    cli.render.many([_shown(cell) for cell in cells.every(settings)], COLUMNS)


@command(app, "create", shape="cell", changes=True)
def create(cli: Cli, name: Annotated[str, argument("NAME", "The cell, as BOOKING_CELLS names it.")]) -> None:
    """Create the schema of a cell and its tables.

    First add the cell to BOOKING_CELLS in the environment of this command. Add it to the environment of every process
    of the service before you create an organization there.

    Examples:
        booking cells create c2
    """
    settings = storage.load_settings()
    cell = cells.get(settings, name)
    with cells.translate_errors(), storage.open_audited(cli, cell.settings) as database:
        from booking_core.upkeep import cells as core

        if not core.create(cell, database):
            cli.render.note(f"The cell {name} was there already.")
    cli.render.one(_shown(cell))
    cli.render.note("next: restart serve and worker with this BOOKING_CELLS, then booking orgs create --cell " + name)


def _shown(cell: "Cell") -> dict[str, Any]:
    """Return a cell as JSON, also a cell that cannot be reached."""
    from booking_core import organizations
    from booking_core.db.engine import Database
    from booking_core.upkeep import cells as core

    state, count = "unreachable", None
    try:
        with cells.translate_errors(), contextlib.closing(Database(cell.settings.database_url)) as database:
            cell_state = core.state_of(cell, database) if cell.settings.cells else core.CellState.READY
            if cell_state is core.CellState.READY:
                count = len(database.read(organizations.find))
            state = str(cell_state)
    except CliError as error:
        if error.code == "bad_cell":
            raise
    location = storage.location(cell.settings)
    return {"name": cell.name, "state": state, "organizations": count, "location": location}
