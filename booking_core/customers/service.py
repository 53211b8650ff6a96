"""Functions of customers. Ids are canonical UUIDs in lower case; the callers normalise them."""

from collections.abc import Sequence
from typing import Any

import orjson

from booking_core.base import tokens
from booking_core.base.context import Actor, Caller, Organization
from booking_core.base.errors import Conflict, NotFound
from booking_core.customers import rules, store
from booking_core.customers.rules import CustomerRow
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, PageRequest
from booking_core.models.base import email_key
from booking_core.models.customers import CustomerCreate
from booking_core.models.events import EventType
from booking_core.records import events, timeline
from booking_core.records.events import NewEvent
from booking_core.records.timeline import TimelineKind


def find(tx: Tx, caller: Caller, page: PageRequest, *, email: str | None = None) -> JsonPage:
    """Return a page of customers; with an e-mail address at most one, compared without case."""
    zone = caller.organization.zone
    return store.LIST.find(
        tx,
        caller,
        page,
        lambda row: rules.present(CustomerRow._make(row), zone),
        email_key=None if email is None else email_key(email),
    )


def get(tx: Tx, actor: Actor, customer_id: str) -> dict[str, Any]:
    """Return a customer.

    Raises:
        NotFound: the organization has no such customer.
    """
    row = store.get(tx, actor.organization.id, customer_id)
    if row is None:
        raise NotFound.of("customer")
    return rules.present(row, actor.organization.zone)


def create(tx: Tx, caller: Caller, request: CustomerCreate) -> tuple[dict[str, Any], bool]:
    """Return the customer of an e-mail address and True if it is new.

    An existing customer is not changed; a new one publishes `customer.created`. If two transactions create the same
    address, the second violates a unique index, is run again by `Database.write`, and finds the first one's customer.
    """
    subscribes = request.email_subscription is True
    row = CustomerRow(caller.at, tokens.new_id(), request.name, request.email, request.phone or None, "[]", subscribes)
    return get_or_add(tx, caller.organization, row)


def get_or_add(tx: Tx, organization: Organization, new: CustomerRow) -> tuple[dict[str, Any], bool]:
    """Return the customer of the new one's e-mail address and True if it is new; see `create`."""
    row = store.get_by_email(tx, organization.id, new.email)
    if row:
        return rules.present(row, organization.zone), False
    created = add(tx, organization, new)
    events.publish(tx, organization, [created], at=new.created_at)
    return orjson.loads(created.object), True


def add(tx: Tx, organization: Organization, row: CustomerRow) -> NewEvent:
    """Insert a customer, for a package that has looked up the e-mail address itself, and return the event of it."""
    store.insert(tx, organization.id, row)
    return NewEvent(EventType.CUSTOMER_CREATED, row.id, orjson.dumps(rules.present(row, organization.zone)))


def update(
    tx: Tx,
    actor: Actor,
    customer_id: str,
    *,
    name: str | None = None,
    email: str | None = None,
    phone: str | None = None,
) -> bytes:
    """Change the contact details of a customer and return it as JSON. An empty phone number removes it.

    `customer.updated` is published if a field has changed. The contact details of bookings stay as they were.

    Raises:
        Malformed: with the invalid field.
        NotFound: the organization has no such customer.
        Conflict: `email_taken`, by another customer; `customer_anonymized`.
    """
    organization = actor.organization
    locked = store.lock(tx, organization.id, customer_id)
    if locked is None:
        raise NotFound.of("customer")
    customer, updated_at, anonymized_at = locked
    if anonymized_at is not None:
        raise Conflict("customer_anonymized", "The customer was anonymized, and stays so.")
    row = rules.changed(customer, name=name, email=email, phone=phone)
    rendered = orjson.dumps(rules.present(row, organization.zone))
    fields = [field for field in ("name", "email", "phone") if getattr(row, field) != getattr(customer, field)]
    if not fields:
        return rendered
    _require_own_email(tx, organization.id, row)
    at = max(actor.at, updated_at)
    store.save(tx, organization.id, row, at)
    kind = TimelineKind.CUSTOMER_UPDATED
    timeline.note(tx, organization.id, kind, at=at, customer_id=row.id, booking_id=None, changed=fields)
    former = orjson.dumps(rules.present(customer, organization.zone))
    changed = events.updated(EventType.CUSTOMER_UPDATED, row.id, before=former, after=rendered)
    events.publish(tx, organization, [changed], at=at)
    return rendered


def _require_own_email(tx: Tx, organization_id: str, row: CustomerRow) -> None:
    holder = store.get_by_email(tx, organization_id, row.email)
    if holder is not None and holder.id != row.id:
        raise Conflict("email_taken", "Another customer has this e-mail address.", "email")


# Anonymizing ----------------------------------------------------------------------------------------------------------


def anonymize(tx: Tx, organization: Organization, customer_ids: Sequence[str], *, at: int) -> dict[str, str]:
    """Replace the personal data in the rows of customers, and publish `customer.updated` for each.

    What other tables repeat of it is replaced by `erasures`.

    Customers that are anonymized already are passed over. From now on a booking of the former address makes a new
    customer.

    Returns:
        The key of each customer's former e-mail address, by id.
    """
    former: dict[str, str] = {}
    published: list[NewEvent] = []
    for row, updated_at in store.lock_named(tx, organization.id, customer_ids):
        former[row.id] = email_key(row.email)
        published.append(_anonymize_one(tx, organization, row, max(at, updated_at)))
    if published:
        events.publish(tx, organization, published, at=at)
    return former


def _anonymize_one(tx: Tx, organization: Organization, customer: CustomerRow, at: int) -> NewEvent:
    row = rules.anonymized(customer)
    store.save(tx, organization.id, row, at, anonymized_at=at)
    kind, fields = TimelineKind.CUSTOMER_UPDATED, ["name", "email", "phone"]
    timeline.note(tx, organization.id, kind, at=at, customer_id=row.id, booking_id=None, changed=fields)
    former, current = (rules.present(version, organization.zone) for version in (customer, row))
    # The former values are personal data: the event names the fields alone.
    changes = {name: None for name in current if current[name] != former[name]}
    return NewEvent(EventType.CUSTOMER_UPDATED, row.id, orjson.dumps(current), {"changes": changes})
