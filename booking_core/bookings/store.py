"""The SQL of bookings."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, FromClause, Integer, Select, Text, and_, bindparam, func, select
from sqlalchemy.engine import Dialect

from booking_core.bookings.rules import BookingRow
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.paging import Walk
from booking_core.db.statements import Statement, among, given, now_us, rows
from booking_core.db.tables import Id, bookings, customers, departures, experiences, holds, idempotency
from booking_core.db.writes import Change

TAKE_SEATS = Change("take_seats", departures, sets=("updated_at",), adds=("seats_taken",))
"""Also gives them back, with a negative number. The table's own check refuses one seat too many."""

CANCEL = Change(
    "cancel_booking",
    bookings,
    sets=("status", "cancelled_at", "cancel_reason", "cancel_note", "updated_at"),
)

_COLUMNS: dict[str, Any] = {
    "experience_title": experiences.c.title,
    "experience_slug": experiences.c.slug,
    "starts_at": departures.c.starts_at,
    "ends_at": departures.c.ends_at,
    "duration_minutes": experiences.c.duration_minutes,
}


def _joined(page: FromClause) -> Select[Any]:
    """Bookings with what is shown of their departure and experience."""
    departed = and_(departures.c.organization_id == page.c.organization_id, departures.c.id == page.c.departure_id)
    offered = and_(experiences.c.organization_id == page.c.organization_id, experiences.c.id == page.c.experience_id)
    columns = (_COLUMNS[name] if name in _COLUMNS else page.c[name] for name in BookingRow._fields)
    return select(*columns).join_from(page, departures, departed).join(experiences, offered)


_OWN = select(bookings).where(bookings.c.organization_id == bindparam("organization_id", type_=Id))


_DEPARTS = and_(
    departures.c.organization_id == bindparam("organization_id", type_=Id),
    departures.c.starts_at >= bindparam("departs_from", type_=BigInteger),
    departures.c.starts_at < bindparam("departs_before", type_=BigInteger),
)
_UPDATED_SINCE = bookings.c.updated_at >= bindparam("updated_since", type_=BigInteger)
_KEY = (bookings.c.organization_id, bookings.c.id)
# Within coalesce() the column cannot be exchanged for what it is compared with: else SQLite may turn the join around,
# and read all of an organization's bookings.
_ABOARD = and_(
    bookings.c.organization_id == func.coalesce(departures.c.organization_id, departures.c.organization_id),
    bookings.c.departure_id == departures.c.id,
)
WALK = Walk(
    "bookings",
    bookings,
    _OWN,
    {
        "status": bookings.c.status == bindparam("status", type_=Text),
        "experience_id": bookings.c.experience_id == bindparam("experience_id", type_=Id),
        "window": bookings.c.departure_id.in_(select(departures.c.id).where(_DEPARTS)),
        "updated_since": _UPDATED_SINCE,
    },
    _joined,
    {
        "window": select(*_KEY).join_from(departures, bookings, _ABOARD).where(_DEPARTS),
        # In the order of its index, so that PostgreSQL does not look for the first few in the table itself.
        "updated_since": _OWN.with_only_columns(*_KEY).where(_UPDATED_SINCE).order_by(bookings.c.updated_at),
    },
)

_GET = Statement(_joined(_OWN.where(bookings.c.id == bindparam("id", type_=Id)).subquery("page")))
_LOCK = Statement(
    select(bookings.c.customer_id, bookings.c.seats)
    .where(
        bookings.c.organization_id == bindparam("organization_id", type_=Id),
        bookings.c.id == bindparam("id", type_=Id),
    )
    .with_for_update(key_share=True)
)


def get(tx: Tx, organization_id: str, booking_id: str) -> BookingRow | None:
    row = tx.first(_GET, organization_id=organization_id, id=booking_id)
    return BookingRow._make(row) if row else None


class Locked(NamedTuple):
    """What a booking that is about to change needs, beside what is shown of it."""

    customer_id: str | None
    seats: int


def lock(tx: Tx, organization_id: str, booking_id: str) -> Locked | None:
    """The booking, held until the transaction ends."""
    row = tx.first(_LOCK, organization_id=organization_id, id=booking_id)
    return Locked._make(row) if row else None


