"""Bookings created by the core's functions, without HTTP."""

from collections.abc import Sequence
from typing import Any

import orjson

from booking_core import bookings
from booking_core.base.errors import BookingError
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Database
from booking_core.models.bookings import BookingCreate
from booking_core.records import idempotency
from booking_core.records.idempotency import Answer, Once
from support.api.api import booking_body
from support.world.world import World

_STATUS = {"not_found": 404, "conflict": 409, "insufficient_capacity": 409, "validation_failed": 422}


def refused(error: BookingError) -> Answer:
    """Return the error response that the server would send."""
    body = {"code": error.code, "reasons": [detail.reason for detail in error.details], **error.extra}
    return Answer(_STATUS[error.code], orjson.dumps(body))


def create(world: World, departure_id: str, key: str, **over: Any) -> CreateRequest:
    """Return a create request; its fingerprint is its body."""
    body = orjson.dumps(booking_body(departure_id, **over), option=orjson.OPT_SORT_KEYS)
    once = Once(key, idempotency.fingerprint("POST", "/api/v1/bookings", orjson.loads(body)))
    return CreateRequest(world.caller(), BookingCreate.model_validate_json(body), once, refused)


def created(database: Database, creates: Sequence[CreateRequest]) -> list[Answer | BookingError]:
    """Create a batch of bookings in one transaction, and return the responses."""
    return database.write(lambda tx: bookings.create_many(tx, creates))
