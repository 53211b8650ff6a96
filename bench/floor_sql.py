"""The floors' SQL, as short as the answer allows, and the conversion of rows to JSON. The statements are in
`floor_sql.sql`.

There are two kinds. The reads run on the service's tables, with a hand-written statement, and give the same JSON as the
service (the bench compares the two answers before it measures). The booking runs on a separate minimal schema, and is
one statement: it shows the limit of PostgreSQL, not a possible service.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from booking_core.db import sql_files

_SQL = sql_files.load(__name__)

FLOOR_SCHEMA = _SQL.text("floor_schema")
FILL_FLOOR = _SQL.text("fill_floor")
BOOK = _SQL.text("book")


def numbered_id(number: int) -> str:
    """Return the id of organization or departure `number`."""
    return f"00000000-0000-4000-8000-{number:012x}"


Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A hand-written list: the statement, and the function that presents a row."""

    sql: str
    item: Callable[[Row, ZoneInfo], dict[str, Any]]

    def page(self, rows: Sequence[Row], zone: str, limit: int | None = None) -> bytes:
        """Return the page as JSON. The cursor is omitted, since only the service can sign it."""
        where = _zone(zone)
        data = [self.item(row, where) for row in rows[:limit]]
        return orjson.dumps({"data": data, "has_more": len(rows) > len(data), "next_cursor": None})


_zone = lru_cache(ZoneInfo)


@lru_cache(100_000)
def _at(microseconds: int, zone: ZoneInfo) -> str:
    """Return the instant with the zone's offset.

    It is cached because the same page is requested repeatedly: a slow floor would hide the service's cost of calendars.
    """
    return datetime.fromtimestamp(microseconds // 1_000_000, zone).isoformat()


def _money(minor: int | None, currency: str) -> dict[str, Any] | None:
    return None if minor is None else {"amount_minor": minor, "currency": currency}


def _cancellation(row: Row, zone: ZoneInfo) -> dict[str, Any]:
    """Return the terms of a cancellation now, in a currency of two decimals: the gateway rounds no amount."""
    status, starts, gift_card, paid_by, paid = row[2], row[10], row[21], row[24], row[25]
    hours, late_percent, guest_hours, recorded, amount, refunded, has_refund = row[31:]
    currency, until, refundable = row[18], starts - hours * 3_600_000_000, 0
    by_card = paid_by == "stripe" and paid in ("paid", "partially_refunded")
    if amount is not None and status != "cancelled" and not has_refund and (by_card or recorded):
        refund = amount if time.time() * 1_000_000 <= until else (amount * late_percent + 50) // 100
        refundable = min(refund, amount - refunded) if by_card else refund
    return {
        "allowed": status != "cancelled",
        "refundable_amount": _money(refundable, currency),
        "gift_card_amount": _money(0 if status == "cancelled" else gift_card, currency),
        "until": _at(until, zone),
        "late_percent": late_percent,
        "guest_until": None if guest_hours is None else _at(starts - guest_hours * 3_600_000_000, zone),
    }


def _booking(row: Row, zone: ZoneInfo) -> dict[str, Any]:
    id_, number, status, source, created, updated = row[:6]
    experience, title, slug, departure, starts, ends = row[6:12]
    name, email, phone, guests, add_ons, note = row[12:18]
    currency, subtotal, discount, gift_card, total, method, paid_by, paid = row[18:26]
    checked_in, no_show, reference, metadata, locale = row[26:31]
    return {
        "id": id_,
        "booking_number": number,
        "status": status,
        "source": source,
        "created_at": _at(created, zone),
        "updated_at": _at(updated, zone),
        "experience": {"id": experience, "title": title, "slug": slug},
        "departure": {"id": departure, "starts_at": _at(starts, zone), "ends_at": _at(ends, zone)},
        "customer": {"name": name, "email": email, "phone": phone},
        # Stored as the JSON of the answer, and passed on unchanged.
        "guests": orjson.Fragment(guests),
        "add_ons": orjson.Fragment(add_ons),
        "totals": {
            "subtotal": _money(subtotal, currency),
            "discount": _money(discount, currency),
            "gift_card": _money(gift_card, currency),
            "total": _money(total, currency),
        },
        "payment": {"method": method, "source": paid_by, "status": paid},
        "note": note,
        "checked_in_at": checked_in and _at(checked_in, zone),
        "no_show_at": no_show and _at(no_show, zone),
        "external_reference": reference,
        "metadata": orjson.Fragment(metadata or "{}"),
        "locale": locale,
        "cancellation": _cancellation(row, zone),
        "manage_url": None,
    }


BOOKINGS = Read(_SQL.text("bookings"), _booking)


@lru_cache(10_000)
def _tiers(tiers: str, prices: str | None, currency: str) -> list[Any]:
    """Return the tiers at a departure's prices. It is cached, as in the service: departures of an experience mostly
    share their prices."""
    amounts = orjson.loads(prices) if prices else {}
    return [
        tier | {"price": _money(amounts.get(tier["id"], tier["price"]["amount_minor"]), currency)}
        for tier in orjson.loads(tiers)
    ]


def _lowest(offered: list[Any]) -> Any:
    """Return the lowest price above zero; zero if every tier is free."""
    prices = [tier["price"] for tier in offered]
    return min((price for price in prices if price["amount_minor"]), key=_amount, default=prices[0] if prices else None)


_amount = itemgetter("amount_minor")


def _departure(row: Row, zone: ZoneInfo) -> dict[str, Any]:
    id_, experience, starts, ends, seats_total, seats_available, tiers, prices, price_from = row[:9]
    currency, closes, status = row[9:]
    offered = _tiers(tiers, prices, currency)
    return {
        "id": id_,
        "experience_id": experience,
        "starts_at": _at(starts, zone),
        "starts_at_local": _at(starts, zone)[:19],
        "timezone": zone.key,
        "ends_at": _at(ends, zone),
        "seats_total": seats_total,
        "seats_available": seats_available,
        "price": _money(price_from, currency) if price_from and not prices else _lowest(offered),
        "price_tiers": offered,
        "booking_closes_at": _at(closes, zone),
        "status": status,
    }


AVAILABILITY = Read(_SQL.text("availability"), _departure)