class DepartureRow(NamedTuple):
    """A departure with its experience, as a booking is decided on it."""

    organization_id: str
    id: str
    starts_at: int
    ends_at: int | None
    status: str
    seats_total: int
    seats_taken: int
    price_minor: int | None
    experience_id: str
    title: str
    slug: str
    duration_minutes: int | None
    currency: str
    price_from_minor: int | None
    price_tiers: str
    add_ons: str
    hours_before_booking_closes: int | None


def _lock_departures(dialect: Dialect) -> Any:
    wanted = given(dialect, "wanted", {"organization_id": Id, "id": Id}).c
    locked = (
        select(departures)
        .where(
            departures.c.organization_id == wanted.organization_id,
            departures.c.id == wanted.id,
            among(dialect, departures.c.organization_id, "wanted", "organization_id"),
            among(dialect, departures.c.id, "wanted", "id"),
        )
        .order_by(departures.c.organization_id, departures.c.id)
        .with_for_update(key_share=True, of=departures)
        .cte("locked")
    )
    columns = (locked.c[name] if name in departures.c else experiences.c[name] for name in DepartureRow._fields)
    return select(*columns).join_from(
        locked,
        experiences,
        and_(experiences.c.organization_id == locked.c.organization_id, experiences.c.id == locked.c.experience_id),
    )


_LOCK_DEPARTURES = Statement(_lock_departures)


def lock_departures(tx: Tx, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], DepartureRow]:
    """The departures of those (organization id, id), held until the transaction ends, locked in sorted order."""
    keys = rows({"organization_id": organization_id, "id": row_id} for organization_id, row_id in sorted(set(wanted)))
    found = map(DepartureRow._make, tx.all(_LOCK_DEPARTURES, wanted=keys))
    return {(row.organization_id, row.id): row for row in found}


class Surroundings(NamedTuple):
    """What else one request depends on, read when its departure is held."""

    position: int
    at: int
    fingerprint: str | None
    status: int | None
    body_sealed: str | None
    seats_held: int
    customer_id: str | None


def _surroundings(dialect: Dialect) -> Any:
    kinds: Mapping[str, Any] = {"i": Integer, "organization_id": Id, "key": Text, "departure_id": Id, "email_key": Text}
    wanted = given(dialect, "wanted", kinds).c
    held = (
        select(func.coalesce(func.sum(holds.c.seats), 0))
        .where(
            holds.c.organization_id == wanted.organization_id,
            holds.c.departure_id == wanted.departure_id,
            holds.c.ended_at.is_(None),
            holds.c.expires_at > now_us(dialect),
        )
        .correlate(wanted.i.table)
        .scalar_subquery()
    )
    stored = and_(
        idempotency.c.organization_id == wanted.organization_id,
        idempotency.c.key == wanted.key,
        among(dialect, idempotency.c.organization_id, "wanted", "organization_id"),
        among(dialect, idempotency.c.key, "wanted", "key"),
    )
    known = and_(
        customers.c.organization_id == wanted.organization_id,
        customers.c.email_key == wanted.email_key,
        among(dialect, customers.c.organization_id, "wanted", "organization_id"),
        among(dialect, customers.c.email_key, "wanted", "email_key"),
    )
    return (
        select(
            wanted.i,
            now_us(dialect),
            idempotency.c.fingerprint,
            idempotency.c.status,
            idempotency.c.body_sealed,
            held,
            customers.c.id,
        )
        .select_from(wanted.i.table)
        .join(tables.idempotency, stored, isouter=True)
        .join(tables.customers, known, isouter=True)
    )


_SURROUNDINGS = Statement(_surroundings)


def surroundings(tx: Tx, wanted: Iterable[Mapping[str, object]]) -> dict[int, Surroundings]:
    """By position: the clock, the answer stored for the key, the seats held in other checkouts, the known customer.

    One statement for all of it, since a batch is bound by its round trips; and one of its own, after the locks, since
    only then does its snapshot hold what their former holders committed.
    """
    found = map(Surroundings._make, tx.all(_SURROUNDINGS, wanted=rows(wanted)))
    return {row.position: row for row in found}
