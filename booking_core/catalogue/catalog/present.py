"""Present stored rows as in the catalogue file."""

from typing import Any

from booking_core.base.clock import Zone
from booking_core.catalogue.catalog.changes import effective_prices

Row = dict[str, Any]


def _price(amount_minor: int | None, currency: str) -> Row | None:
    return None if amount_minor is None else {"amount_minor": amount_minor, "currency": currency}


def _iso(at: int | None, zone: Zone) -> str | None:
    """Format an instant in wall time of the zone, with microseconds where it has any."""
    return None if at is None else zone.wall(at).isoformat()


def experience(row: Row, departures: list[Row], zone: Zone) -> Row:
    return {
        "id": row["id"],
        "slug": row["slug"],
        "title": row["title"],
        "is_published": row["is_published"],
        "excerpt": row["excerpt"],
        "duration_minutes": row["duration_minutes"],
        "difficulty": row["difficulty"],
        "address": row["address"],
        "latitude": row["latitude"],
        "longitude": row["longitude"],
        "image_url": row["image_url"],
        "languages": row["languages"],
        "tags": row["tags"],
        "price_from": _price(row["price_from_minor"], row["currency"]),
        "price_tiers": row["price_tiers"],
        "add_ons": row["add_ons"],
        "min_participants": row["min_participants"],
        "hours_before_booking_closes": row["hours_before_booking_closes"],
        "meeting_point": row["meeting_point"],
        "what_to_bring": row["what_to_bring"],
        "terms": row["terms"],
        "translations": row["translations"] or {},
        "departures": [_departure(each | effective_prices(each, row), row["currency"], zone) for each in departures],
    }


def _departure(row: Row, currency: str, zone: Zone) -> Row:
    return {
        "id": row["id"],
        "starts_at": _iso(row["starts_at"], zone),
        "ends_at": _iso(row["ends_at"], zone),
        "seats_total": row["seats_total"],
        "price": _price(row["price_minor"], currency),
        "prices": row["prices"] and {tier: _price(amount, currency) for tier, amount in row["prices"].items()},
        "status": row["status"],
    }


def customer(row: Row) -> Row:
    return {key: row[key] for key in ("id", "email", "name", "phone", "tags", "email_subscription")}


def gift_card(row: Row, code: str, zone: Zone) -> Row:
    return {
        "id": row["id"],
        "code": code,
        "initial_amount": _price(row["initial_minor"], row["currency"]),
        "balance": _price(row["balance_minor"], row["currency"]),
        "is_active": row["deactivated_at"] is None,
        "valid_from": _iso(row["valid_from"], zone),
        "expires_at": _iso(row["expires_at"], zone),
        "purchaser": {"name": row["purchaser_name"], "email": row["purchaser_email"]},
        "recipient": {"name": row["recipient_name"], "email": row["recipient_email"]},
    }
