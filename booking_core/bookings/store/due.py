"""Bookings and departures that the periodic jobs process: expired, to be cancelled, closed for booking."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Select, and_, bindparam, case, func, literal_column, or_, select, tuple_

from booking_core.base.clock import END_OF_TIME, HOUR
from booking_core.bookings.store.of_departures import CONFIRMED_SEATS, LIVE, PENDING
from booking_core.bookings.store.rows import LOCKED, BookingDetails
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import LIMIT, NOW, OWNER, Statement, as_ids, in_rows, is_of
from booking_core.db.tables import Id, bookings, departures, experiences
from booking_core.due_work.rows import NIL_ID, DuePage, DueRow, DueRows, Owner

EXPIRED = DueRows(bookings, bookings.c.expires_at, bookings.c.id, (PENDING,))


_LOCK_EXPIRED = EXPIRED.locking(select(*LOCKED), key_share=True)


def lock_expired(tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> list[BookingDetails]:
    """Lock the bookings that are still pending and expired, and skip locked ones, which are being paid."""
    return list(map(BookingDetails._make, EXPIRED.lock(tx, _LOCK_EXPIRED, organization_id, booking_ids)))


_TRY_LOCK_DEPARTURES = Statement(
    select(departures.c.id)
    .where(departures.c.organization_id == OWNER, in_rows(departures.c.id, "wanted", "id"))
    .order_by(departures.c.id)
    .with_for_update(key_share=True, skip_locked=True)
)


def try_lock_departures(tx: Tx, organization_id: str, departure_ids: Iterable[str]) -> set[str]:
    """Lock departures that no other transaction has locked, and return their ids."""
    ids = as_ids(sorted(set(departure_ids)))
    return {row[0] for row in tx.all(_TRY_LOCK_DEPARTURES, organization_id=organization_id, wanted=ids)}


_IS_CANCELLING = (departures.c.cancelling.is_not(None), departures.c.status == literal_column("'cancelled'"))
CANCELLING = DueRows(departures, departures.c.starts_at, departures.c.id, _IS_CANCELLING, ahead=END_OF_TIME)
"""Cancelled departures with bookings that are still to be cancelled, the first to start first, also in the future."""


class ClosedDeparture(NamedTuple):
    """A departure that has closed for booking and whose minimum of participants is due to be checked."""

    starts_at: int
    id: str
    min_participants: int | None
    is_due: bool
    """False: it is none, or nothing can be decided yet."""


_owner = tables.organizations.c
_ORGANIZATIONS_WITH_MINIMUM = Statement(
    select(_owner.id, _owner.cancel_under_minimum, _owner.clock_offset)
    .where(_owner.id > bindparam("after", type_=Id))
    .order_by(_owner.id)
    .limit(LIMIT)
)


def _window() -> Select[Any]:
    """Select a page of the departures of an organization that start within its longest lead, along their index."""
    is_own, start = departures.c.organization_id == OWNER, departures.c.starts_at
    now = select(NOW).scalar_subquery()
    lead = func.coalesce(experiences.c.hours_before_booking_closes, tables.organizations.c.hours_before_booking_closes)
    longest = (
        select(func.max(lead) * literal_column(str(HOUR), type_=BigInteger))
        .join_from(experiences, tables.organizations, tables.organizations.c.id == experiences.c.organization_id)
        .where(
            experiences.c.organization_id == OWNER,
            experiences.c.min_participants.is_not(None),
        )
        .scalar_subquery()
    )
    after = tuple_(bindparam("after_at", type_=BigInteger), bindparam("after_id", type_=Id))
    return (
        select(departures)
        .where(
            is_own,
            start > now - bindparam("grace", type_=BigInteger),
            start <= now + longest,
            tuple_(start, departures.c.id) > after,
        )
        .order_by(start, departures.c.id)
        .limit(LIMIT)
    )


def _closed() -> Any:
    """Select the page, each departure with its minimum and whether it can be decided: enough confirmed seats, or no
    pending booking. Only the departures of the page that are unchecked are counted."""
    page, owner = _window().cte("page").prefix_with("MATERIALIZED"), tables.organizations
    lead = func.coalesce(experiences.c.hours_before_booking_closes, owner.c.hours_before_booking_closes)
    live = and_(is_of(bookings.c, page.c, departure_id="id"), LIVE)
    confirmed = select(CONFIRMED_SEATS).where(live).correlate(page).scalar_subquery()
    pending = select(func.count()).where(live, PENDING).correlate(page).scalar_subquery()
    is_unchecked = and_(
        owner.c.cancel_under_minimum,
        page.c.starts_at - lead * literal_column(str(HOUR), type_=BigInteger) <= NOW,
        page.c.status != literal_column("'cancelled'"),
        page.c.minimum_checked_at.is_(None),
        experiences.c.min_participants.is_not(None),
    )
    can_be_decided = or_(experiences.c.min_participants <= confirmed, pending == literal_column("0"))
    return (
        select(
            page.c.starts_at,
            page.c.id,
            experiences.c.min_participants,
            case((is_unchecked, can_be_decided), else_=literal_column("false")),
        )
        .join_from(page, experiences)
        .join(owner, owner.c.id == page.c.organization_id)
        .order_by(page.c.starts_at, page.c.id)
    )


_CLOSED = Statement(_closed())
_PAGE = 200
"""Departures of a page: most of them have no minimum, or were checked before."""


class ClosedDepartures:
    """The departures that have closed for booking and whose participants are to be counted.

    Args:
        grace: microseconds after its start when a departure is omitted.
    """

    def __init__(self, grace: int) -> None:
        self._grace = grace

    def organizations(self, tx: Tx, *, after: str, limit: int) -> list[Owner]:
        """Return the organizations after `after` that cancel departures under their minimum."""
        rows = tx.all(_ORGANIZATIONS_WITH_MINIMUM, after=after, limit=limit)
        return [Owner(owner, bool(is_on), offset) for owner, is_on, offset in rows]

    def find(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> DuePage:
        """Return the departures of the next page that can be decided, at most `limit`."""
        page_rows = self.read(tx, organization_id, after=after, limit=_PAGE)
        due = [row for row in page_rows if row.is_due]
        last = due[limit - 1] if len(due) > limit else page_rows[-1] if len(page_rows) == _PAGE else None
        rows = [DueRow(row.starts_at, row.id) for row in due[:limit]]
        return DuePage(rows, None if last is None else DueRow(last.starts_at, last.id))

    def read(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> list[ClosedDeparture]:
        """Return the next departures in the order of their start, whether they can be decided or not."""
        at, departure_id = after or (0, NIL_ID)
        position = {"after_at": at, "after_id": departure_id}
        rows = tx.all(_CLOSED, organization_id=organization_id, grace=self._grace, limit=limit, **position)
        return [ClosedDeparture(row[0], row[1], row[2], bool(row[3])) for row in rows]


_MINIMUM = Statement(
    select(experiences.c.min_participants)
    .join_from(departures, experiences)
    .where(
        departures.c.organization_id == OWNER,
        departures.c.id == bindparam("departure_id", type_=Id),
        departures.c.minimum_checked_at.is_(None),
    )
)


def unchecked_minimum(tx: Tx, organization_id: str, departure_id: str) -> int | None:
    """Return the minimum of participants of a departure that is still to be checked, else None."""
    row = tx.first(_MINIMUM, organization_id=organization_id, departure_id=departure_id)
    return None if row is None or row[0] is None else int(row[0])
