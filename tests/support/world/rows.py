"""Thousands of rows, as tables store them, for tests of lists and query plans."""

import json
import random
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from booking_core.models.limits import API_VERSION
from support.world.world import DAY, HOUR

Row = dict[str, Any]

_LINES = json.dumps(
    [{"tier_id": "adult", "tier_label": "Adult", "count": 1, "unit_price": {"amount_minor": 89000, "currency": "NOK"}}]
)


def ids(seed: int = 0) -> Iterator[str]:
    """Yield random ids, which are the same on every run."""
    source = random.Random(seed)
    while True:
        yield str(uuid.UUID(int=source.getrandbits(128), version=4))


def booking(
    organization_id: str, row_id: str, departure_id: str, experience_id: str, created_at: int, **over: Any
) -> Row:
    """Return the row of a confirmed booking of one seat, without a number."""
    return {
        "organization_id": organization_id,
        "id": row_id,
        "booking_number": None,
        "status": "confirmed",
        "source": "online",
        "departure_id": departure_id,
        "experience_id": experience_id,
        "guest_name": "A guest",
        "guest_email": "guest@example.com",
        "guests": _LINES,
        "add_ons": "[]",
        "seats": 1,
        "currency": "NOK",
        "subtotal_minor": 89000,
        "total_minor": 89000,
        "payment_method": "card",
        "payment_source": "stripe",
        "payment_status": "paid",
        "send_confirmation_email": True,
        "notify_staff": True,
        "cancelled_at": None,
        "created_at": created_at,
        "updated_at": created_at,
    } | over


def customer(organization_id: str, row_id: str, created_at: int) -> Row:
    email = f"{row_id}@example.com"
    return {
        "organization_id": organization_id,
        "id": row_id,
        "email": email,
        "email_key": email,
        "name": "A guest",
        "tags": "[]",
        "email_subscription": False,
        "created_at": created_at,
        "updated_at": created_at,
    }


def gift_card(organization_id: str, row_id: str, created_at: int) -> Row:
    return {
        "organization_id": organization_id,
        "id": row_id,
        "code_hash": row_id,
        "code_sealed": "sealed",
        "code_last4": "ABCD",
        "currency": "NOK",
        "initial_minor": 50000,
        "balance_minor": 50000,
        "created_at": created_at,
        "updated_at": created_at,
    }


def experience(organization_id: str, row_id: str, created_at: int) -> Row:
    return {
        "organization_id": organization_id,
        "id": row_id,
        "slug": f"tour-{row_id}",
        "title": "Fjord kayak",
        "is_published": True,
        "duration_minutes": 150,
        "languages": "[]",
        "tags": "[]",
        "currency": "NOK",
        "price_from_minor": 89000,
        "price_tiers": "[]",
        "add_ons": "[]",
        "created_at": created_at,
        "updated_at": created_at,
    }


def departures(organization_id: str, experience_ids: Iterable[str], starts_at: int, count: int) -> Iterator[Row]:
    """Yield that number of departures of each experience, a day apart."""
    row_ids = ids(1)
    for place, experience_id in enumerate(experience_ids):
        for day in range(count):
            start = starts_at + day * DAY + place * HOUR // 100
            yield departure(organization_id, next(row_ids), experience_id, start)


def departure(organization_id: str, row_id: str, experience_id: str, starts_at: int) -> Row:
    return {
        "organization_id": organization_id,
        "id": row_id,
        "experience_id": experience_id,
        "starts_at": starts_at,
        "seats_total": 1000,
        "seats_ceiling": 1000,
        "created_at": starts_at,
        "updated_at": starts_at,
    }


def event(organization_id: str, row_id: str, sequence: int, created_at: int, **over: Any) -> Row:
    """Return the row of a `customer.updated` event; a customer may have any number of them."""
    body = {
        "id": row_id,
        "type": "customer.updated",
        "created_at": "2026-11-21T13:00:00+01:00",
        "api_version": API_VERSION,
        "sequence": sequence,
        "data": {
            "object": {
                "id": row_id,
                "name": "A guest",
                "email": "guest@example.com",
                "phone": None,
                "tags": [],
                "email_subscription": False,
                "created_at": "2026-11-21T13:00:00+01:00",
            }
        },
    }
    return {
        "organization_id": organization_id,
        "sequence": sequence,
        "id": row_id,
        "type": "customer.updated",
        "resource_type": "customer",
        "resource_id": row_id,
        "occurrence": sequence,
        "body": json.dumps(body),
        "created_at": created_at,
    } | over
