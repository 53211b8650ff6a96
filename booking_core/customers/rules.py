"""What a customer is known by, and how one is shown: decided without storage."""

from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from booking_core.clock import Zone
from booking_core.errors import Malformed
from booking_core.models.base import Email, Name, ShortText

_CONTACT = {"name": TypeAdapter(Name), "email": TypeAdapter(Email), "phone": TypeAdapter(ShortText)}
"""What may be changed of a customer, by the same rules as when it was created."""


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


def changed(row: CustomerRow, *, name: str | None, email: str | None, phone: str | None) -> CustomerRow:
    """The customer with those contact details; what is none stays, an empty phone number is taken away.

    Raises:
        Malformed: naming the first field that is wrong.
    """
    given = {"name": name, "email": email, "phone": phone}
    values: dict[str, Any] = {field: _checked(field, text) for field, text in given.items() if text is not None}
    if "phone" in values:
        values["phone"] = values["phone"] or None
    return row._replace(**values)


def _checked(field: str, text: str) -> str:
    try:
        return str(_CONTACT[field].validate_python(text))
    except ValidationError as error:
        raise Malformed.at(field, error.errors()[0]["msg"].removeprefix("Value error, ")) from None
