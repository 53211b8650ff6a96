"""The list of bookings, and the look-ups of a search."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, and_, bindparam, func, literal_column, select, tuple_

from booking_core.bookings.store.rows import OF_OWNER, select_with_payment
from booking_core.db.engine import Tx
from booking_core.db.paging import KeysetList
from booking_core.db.statements import OWNER, Statement, columns_of, is_of
from booking_core.db.tables import Id, bookings, customers, departures, timeline
from booking_core.models.pages import Order

_DEPARTS = and_(
    departures.c.organization_id == OWNER,
    departures.c.starts_at >= bindparam("departs_from"),
    departures.c.starts_at < bindparam("departs_before"),
)
_UPDATED_SINCE = bookings.c.updated_at >= bindparam("updated_since")
_KEY = (bookings.c.organization_id, bookings.c.id)
_HAS_ADDRESS = and_(customers.c.organization_id == OWNER, customers.c.email_key == bindparam("email_key"))
# Found through the customer's timeline, which has an entry for each booking: an index of bookings by customer would
# slow down every insert of a booking.
_BOOKED_BY = (
    select(timeline.c.organization_id, timeline.c.booking_id.label("id"))
    .join_from(customers, timeline, is_of(timeline.c, customers.c, customer_id="id"))
    .where(_HAS_ADDRESS, timeline.c.kind == literal_column("'booking_created'"))
)
_OF_CUSTOMER = select(timeline.c.organization_id, timeline.c.booking_id.label("id")).where(
    timeline.c.organization_id == OWNER,
    timeline.c.customer_id == bindparam("customer_id"),
    timeline.c.kind == literal_column("'booking_created'"),
)
# coalesce() keeps SQLite from using the equality in the other direction. It might then reverse the join and read all
# bookings of an organization.
_ON_DEPARTURE = and_(
    bookings.c.organization_id == func.coalesce(departures.c.organization_id, departures.c.organization_id),
    bookings.c.departure_id == departures.c.id,
)
LIST = KeysetList(
    "bookings",
    bookings,
    OF_OWNER,
    {
        "status": bookings.c.status == bindparam("status"),
        "experience_id": bookings.c.experience_id == bindparam("experience_id"),
        "window": bookings.c.departure_id.in_(select(departures.c.id).where(_DEPARTS)),
        "updated_since": _UPDATED_SINCE,
        "external_reference": bookings.c.external_reference == bindparam("external_reference"),
        "number": bookings.c.booking_number == bindparam("number"),
        "departure_id": bookings.c.departure_id == bindparam("departure_id"),
        "customer_id": bookings.c.customer_id == bindparam("customer_id"),
        "email_key": bookings.c.customer_id == select(customers.c.id).where(_HAS_ADDRESS).scalar_subquery(),
    },
    select_with_payment,
    {
        "window": select(*_KEY).join_from(departures, bookings, _ON_DEPARTURE).where(_DEPARTS),
        # Sorted as in its index: PostgreSQL does not search the first rows in the table itself.
        "updated_since": OF_OWNER.with_only_columns(*_KEY).where(_UPDATED_SINCE).order_by(bookings.c.updated_at),
        "departure_id": OF_OWNER.with_only_columns(*_KEY).where(bookings.c.departure_id == bindparam("departure_id")),
        "customer_id": _OF_CUSTOMER,
        "email_key": _BOOKED_BY,
    },
)

SLICE = 2_000
"""Bookings whose texts one statement reads, in a few milliseconds."""
_CUSTOMER = Statement(select(customers.c.id).where(_HAS_ADDRESS))
_ID_OF_NUMBER = Statement(
    OF_OWNER.with_only_columns(bookings.c.id).where(bookings.c.booking_number == bindparam("number"))
)


def has_customer(tx: Tx, organization_id: str, email_key: str) -> bool:
    """Return whether a customer record has this address."""
    return tx.first(_CUSTOMER, organization_id=organization_id, email_key=email_key) is not None


def id_of_number(tx: Tx, organization_id: str, number: int) -> str | None:
    """Return the id of the booking with this number."""
    row = tx.first(_ID_OF_NUMBER, organization_id=organization_id, number=number)
    return str(row[0]) if row else None


class SearchTexts(NamedTuple):
    """The texts of a booking that are searched without an index, after its position in the list."""

    created_at: int
    id: str
    guest_name: str | None
    guest_email: str | None


@lru_cache(maxsize=256)
def _texts(order: Order, is_continued: bool, filters: tuple[str, ...]) -> Statement:
    row_position = tuple_(bookings.c.created_at, bookings.c.id)
    there = tuple_(bindparam("after_created_at", type_=BigInteger), bindparam("after_id", type_=Id))
    conditions = [LIST.filters[name] for name in filters]
    if is_continued:
        conditions.append(row_position > there if order is Order.ASC else row_position < there)
    columns = columns_of(SearchTexts._fields, bookings)
    place = [column if order is Order.ASC else column.desc() for column in columns[:2]]
    # A literal limit: for a parameter PostgreSQL plans for a tenth of the table.
    limit: ColumnElement[int] = literal_column(str(SLICE))
    return Statement(OF_OWNER.with_only_columns(*columns).where(*conditions).order_by(*place).limit(limit))


def texts(
    tx: Tx, organization_id: str, *, order: Order, after: tuple[int, str] | None, filters: Mapping[str, Any]
) -> list[SearchTexts]:
    """Return the searched texts of the next bookings that pass the filters of `LIST`, at most `SLICE`."""
    parameters: dict[str, Any] = {"organization_id": organization_id}
    for name, value in filters.items():
        parameters |= value if isinstance(value, dict) else {name: value}
    if after is not None:
        parameters["after_created_at"], parameters["after_id"] = after
    statement = _texts(order, after is not None, tuple(sorted(filters)))
    return [SearchTexts._make(row) for row in tx.all(statement, **parameters)]
