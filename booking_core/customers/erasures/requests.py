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
    address = email_key(customers.get(tx, actor, customer_id)["email"])
    own = store.bookings_of(tx, organization_id, [customer_id])
    legacy, _ = store.legacy_bookings(tx, organization_id, ends_after=actor.at)
    own += [each for each in legacy if email_key(each.guest_email or "") == address]
    _check_bookings(
        [f"#{each.booking_number}" if each.booking_number else each.id for each in own if each.is_to_come(actor.at)]
    )
    refund_id = store.open_refund(tx, organization_id, customer_id)
    if refund_id is not None:
        raise Conflict(
            "refund_open",
            f"The customer is still owed the refund {refund_id}: wait for the gateway, or settle it with"
            f" `booking refunds settle {refund_id} --note TEXT`.",
        )


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
    """Return the keys of the e-mail addresses in the customers' bookings, without addresses of other customers."""
    bookings = store.bookings_of(tx, organization_id, customer_ids)
    found = [(str(each.customer_id), email_key(each.guest_email)) for each in bookings if each.guest_email]
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
    ends = [each.ends_at for each in store.bookings_of(tx, actor.organization.id, [customer_id])]
    return {
        "id": customer_id,
        "status": _status(requested_at, finished_at),
        "requested_at": _shown(actor, requested_at),
        "finished_at": _shown(actor, finished_at),
        "bookings": len(ends),
        "last_booking_ends_at": _shown(actor, max(ends, default=None)),
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
