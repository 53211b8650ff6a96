"""Cells: the databases and schemas of one installation, each with organizations of its own (decision 0005).

A cell has every table. Everything but this package, and the composition of a process in `booking_server.cells`, works
on one `Database` and knows of no other.
"""

from booking_core.upkeep.cells.registry import (
    FIRST,
    Cell,
    CellError,
    CellState,
    create,
    every,
    get,
    require_own,
    state_of,
)

__all__ = [
    "FIRST",
    "Cell",
    "CellError",
    "CellState",
    "create",
    "every",
    "get",
    "require_own",
    "state_of",
]
