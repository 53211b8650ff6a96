"""Functions that fill a double through the core; each takes a transaction and the staff that acts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table, bindparam, select

from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.catalogue import transfer
from booking_core.catalogue.transfer import InvalidCatalogue
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.db.unit_of_work import Update
from booking_core.models.base import Resource
from booking_core.models.events import EventType
from booking_core.organizations import keys
from booking_core.payments import gift_cards
from booking_core.records import events
from booking_core.records.events import NewEvent

_BALANCE = Update("change_balance", tables.gift_cards, sets=("updated_at",), adds=("balance_minor",))
_EVENT = Statement(
    select(tables.events.c.sequence, tables.events.c.body).where(
        tables.events.c.organization_id == bindparam("organization_id"), tables.events.c.id == bindparam("id")
    )
)


def create_key(tx: Tx, staff: Actor, scopes: Sequence[str]) -> tuple[str, str]:
    """Create an API key, and return its id and its text."""
    key, text = keys.create(tx, staff.organization, name="test", scopes=scopes, now=real_now(staff))
    return key.id, text


def real_now(staff: Actor) -> int:
    """Return the present instant by the database's clock."""
    return staff.at - (staff.organization.clock_offset or 0)


def import_catalogue(tx: Tx, staff: Actor, **entries: Mapping[str, Any]) -> None:
    """Import one entry of each given kind.

    Raises:
        ValueError: The catalogue cannot be imported; the message names the reason.
    """
    document = {kind: [entry] for kind, entry in entries.items()}
    try:
        plan = transfer.validate(document, organization=staff.organization, other_currency=True, other_timezone=True)
        transfer.import_plan(tx, staff.organization, staff.installation, plan, now=staff.at)
    except InvalidCatalogue as error:
        raise ValueError("; ".join(f"{problem.pointer} {problem.message}" for problem in error.problems)) from None


def import_gift_card(tx: Tx, staff: Actor, card: Mapping[str, Any]) -> None:
    """Import a gift card, and publish the event that it was issued."""
    import_catalogue(tx, staff, gift_cards=card)
    publish(tx, staff, EventType.GIFT_CARD_ISSUED, gift_cards.get(tx, staff, card["id"]))


def publish(tx: Tx, staff: Actor, event_type: str, about: Mapping[str, Any], **data: Any) -> str:
    """Publish an event, whose type may be unknown to the service, and return its id."""
    is_known = event_type in set(EventType)
    kind = EventType(event_type) if is_known else EventType.BOOKING_UPDATED
    new = NewEvent(kind, about.get("id"), json.dumps(about).encode(), data)
    (event_id,) = events.publish(tx, staff.organization, [new], at=staff.at)
    if not is_known:
        _rename(tx, staff, event_id, event_type)
    return event_id


def _rename(tx: Tx, staff: Actor, event_id: str, event_type: str) -> None:
    """Give an event a type that the service does not know."""
    owner = staff.organization.id
    ((sequence, body),) = tx.all(_EVENT, organization_id=owner, id=event_id)
    renamed = {"type": event_type, "resource_type": event_type.partition(".")[0]}
    renamed["body"] = json.dumps({**json.loads(body), "type": event_type})
    tx.update(tables.events, organization_id=owner, sequence=sequence, **renamed)


def add_transaction(tx: Tx, staff: Actor, gift_card_id: str, amount_minor: int, **entry: Any) -> str:
    """Change the balance of a gift card, and return the id of the entry in its ledger."""
    owner, entry_id = staff.organization.id, tokens.new_id()
    key = {"organization_id": owner, "gift_card_id": gift_card_id}
    amounts = {"amount_minor": amount_minor, "balance_minor": _balance_minor(tx, staff, gift_card_id) + amount_minor}
    row = {**key, "id": entry_id, "created_at": staff.at, **amounts, **entry}
    tx.insert(tables.gift_card_entries, **row)
    tx.update(_BALANCE, organization_id=owner, id=gift_card_id, balance_minor=amount_minor, updated_at=staff.at)
    return entry_id


def _balance_minor(tx: Tx, staff: Actor, gift_card_id: str) -> int:
    return int(gift_cards.get(tx, staff, gift_card_id)["balance"]["amount_minor"])


def insert(tx: Tx, staff: Actor, model: type[Resource], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Insert a resource into the table that has the name of its model, and return the fields that the API shows.

    Raises:
        TypeError: No table has this name and these columns.
    """
    table = next((table for table in tables.metadata.tables.values() if _holds(table, model)), None)
    if table is None:
        raise TypeError(f"no table holds the fields of {model.__name__}: fill it with a method of its own")
    row = {name: value for name, value in fields.items() if name != "created_at"}
    tx.insert(table, organization_id=staff.organization.id, created_at=staff.at, **row)
    return {**row, "created_at": staff.organization.zone.iso(staff.at)}


def _holds(table: Table, model: type[Resource]) -> bool:
    return table.name.startswith(model.__name__.lower()) and set(model.model_fields) <= set(table.columns.keys())
