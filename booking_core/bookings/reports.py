"""The report of an organization: its sales and cancellations by day and by experience, and the occupancy ahead.

Days are in the organization's time zone. A sale is a confirmed booking, and counts on the day of its creation. Its
amount is the price after discounts, however it is paid, also by gift card.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import BigInteger, Text, cast, func, select

from booking_core.base.context import Actor
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, Statement, as_json, rows_parameter
from booking_core.models.bookings import BookingStatus
from booking_core.models.json import JsonObject
from booking_core.models.money import money_json

T = TypeVar("T")

_DAYS = {"day": Text, "starts_at": BigInteger, "ends_at": BigInteger}


class _Sale(NamedTuple):
    """The bookings of a day that have the same experience, currency, status and reason of their cancellation."""

    day: str
    experience_id: str
    currency: str
    status: str
    cancel_reason: str | None
    bookings: int
    seats: int
    amount_minor: int


class _Occupancy(NamedTuple):
    """The departures of an experience on a day, without those that are cancelled."""

    day: str
    experience_id: str
    departures: int
    seats_sold: int
    seats_total: int


_day, _booking, _departure = rows_parameter("days", _DAYS).c, tables.bookings.c, tables.departures.c
_kind = (_day.day, _booking.experience_id, _booking.currency, _booking.status, _booking.cancel_reason)
_amount = cast(func.sum(_booking.total_minor + _booking.gift_card_minor), BigInteger)
_SALES = Statement(
    select(*_kind, func.count(), func.sum(_booking.seats), _amount)
    .where(
        _booking.organization_id == OWNER,
        _booking.created_at >= _day.starts_at,
        _booking.created_at < _day.ends_at,
    )
    .group_by(*_kind)
)
"""The bookings of each day, read by the index of their creation."""
_OCCUPANCY = Statement(
    select(
        *(_day.day, _departure.experience_id),
        *(func.count(), func.sum(_departure.seats_taken), func.sum(_departure.seats_total)),
    )
    .where(
        _departure.organization_id == OWNER,
        _departure.starts_at >= _day.starts_at,
        _departure.starts_at < _day.ends_at,
        _departure.status != "cancelled",
    )
    .group_by(_day.day, _departure.experience_id)
)
"""The departures of each day, read by the index of their start."""
_EXPERIENCES = Statement(
    select(tables.experiences.c.id, tables.experiences.c.slug, tables.experiences.c.title).where(
        tables.experiences.c.organization_id == OWNER
    )
)


def get_report(tx: Tx, actor: Actor, *, date_from: date, date_to: date) -> JsonObject:
    """Return the sales from `date_from` to today, and the occupancy from today to `date_to`, with three statements.

    Raises:
        Unprocessable: the period is reversed, or wider than 92 days.
    """
    organization = actor.organization
    zone, today = organization.zone, organization.zone.wall(actor.at).date()
    departures.window(zone, date_from, date_to, field="to")
    days = [date_from + timedelta(offset) for offset in range((date_to - date_from).days + 1)]
    past, ahead = ([day for day in days if day <= today], [day for day in days if day >= today])

    def rows(statement: Statement, of: Sequence[date]) -> Sequence[Any]:
        spans = ({"day": str(day), "starts_at": zone.day_start(day), "ends_at": zone.day_end(day)} for day in of)
        return tx.all(statement, organization_id=organization.id, days=as_json(spans)) if of else ()

    sales, occupancy = map(_Sale._make, rows(_SALES, past)), map(_Occupancy._make, rows(_OCCUPANCY, ahead))
    titles = {row[0]: row for row in tx.all(_EXPERIENCES, organization_id=organization.id)}
    presented = {"slug": organization.slug, "name": organization.name, "timezone": organization.timezone}
    period = {"from": str(date_from), "to": str(date_to), "today": str(today)}
    return {"organization": presented, **period, **_present(list(sales), list(occupancy), titles, past, ahead)}


def _present(
    sales: Sequence[_Sale],
    occupancy: Sequence[_Occupancy],
    titles: Mapping[str, Sequence[str]],
    past: Sequence[date],
    ahead: Sequence[date],
) -> JsonObject:
    by_day, by_experience = _grouped(sales, lambda sale: sale.day), _grouped(sales, lambda sale: sale.experience_id)
    ahead_by_experience = _grouped(occupancy, lambda row: row.experience_id)
    cancelled = [sale for sale in sales if sale.status == BookingStatus.CANCELLED]
    experiences = [
        {"id": experience[0], "slug": experience[1], "title": experience[2]}
        | _sold(by_experience[experience[0]])
        | {"occupancy": _seats(ahead_by_experience[experience[0]], ahead)}
        for experience in titles.values()
        if by_experience[experience[0]] or ahead_by_experience[experience[0]]
    ]
    return {
        "totals": _sold(sales) | _full(occupancy),
        "days": [{"date": str(day)} | _sold(by_day[str(day)]) for day in past],
        "experiences": sorted(experiences, key=lambda experience: (-experience["bookings"], experience["title"])),
        "cancellations": [
            {"reason": reason} | _summed(group)
            for reason, group in sorted(_grouped(cancelled, lambda sale: sale.cancel_reason or "").items())
        ],
        "occupancy": _seats(occupancy, ahead),
    }


def _grouped(rows: Iterable[T], key: Callable[[T], str]) -> defaultdict[str, list[T]]:
    groups: defaultdict[str, list[T]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _sold(sales: Iterable[_Sale]) -> JsonObject:
    """Return the sums of the confirmed bookings, and the numbers of the others."""
    by_status = _grouped(sales, lambda sale: sale.status)
    pending, cancelled = (sum(sale.bookings for sale in by_status[status]) for status in ("pending", "cancelled"))
    return _summed(by_status[BookingStatus.CONFIRMED]) | {"pending": pending, "cancelled": cancelled}


def _summed(sales: Sequence[_Sale]) -> JsonObject:
    amounts: Counter[str] = Counter()
    for sale in sales:
        amounts[sale.currency] += sale.amount_minor
    return {
        "bookings": sum(sale.bookings for sale in sales),
        "seats": sum(sale.seats for sale in sales),
        "amounts": [money_json(amount, currency) for currency, amount in sorted(amounts.items())],
    }


def _full(occupancy: Sequence[_Occupancy]) -> JsonObject:
    return {
        "departures": sum(row.departures for row in occupancy),
        "seats_sold": sum(row.seats_sold for row in occupancy),
        "seats_total": sum(row.seats_total for row in occupancy),
    }


def _seats(occupancy: Iterable[_Occupancy], days: Sequence[date]) -> list[JsonObject]:
    by_day = _grouped(occupancy, lambda row: row.day)
    return [{"date": str(day)} | _full(by_day[str(day)]) for day in days]
