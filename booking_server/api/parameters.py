"""Types of path and query parameters, read strictly (decisions R2, R5, R7).

The query of an operation is a pydantic model, as in FastAPI's "Query Parameter Models".
"""

import re
from datetime import date
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, WithJsonSchema

from booking_core.base.clock import parse_date
from booking_core.base.context import Actor
from booking_core.base.errors import Malformed, NotFound
from booking_core.db.paging import PageRequest
from booking_core.models.base import SINGLE_LINE_PATTERN, UUID_PATTERN, is_id
from booking_core.models.limits import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, QUERY_VALUE_LENGTH_MAX
from booking_core.models.pages import Order

_DIGITS = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
"""A number of at most 18 digits fits in 64 bits."""


def _path_id(text: str) -> str:
    if not is_id(text):
        raise NotFound
    return text.lower()


def _uuid(text: str) -> str:
    if not is_id(text):
        raise ValueError("must be a UUID")
    return text.lower()


def _limit(text: str) -> int:
    if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= PAGE_LIMIT_MAX:
        raise ValueError(f"must be a whole number from 1 to {PAGE_LIMIT_MAX}")
    return int(text)


def _booking_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a whole number from 1")
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
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
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 10**18 - 1, "examples": [1042]}),
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
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T09:00:00+01:00"]}),
]
"""An ISO 8601 timestamp; without an offset it is wall time of the organization (decision R10). `instant` parses it."""

Text = Annotated[
    str,
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": QUERY_VALUE_LENGTH_MAX, "pattern": SINGLE_LINE_PATTERN}
    ),
]
EmailText = Annotated[Text, BeforeValidator(lambda text: text.replace(" ", "+"))]
"""An address; a space is read as the `+` that an unescaped URL lost."""


class Query(BaseModel):
    """Query parameters of one operation; parameters that it does not declare are ignored (decision R6)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    def instant(self, name: str, actor: Actor) -> int | None:
        """Return a timestamp parameter as an instant, or None when it is absent.

        Raises:
            Malformed: it is not a timestamp.
        """
        text = getattr(self, name)
        if text is None:
            return None
        try:
            return actor.organization.zone.parse(text)
        except ValueError as error:
            raise Malformed.at(name, str(error)) from None


class ListQuery(Query):
    """The parameters of every list."""

    limit: Annotated[
        int,
        PlainValidator(_limit),
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT_MAX, "default": PAGE_LIMIT_DEFAULT}),
    ] = PAGE_LIMIT_DEFAULT
    """How many results a page holds."""
    order: Order = Order.DESC
    """By creation time."""
    starting_after: Text | None = None
    """The `next_cursor` of the previous page, unchanged."""

    @property
    def page(self) -> PageRequest:
        """Return the requested page."""
        return PageRequest(self.limit, self.order, self.starting_after)
