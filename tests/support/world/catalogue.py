"""Parts of a catalogue file, and its import and export."""

import json
from typing import Any

import pytest
from sqlalchemy import Table, bindparam, select

from booking_core.base.progress import Progress
from booking_core.catalogue import transfer
from booking_core.catalogue.transfer import Counts, ImportSummary, InvalidCatalogue
from booking_core.db import tables
from booking_core.db.statements import Statement
from booking_core.db.tables import Id
from support.world.world import World

Document = dict[str, Any]
TABLES = (tables.experiences, tables.departures, tables.customers, tables.gift_cards, tables.gift_card_entries)
"""The tables that an import writes."""


def money(amount_minor: int, currency: str = "NOK") -> Document:
    return {"amount_minor": amount_minor, "currency": currency}


def tier(name: str, amount_minor: int, currency: str = "NOK") -> Document:
    return {"id": name, "name": name.title(), "price": money(amount_minor, currency)}


def tour(**keys: Any) -> Document:
    return {"slug": "kayak", "title": "Kayak", "duration_minutes": 150, "price_from": money(89000)} | keys


def departure(day: int = 24, **keys: Any) -> Document:
    """Return a departure on a day of December, at ten."""
    return {"starts_at": f"2026-12-{day}T10:00:00", "seats_total": 12} | keys


def tours(*items: Document) -> Document:
    return {"experiences": list(items)}


def departures(*items: Document, **keys: Any) -> Document:
    """Return a file with these departures of one experience."""
    return tours(tour(departures=list(items), **keys))


def cards(*items: Document) -> Document:
    """Return a file with gift cards of one code, unless they have another."""
    return {"gift_cards": [{"code": "GIFT-ABCD-1234", "initial_amount": money(50000)} | item for item in items]}


def load(world: World, document: object, *, progress: Progress | None = None, **options: bool) -> ImportSummary:
    """Import a document in one transaction.

    Args:
        options: of `transfer.validate`.
    """
    organization, at = world.organization, world.clock()
    plan = transfer.validate(document, organization=organization, **options)
    return world.database.write(
        lambda tx: transfer.import_plan(tx, organization, world.installation, plan, now=at, progress=progress)
    )


def counts(summary: ImportSummary) -> tuple[Counts, ...]:
    """Return the counts of each kind of entries."""
    return summary.experiences, summary.departures, summary.customers, summary.gift_cards


def refused(world: World, document: object, **keys: Any) -> dict[str, str]:
    """Return the problems of an import by pointer, and check that it writes nothing."""
    before = everything(world)
    with pytest.raises(InvalidCatalogue) as error:
        load(world, document, **keys)
    assert everything(world) == before
    return dict(error.value.problems)


def exported(world: World) -> Document:
    return world.database.read(lambda tx: transfer.export(tx, world.organization, world.installation))


def stored(world: World, table: Table) -> list[Document]:
    """Return every row of the organization, by id."""
    query = select(table).where(table.c.organization_id == bindparam("o", type_=Id)).order_by(table.c.id)
    rows = world.database.read(lambda tx: tx.all(Statement(query), o=world.org))
    return [dict(zip(table.c.keys(), row, strict=True)) for row in rows]


def everything(world: World) -> str:
    """Return every row that an import may write."""
    return json.dumps([stored(world, table) for table in TABLES])
