"""How a gift card is shown: decided without storage."""

from typing import Any, NamedTuple

from booking_core.clock import Zone


class GiftCardRow(NamedTuple):
    """What is shown of a gift card, in the order it is read; the first two place it in the list."""

    created_at: int
    id: str
    code_last4: str | None
    status: str
    initial_minor: int
    balance_minor: int
    currency: str
    expires_at: int | None
    purchaser_name: str | None
    purchaser_email: str | None
    recipient_name: str | None
    recipient_email: str | None


def present(row: GiftCardRow, zone: Zone) -> dict[str, Any]:
    """The gift card as lists and events show it (API v1 section 2), without its code."""
    return {
        "id": row.id,
        "code_last4": row.code_last4,
        "status": row.status,
        "initial_amount": {"amount_minor": row.initial_minor, "currency": row.currency},
        "balance": {"amount_minor": row.balance_minor, "currency": row.currency},
        "currency": row.currency,
        "expires_at": None if row.expires_at is None else zone.iso(row.expires_at),
        "purchaser": {"name": row.purchaser_name, "email": row.purchaser_email},
        "recipient": {"name": row.recipient_name, "email": row.recipient_email},
        "created_at": zone.iso(row.created_at),
    }
