"""What a customer is known by, and how one is shown: decided without storage."""

from typing import Any, NamedTuple

import orjson

from booking_core.clock import Zone


class CustomerRow(NamedTuple):
    """What is shown of a customer, in the order it is read; the first two place it in the list."""

    created_at: int
    id: str
    name: str
    email: str
    phone: str | None
    tags: str
    email_subscription: bool


def present(row: CustomerRow, zone: Zone) -> dict[str, Any]:
    """The customer as REST and events show it (API v1 section 2)."""
    return {
        "id": row.id,
        "name": row.name,
        "email": row.email,
        "phone": row.phone or None,
        "tags": orjson.loads(row.tags),
        "email_subscription": bool(row.email_subscription),
        "created_at": zone.iso(row.created_at),
    }
