"""Retention of guests' data: customers whose last booking ended long ago are anonymized.

No index leads to them, since it would cost every booking that makes a customer. A pass reads the customers of an
organization in the order of their creation, and looks up the bookings of those that are old enough.
"""

from collections.abc import Sequence

from sqlalchemy import BigInteger, and_, bindparam, exists, literal_column, or_, select

from booking_core import organizations
from booking_core.base.clock import DAY
from booking_core.customers.erasures import requests, store
from booking_core.db import tables
from booking_core.db.due import DueRows, Processed
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, in_rows
from booking_core.records import retention_clock

_customers, _bookings, _timeline = tables.customers.c, tables.bookings.c, tables.timeline.c
_BEFORE = bindparam("before", type_=BigInteger)
_OWN = (_timeline.organization_id == _customers.organization_id, _timeline.customer_id == _customers.id)
_IS_RECENT = or_(
    _bookings.updated_at >= _BEFORE,
    and_(_bookings.status != literal_column("'cancelled'"), store.ends_at >= _BEFORE),
)
_RECENT_BOOKING = exists(
    store.of_bookings(select(literal_column("1")), tables.timeline).where(*_OWN, _IS_RECENT).correlate(tables.customers)
)
_OPEN_REFUND = exists(
    select(literal_column("1"))
    .join_from(tables.timeline, tables.refunds, store.OF_ENTRY)
    .where(*_OWN, store.IS_OPEN_REFUND)
    .correlate(tables.customers)
)
_LOCK_EXPIRED = Statement(
    lambda dialect: (
        select(_customers.id)
        .where(
            _customers.organization_id == store.OWNER,
            in_rows(dialect, _customers.id, "wanted", "id"),
            _customers.anonymized_at.is_(None),
            _customers.created_at < _BEFORE,
            _customers.updated_at < _BEFORE,
            ~_RECENT_BOOKING,
            ~_OPEN_REFUND,
        )
        .order_by(_customers.id)
        .with_for_update(of=tables.customers, skip_locked=True)
    )
)


def candidates(retention_days: int) -> DueRows:
    """Return the customers that are older than the retention, anonymized ones among them, for `expire`."""
    return DueRows(tables.customers, _customers.created_at, _customers.id, lambda _: (), ahead=-retention_days * DAY)


def expire(tx: Tx, organization_id: str, customer_ids: Sequence[str], *, retention_days: int) -> Processed[None]:
    """Anonymize those of the customers whose last booking ended, and that were changed, before the retention.

    A customer without bookings counts from its creation. One that is owed a refund is kept. The retention clock says
    what is old, so that a clock that leaps forward anonymizes nothing.
    """
    now, at = retention_clock.read(tx)
    before = min(now, 0 if at is None else at) - retention_days * DAY
    wanted = store.ids(customer_ids)
    expired = [row[0] for row in tx.all(_LOCK_EXPIRED, organization_id=organization_id, wanted=wanted, before=before)]
    if expired:
        requests.begin(tx, organizations.by_id(tx, organization_id), expired, at=now)
    return Processed(expired)
