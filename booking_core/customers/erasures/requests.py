"""Requests to anonymize a customer: refused while the data is needed, and then never taken back."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import orjson

from booking_core import customers
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import Conflict
from booking_core.customers.erasures import store
from booking_core.db.engine import Tx
from booking_core.models.base import email_key

_NAMED_MAX = 5
"""Bookings that a refusal names."""


def request(tx: Tx, actor: Actor, customer_id: str) -> bytes:
    """Replace the personal data in the row of a customer, publish `customer.updated`, and have the worker replace it
    everywhere else. A customer that is anonymized already stays as it is.

    Returns:
        The state of the erasure as JSON, see `find`.

    Raises:
        NotFound: the organization has no such customer.
        Conflict: `booking_to_come` or `refund_open`.
    """
    _check(tx, actor, customer_id)
    begin(tx, actor.organization, [customer_id], at=actor.at)
    return orjson.dumps(find(tx, actor, customer_id))


def _check(tx: Tx, actor: Actor, customer_id: str) -> None:
    """Refuse to anonymize a customer whose data is still needed."""
    organization_id = actor.organization.id
    shown = customers.get(tx, actor, customer_id)
    _check_bookings(_bookings_to_come(tx, actor, customer_id, email_key(shown["email"])))
    refund_id = store.open_refund(tx, organization_id, customer_id)
    if refund_id is not None:
        raise Conflict(
            "refund_open",
            f"The customer is still owed the refund {refund_id}: wait for the gateway, or settle it with"
            f" `booking refunds settle {refund_id} --note TEXT`.",
        )


def _bookings_to_come(tx: Tx, actor: Actor, customer_id: str, address: str) -> list[str]:
    """Return the names of bookings to come: those of the customer, and legacy bookings of the address."""
    found = store.bookings_to_come(tx, actor.organization.id, customer_id, actor.at, _NAMED_MAX + 1)
    names = [booking_id if number is None else f"#{number}" for number, booking_id in found]
    legacy = store.legacy_bookings_to_come(tx, actor.organization.id, actor.at)
    return names + [booking_id for booking_id, email in legacy if email_key(email) == address]


def _check_bookings(names: Sequence[str]) -> None:
    if names:
        listed = ", ".join(names[:_NAMED_MAX]) + (" and more" if len(names) > _NAMED_MAX else "")
        message = f"The customer has bookings to come ({listed}): cancel them first, or wait until they end."
        raise Conflict("booking_to_come", message)


def begin(tx: Tx, organization: Organization, customer_ids: Sequence[str], *, at: int) -> None:
    """Anonymize the rows of customers, and insert their erasures."""
    addresses = _addresses(tx, organization.id, customer_ids)
    for customer_id, address in customers.anonymize(tx, organization, customer_ids, at=at).items():
        store.insert(tx, organization.id, customer_id, {address} | addresses[customer_id], at)


def _addresses(tx: Tx, organization_id: str, customer_ids: Sequence[str]) -> defaultdict[str, set[str]]:
    """Return the keys of the e-mail addresses in the customers' bookings. One that another customer has now is that
    customer's."""
    found = [(each, email_key(email)) for each, email in store.guest_emails(tx, organization_id, customer_ids)]
    holders = store.holders(tx, organization_id, (key for _, key in found))
    own: defaultdict[str, set[str]] = defaultdict(set)
    for customer_id, key in found:
        if holders.get(key, customer_id) == customer_id:
            own[customer_id].add(key)
    return own


def find(tx: Tx, actor: Actor, customer_id: str) -> dict[str, Any]:
    """Return the state of a customer's erasure, as JSON.

    Raises:
        NotFound: the organization has no such customer.
    """
    customers.get(tx, actor, customer_id)
    requested_at, finished_at = store.get(tx, actor.organization.id, customer_id) or (None, None)
    bookings, last_ends_at = store.count_bookings(tx, actor.organization.id, customer_id)
    return {
        "id": customer_id,
        "status": _status(requested_at, finished_at),
        "requested_at": _shown(actor, requested_at),
        "finished_at": _shown(actor, finished_at),
        "bookings": bookings,
        "last_booking_ends_at": _shown(actor, last_ends_at),
    }


def preview(tx: Tx, actor: Actor, customer_id: str) -> dict[str, Any]:
    """Return what `find` returns, or raise what `request` raises."""
    _check(tx, actor, customer_id)
    return find(tx, actor, customer_id)


def _status(requested_at: int | None, finished_at: int | None) -> str:
    if requested_at is None:
        return "not_requested"
    return "in_progress" if finished_at is None else "finished"


def _shown(actor: Actor, at: int | None) -> str | None:
    return None if at is None else actor.organization.zone.iso(at)
