"""Cells: the databases and schemas of one installation, each with organizations of its own (decision 0050).

A cell has every table. Everything but this package, and the composition of a process in `booking_server.cells`, works
on one `Database` and knows of no other.
"""

from booking_core.cells.forwarding import get as forwarded_to
from booking_core.cells.forwarding import subject_of_key
from booking_core.cells.moves import MOVED, Moved, Mover, under_way
from booking_core.cells.registry import FIRST, Cell, CellError, CellState, create, every, get, require_own, state_of

__all__ = [
    "FIRST",
    "MOVED",
    "Cell",
    "CellError",
    "CellState",
    "Moved",
    "Mover",
    "create",
    "every",
    "forwarded_to",
    "get",
    "require_own",
    "state_of",
    "subject_of_key",
    "under_way",
]
