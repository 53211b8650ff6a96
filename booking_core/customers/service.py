"""The verbs of customers. Ids are canonical UUIDs in lower case, as the border hands them on."""

from typing import Any

import orjson

from booking_core import events, timeline, tokens
from booking_core.context import Actor, Caller, Organization
from booking_core.customers import rules, store
from booking_core.customers.rules import CustomerRow
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, PageRequest
from booking_core.errors import Conflict, NotFound
from booking_core.events import NewEvent
from booking_core.models.base import email_key
from booking_core.models.customers import CustomerCreate
from booking_core.models.events import EventType
from booking_core.timeline import TimelineKind


def find(tx: Tx, caller: Caller, page: PageRequest, *, email: str | None = None) -> Page:
    """A page of customers; with an e-mail address the one it belongs to, whatever its case, or none."""
    zone = caller.organization.zone
    return store.LIST.find(
        tx,
        caller,
        page,
        lambda row: rules.present(CustomerRow._make(row), zone),
        email_key=None if email is None else email_key(email),
    )


def get(tx: Tx, caller: Caller, customer_id: str) -> dict[str, Any]:
    """One customer.

    Raises:
        NotFound: the organization has no such customer.
    """
    row = store.get(tx, caller.organization.id, customer_id)
    if row is None:
        raise NotFound
    return rules.present(row, caller.organization.zone)


def create(tx: Tx, caller: Caller, request: CustomerCreate) -> tuple[dict[str, Any], bool]:
    """The customer of that e-mail address, and whether it is new.

    An existing one is given as it is, nothing of it is overwritten; a new one is told of as `customer.created` in the
    same transaction. Of two that create one address at once the second breaks a unique index, and is run again by
    `Database.write`: then it finds what the first one made.
    """
    organization = caller.organization
    known = store.get_by_email(tx, organization.id, request.email)
    if known:
        return rules.present(known, organization.zone), False
    customer_id = tokens.new_id()
    shown = add(
        tx,
        organization,
        customer_id=customer_id,
        email=request.email,
        name=request.name,
        phone=request.phone,
        email_subscription=request.email_subscription is True,
        at=caller.at,
    )
    told = NewEvent(EventType.CUSTOMER_CREATED, customer_id, shown)
    events.publish(tx, organization, [told], at=caller.at)
    return orjson.loads(shown), True


def add(
    tx: Tx,
    organization: Organization,
    *,
    customer_id: str,
    email: str,
    name: str,
    phone: str | None,
    email_subscription: bool,
    at: int,
) -> bytes:
    """A new customer among what is about to be written, for a room that looked the address up by itself.

    Returns:
        The customer as JSON, which the room tells of as `customer.created`.
    """
    row = CustomerRow(
        created_at=at,
        id=customer_id,
        name=name,
        email=email,
        phone=phone or None,
        tags="[]",
        email_subscription=email_subscription,
    )
    store.insert(tx, organization.id, row)
    return orjson.dumps(rules.present(row, organization.zone))


def update(
    tx: Tx,
    actor: Actor,
    customer_id: str,
    *,
    name: str | None = None,
    email: str | None = None,
    phone: str | None = None,
) -> bytes:
    """The customer as JSON, with those contact details; an empty phone number takes it away.

    `customer.updated` is told when something is different now. What guests gave at their checkouts stays as it was.

    Raises:
        Malformed: naming the field that is wrong.
        NotFound: the organization has no such customer.
        Conflict: `email_taken`, by another customer.
    """
    organization = actor.organization
    locked = store.lock(tx, organization.id, customer_id)
    if locked is None:
        raise NotFound("There is no such customer.")
    before, updated_at = locked
    row = rules.changed(before, name=name, email=email, phone=phone)
    shown = orjson.dumps(rules.present(row, organization.zone))
    fields = [field for field in ("name", "email", "phone") if getattr(row, field) != getattr(before, field)]
    if not fields:
        return shown
    holder = store.get_by_email(tx, organization.id, row.email)
    if holder is not None and holder.id != row.id:
        raise Conflict("email_taken", "Another customer has this e-mail address.", "email")
    at = max(actor.at, updated_at)
    store.update(tx, organization.id, row, at)
    kind = TimelineKind.CUSTOMER_UPDATED
    timeline.note(tx, organization.id, kind, at=at, customer_id=row.id, booking_id=None, changed=fields)
    events.publish(tx, organization, [NewEvent(EventType.CUSTOMER_UPDATED, row.id, shown)], at=at)
    return shown
