"""What staff sees of a customer or a booking, in order."""

from enum import StrEnum

import orjson

from booking_core import tokens
from booking_core.db import tables
from booking_core.db.writes import Writes


class TimelineKind(StrEnum):
    """What happened."""

    BOOKING_CREATED = "booking_created"
    BOOKING_CANCELLED = "booking_cancelled"


def note(
    pending: Writes,
    organization_id: str,
    kind: TimelineKind,
    *,
    at: int,
    customer_id: str | None,
    booking_id: str | None,
    **data: object,
) -> None:
    """One entry."""
    pending.insert(
        tables.timeline,
        organization_id=organization_id,
        id=tokens.new_id(),
        customer_id=customer_id,
        booking_id=booking_id,
        kind=str(kind),
        data=orjson.dumps(data).decode(),
        created_at=at,
    )
