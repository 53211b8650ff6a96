"""Types of path and query parameters, read strictly (decisions R2, R5, R7).

The query of an operation is a pydantic model, as in FastAPI's "Query Parameter Models".
"""

import re
from datetime import date
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator, WithJsonSchema

from booking_core.base import cursors
from booking_core.base.clock import parse_date
from booking_core.base.context import Actor
from booking_core.base.errors import NotFound
from booking_core.db.paging import PageRequest
from booking_core.models.base import SINGLE_LINE_PATTERN, UUID_PATTERN, is_id
from booking_core.models.limits import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, QUERY_VALUE_LENGTH_MAX
from booking_core.models.pages import Order
from booking_core.models.reasons import Fault
from booking_core.models.timestamps import timestamp

_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)
_DIGITS_MAX = 18
"""A number of at most 18 digits fits in 64 bits."""
_BOOKING_NUMBER_MAX = 10**_DIGITS_MAX - 1


def _path_id(text: str) -> str:
    if not is_id(text):
        raise NotFound
    return text.lower()


def _uuid(text: str) -> str:
    if not is_id(text):
        raise Fault("wrong_format", "must be a UUID")
    return text.lower()


def _limit(text: str) -> int:
    return _whole_number(text, PAGE_LIMIT_MAX, f"must be a whole number from 1 to {PAGE_LIMIT_MAX}")


def _booking_number(text: str) -> int:
    message = "must be a whole number from 1"
    number = _whole_number(text, _BOOKING_NUMBER_MAX, message)
    if text.startswith("0"):
        raise Fault("wrong_type", message)
    return number


def _whole_number(text: str, largest: int, message: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise Fault("wrong_type", message)
    if len(text) > _DIGITS_MAX or not 1 <= int(text) <= largest:
        raise Fault("out_of_range", message)
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise Fault("wrong_type", "must be true or false")
    return text == "true"


_UUID_SCHEMA: dict[str, Any] = {"type": "string", "format": "uuid", "pattern": UUID_PATTERN}
_PATH_SCHEMA = _UUID_SCHEMA | {"examples": ["7a1c9e54-3b0d-4f6a-9d3e-1c5b8a2f4e60"]}

PathId = Annotated[
    str,
    Path(alias="id", description="The id of the resource, in any case."),
    PlainValidator(_path_id),
    WithJsonSchema(_PATH_SCHEMA),
]
"""The id of a resource in lower case; any other text is a resource that does not exist (decision R5)."""

DeliveryId = Annotated[
    str,
    Path(
        alias="deliveryId",
        description="The id of the delivery, or of any of its attempts (the `Svc-Delivery-Id` header).",
    ),
    PlainValidator(_path_id),
    WithJsonSchema(_PATH_SCHEMA),
]

QueryId = Annotated[str, PlainValidator(_uuid), WithJsonSchema(_UUID_SCHEMA)]
Flag = Annotated[bool, PlainValidator(_flag), WithJsonSchema({"type": "boolean"})]
BookingNumber = Annotated[
    int,
    PlainValidator(_booking_number),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": _BOOKING_NUMBER_MAX, "examples": [1042]}),
]
Day = Annotated[
    date,
    PlainValidator(parse_date),
    WithJsonSchema(
        {"type": "string", "format": "date", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "examples": ["2026-12-01"]}
    ),
]
Timestamp = Annotated[
    str,
    AfterValidator(timestamp),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T09:00:00+01:00"]}),
]
"""An ISO 8601 timestamp; without an offset it is wall time of the organization (decision R10). `instant` returns it."""

Text = Annotated[
    str,
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": QUERY_VALUE_LENGTH_MAX, "pattern": SINGLE_LINE_PATTERN}
    ),
]
Cursor = Annotated[Text, AfterValidator(cursors.checked)]
EmailText = Annotated[Text, BeforeValidator(lambda text: text.replace(" ", "+"))]
"""An address; a space is read as the `+` that an unescaped URL lost."""


class QueryParameters(BaseModel):
    """Query parameters of one operation; parameters that it does not declare are ignored (decision R6)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    def instant(self, name: str, actor: Actor) -> int | None:
        """Return a timestamp parameter as an instant, or None when it is absent."""
        text = getattr(self, name)
        return None if text is None else actor.organization.zone.parse(text)


class ListQuery(QueryParameters):
    """The parameters of every list."""

    limit: Annotated[
        int,
        PlainValidator(_limit),
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT_MAX, "default": PAGE_LIMIT_DEFAULT}),
    ] = PAGE_LIMIT_DEFAULT
    """The most results on a page."""
    order: Order = Order.DESC
    """By creation time."""
    starting_after: Cursor | None = None
    """The `next_cursor` of the previous page, unchanged."""

    @property
    def page(self) -> PageRequest:
        """Return the requested page."""
        return PageRequest(self.limit, self.order, self.starting_after)
