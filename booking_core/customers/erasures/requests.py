"""Begins erasures: on request, refused while the data is needed, and after the retention. None is ever taken back."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import BigInteger, and_, bindparam, exists, literal_column, or_, select

from booking_core import customers, organizations
from booking_core.base.clock import DAY
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import Conflict
from booking_core.customers.erasures import store
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, Statement, as_ids, in_rows, is_of
from booking_core.due_work.rows import DueRows, Processed
from booking_core.models.base import email_key
from booking_core.records import retention_clock

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
    _begin(tx, actor.organization, [customer_id], at=actor.at)
    return orjson.dumps(find(tx, actor, customer_id))


def _check(tx: Tx, actor: Actor, customer_id: str) -> None:
    """Refuse to anonymize a customer whose data is still needed."""
    organization_id = actor.organization.id
    address = email_key(customers.get(tx, actor, customer_id)["email"])
    bookings = store.bookings_of(tx, organization_id, [customer_id])
    legacy, _ = store.legacy_bookings(tx, organization_id, ends_after=actor.at)
    bookings += [booking for booking in legacy if email_key(booking.guest_email or "") == address]
    names = [
        f"#{booking.booking_number}" if booking.booking_number else booking.id
        for booking in bookings
        if booking.is_to_come(actor.at)
    ]
    if names:
        listed = ", ".join(names[:_NAMED_MAX]) + (" and more" if len(names) > _NAMED_MAX else "")
        message = f"The customer has bookings to come ({listed}): cancel them first, or wait until they end."
        raise Conflict("booking_to_come", message)
    refund_id = store.open_refund(tx, organization_id, customer_id)
    if refund_id is not None:
        raise Conflict(
            "refund_open",
            f"The refund {refund_id} of the customer is pending: wait for the gateway, or settle it with"
            f" `booking refunds settle {refund_id} --note TEXT`.",
        )


def _begin(tx: Tx, organization: Organization, customer_ids: Sequence[str], *, at: int) -> None:
    """Anonymize the rows of customers, and insert their erasures."""
    addresses = _addresses(tx, organization.id, customer_ids)
    for customer_id, address in customers.anonymize(tx, organization, customer_ids, at=at).items():
        store.insert(tx, organization.id, customer_id, {address} | addresses[customer_id], at)


def _addresses(tx: Tx, organization_id: str, customer_ids: Sequence[str]) -> defaultdict[str, set[str]]:
    """Return the keys of the e-mail addresses in the customers' bookings, without addresses of other customers."""
    bookings = store.bookings_of(tx, organization_id, customer_ids)
    pairs = [(str(booking.customer_id), email_key(booking.guest_email)) for booking in bookings if booking.guest_email]
    holders = store.holders(tx, organization_id, (key for _, key in pairs))
    addresses: defaultdict[str, set[str]] = defaultdict(set)
    for customer_id, key in pairs:
        if holders.get(key, customer_id) == customer_id:
            addresses[customer_id].add(key)
    return addresses


def find(tx: Tx, actor: Actor, customer_id: str) -> dict[str, Any]:
    """Return the state of a customer's erasure, as JSON.

    Raises:
        NotFound: the organization has no such customer.
    """
    customers.get(tx, actor, customer_id)
    requested_at, finished_at = store.get(tx, actor.organization.id, customer_id) or (None, None)
    ends = [booking.ends_at for booking in store.bookings_of(tx, actor.organization.id, [customer_id])]
    zone = actor.organization.zone
    return {
        "id": customer_id,
        "status": _status(requested_at, finished_at),
        "requested_at": zone.iso_or_none(requested_at),
        "finished_at": zone.iso_or_none(finished_at),
        "bookings": len(ends),
        "last_booking_ends_at": zone.iso_or_none(max(ends, default=None)),
    }


def preview(tx: Tx, actor: Actor, customer_id: str) -> dict[str, Any]:
    """Return what `find` returns, or raise what `request` raises."""
    _check(tx, actor, customer_id)
    return find(tx, actor, customer_id)


def _status(requested_at: int | None, finished_at: int | None) -> str:
    if requested_at is None:
        return "not_requested"
    return "in_progress" if finished_at is None else "finished"


# Retention ------------------------------------------------------------------------------------------------------------

# No index leads to customers whose last booking ended long ago, since it would cost every booking that makes a
# customer. A pass reads the customers of an organization in the order of their creation, and looks up the bookings of
# those that are old enough.
_customers, _bookings, _timeline = tables.customers.c, tables.bookings.c, tables.timeline.c
_BEFORE = bindparam("before", type_=BigInteger)
_OF_CUSTOMER = is_of(_timeline, _customers, customer_id="id")
_IS_RECENT = or_(
    _bookings.updated_at >= _BEFORE,
    and_(_bookings.status != literal_column("'cancelled'"), store.ends_at >= _BEFORE),
)
_RECENT_BOOKING = exists(
    store.of_bookings(select(literal_column("1")), tables.timeline)
    .where(_OF_CUSTOMER, _IS_RECENT)
    .correlate(tables.customers)
)
_OPEN_REFUND = exists(
    select(literal_column("1"))
    .join_from(tables.timeline, tables.refunds, store.OF_ENTRY)
    .where(_OF_CUSTOMER, store.IS_OPEN_REFUND)
    .correlate(tables.customers)
)
_LOCK_EXPIRED = Statement(
    select(_customers.id)
    .where(
        _customers.organization_id == OWNER,
        in_rows(_customers.id, "wanted", "id"),
        _customers.anonymized_at.is_(None),
        _customers.created_at < _BEFORE,
        _customers.updated_at < _BEFORE,
        ~_RECENT_BOOKING,
        ~_OPEN_REFUND,
    )
    .order_by(_customers.id)
    .with_for_update(of=tables.customers, skip_locked=True)
)


def candidates(retention_days: int) -> DueRows:
    """Return the customers that are older than the retention, anonymized ones among them, for `expire`."""
    return DueRows(tables.customers, _customers.created_at, _customers.id, ahead=-retention_days * DAY)


def expire(tx: Tx, organization_id: str, customer_ids: Sequence[str], *, retention_days: int) -> Processed[None]:
    """Anonymize customers among these whose last booking ended, and that were changed, before the retention.

    A customer without bookings counts from its creation. A customer with an open refund is kept. The retention clock
    decides, because a clock that leaps forward must anonymize nothing.
    """
    now, at = retention_clock.read(tx)
    before = min(now, 0 if at is None else at) - retention_days * DAY
    ids = as_ids(customer_ids)
    expired = [row[0] for row in tx.all(_LOCK_EXPIRED, organization_id=organization_id, wanted=ids, before=before)]
    if expired:
        _begin(tx, organizations.by_id(tx, organization_id), expired, at=now)
    return Processed(expired)
