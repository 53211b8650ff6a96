"""Rules of customers: their presentation, and validation of changes."""

from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from booking_core.base.clock import Zone
from booking_core.base.errors import Malformed
from booking_core.models.base import Email, Name, ShortText
from booking_core.models.problems import describe, reason_of

_CONTACT = {"name": TypeAdapter(Name), "email": TypeAdapter(Email), "phone": TypeAdapter(ShortText)}
"""The fields of a customer that may be changed, with the types of the create request."""

ANONYMOUS = "Anonymized"
"""The name of a customer, and of the guest of a booking, whose personal data was replaced."""


class CustomerRow(NamedTuple):
    """The columns of a customer as they are selected; the first two are the keyset of the list."""

    created_at: int
    id: str
    name: str
    email: str
    phone: str | None
    tags: str = "[]"
    email_subscription: bool = False


def present(row: CustomerRow, zone: Zone) -> dict[str, Any]:
    """Return the customer as the API and events show it (API v1 section 2)."""
    return {
        "id": row.id,
        "name": row.name,
        "email": row.email,
        "phone": row.phone or None,
        "tags": orjson.loads(row.tags),
        "email_subscription": bool(row.email_subscription),
        "created_at": zone.iso(row.created_at),
    }


def anonymous_contact(customer_id: str) -> dict[str, Any]:
    """Return the fields of an anonymized customer, as they are shown: the address is unique and can get no mail."""
    return {
        "name": ANONYMOUS,
        "email": f"anonymized-{customer_id}@anonymized.invalid",
        "phone": None,
        "tags": [],
        "email_subscription": False,
    }


def anonymized(row: CustomerRow) -> CustomerRow:
    """Return the customer without personal data."""
    return row._replace(**(anonymous_contact(row.id) | {"tags": "[]"}))


def changed(row: CustomerRow, *, name: str | None, email: str | None, phone: str | None) -> CustomerRow:
    """Return the customer with new contact details: None keeps a field, an empty phone number removes it.

    Raises:
        Malformed: naming the first field that is wrong.
    """
    contact = {"name": name, "email": email, "phone": phone}
    values: dict[str, Any] = {field: _checked(field, text) for field, text in contact.items() if text is not None}
    if "phone" in values:
        values["phone"] = values["phone"] or None
    return row._replace(**values)


def _checked(field: str, text: str) -> str:
    try:
        return str(_CONTACT[field].validate_python(text))
    except ValidationError as error:
        (problem,) = error.errors()
        raise Malformed.at(field, describe(problem), reason_of(problem)) from None
