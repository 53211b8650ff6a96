"""The resources of the API that have a paged list. Each has one entry, and the contract tests take their cases from it.

`tests/contract/test_surface.py` checks that no list of the OpenAPI document is missing here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from booking_core.base import gift_codes
from booking_core.db import tables
from support.databases.databases import fill
from support.world import rows
from support.world.world import World

MakeRows = Callable[[World, Sequence[int]], list[rows.Row]]


@dataclass(frozen=True)
class Listing:
    """A paged list of the API, and the rows of its table."""

    path: str
    table: Any
    make: MakeRows
    """Makes one row for each creation time."""
    since: str | None = None
    """The filter that takes a time, if the list has one."""

    @property
    def name(self) -> str:
        """The name of the resource in the SDK."""
        return self.path[1:].replace("-", "_")

    def filled(self, world: World, url: str, instants: Sequence[int]) -> list[str]:
        """Insert rows, and return their ids in ascending order of the list."""
        new_rows = self.make(world, instants)
        fill(url, self.table, new_rows)
        order = "sequence" if self.table is tables.events else "created_at"
        return [row["id"] for row in sorted(new_rows, key=lambda row: (row[order], row["id"]))]


def _bookings(world: World, instants: Sequence[int]) -> list[rows.Row]:
    experience = world.experience()
    departure = world.departure(experience)
    return [
        rows.booking(world.org, row_id, departure, experience, at)
        for row_id, at in zip(rows.ids(), instants, strict=False)
    ]


def _events(world: World, instants: Sequence[int]) -> list[rows.Row]:
    return [
        rows.event(world.org, row_id, sequence, at)
        for sequence, (row_id, at) in enumerate(zip(rows.ids(), instants, strict=False), start=1)
    ]


def _rows(make: Callable[[str, str, int], rows.Row]) -> MakeRows:
    return lambda world, instants: [
        make(world.org, row_id, at) for row_id, at in zip(rows.ids(), instants, strict=False)
    ]


def _gift_cards(world: World, instants: Sequence[int]) -> list[rows.Row]:
    """Return gift cards with sealed codes: the operator's commands test the secret key with a stored code."""
    keys = world.installation.secret_keys
    cards = _rows(rows.gift_card)(world, instants)
    return [row | {"code_sealed": gift_codes.seal_code(keys, world.org, row["id"], "GIFT-ABCD")} for row in cards]


def _plain(**columns: Any) -> MakeRows:
    """Return a function that makes rows with these columns, in addition to the columns of every table.

    The recipe for a new resource (`scripts.new_resource`) uses it.
    """
    return _rows(lambda org, row_id, at: {"organization_id": org, "id": row_id, "created_at": at, **columns})


LISTINGS = (
    Listing("/bookings", tables.bookings, _bookings, since="updated_since"),
    Listing("/customers", tables.customers, _rows(rows.customer)),
    Listing("/gift-cards", tables.gift_cards, _gift_cards, since="updated_since"),
    Listing("/experiences", tables.experiences, _rows(rows.experience), since="updated_since"),
    Listing("/events", tables.events, _events, since="created_since"),
)
