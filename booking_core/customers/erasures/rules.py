"""Rules of erasures: their steps, and the substitutes for personal data in a JSON text. No storage, no clock."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from booking_core.customers.rules import ANONYMOUS
from booking_core.models.base import email_key, is_id

GUEST = {"name": ANONYMOUS, "email": None, "phone": None}
"""The guest of a booking, as it is shown. Without an address no mail is written."""
BOOKING: dict[str, Any] = {"customer": GUEST, "note": None, "external_reference": None, "metadata": {}}
ANSWERED_BOOKING = BOOKING | {"manage_url": None}
_NOTES = frozenset({"note"})
"""Fields of a timeline entry with a text of staff."""
_SIDES = ("purchaser", "recipient")


class ErasureStep(StrEnum):
    """The steps of an erasure, in their order."""

    BOOKINGS = "bookings"
    """The customer's bookings with their payments, refunds and events, and the timeline."""
    LEGACY_BOOKINGS = "legacy_bookings"
    """Bookings of the customer's address that have no customer."""
    EVENTS = "events"
    """The customer's own."""
    GIFT_CARDS = "gift_cards"
    MAILS = "mails"
    STORED_ANSWERS = "stored_answers"

    @property
    def is_of_organization(self) -> bool:
        """Return True if the step reads all rows of the organization, for many customers at once."""
        return self in (ErasureStep.GIFT_CARDS, ErasureStep.MAILS, ErasureStep.STORED_ANSWERS)


class Erasure(NamedTuple):
    """An unfinished erasure."""

    customer_id: str
    addresses: frozenset[str]
    """The keys of the guest's former e-mail addresses."""
    step: ErasureStep
    position: tuple[Any, ...] = ()
    """The key of the last row that the step has processed; empty at its beginning."""
    is_finished: bool = False


class PageProgress(NamedTuple):
    """The result of a page of a step."""

    position: tuple[Any, ...] | None
    """None: the step is complete."""
    rows: int
    """Rows that were read, the bound of a transaction."""


def advanced(erasure: Erasure, progress: PageProgress) -> Erasure:
    """Return the erasure after a page."""
    if progress.position is not None:
        return erasure._replace(position=progress.position)
    following = list(ErasureStep)[list(ErasureStep).index(erasure.step) + 1 :]
    return erasure._replace(step=[*following, erasure.step][0], position=(), is_finished=not following)


def next_group(erasures: list[Erasure]) -> list[Erasure]:
    """Return the erasures that the next page is for.

    Steps of a customer come first. A page of the organization's rows serves every erasure at the same position.
    """
    of_customer = [erasure for erasure in erasures if not erasure.step.is_of_organization]
    if of_customer or not erasures:
        return of_customer[:1]
    first = erasures[0]
    return [erasure for erasure in erasures if (erasure.step, erasure.position) == (first.step, first.position)]


def event_body(body: str, replacement: Mapping[str, Any]) -> str | None:
    """Return the body of an event with fields of its object replaced, and their former values by null; None if it has
    these values already."""
    envelope = orjson.loads(body)
    data = envelope["data"]
    is_replaced = _replace(data["object"], replacement)
    is_forgotten = _replace(data.get("changes") or {}, dict.fromkeys(replacement))
    return orjson.dumps(envelope).decode() if is_replaced or is_forgotten else None


def answered_id(body: bytes) -> str:
    """Return the id of the resource that a stored answer shows; an empty text for any other answer."""
    resource_id = _answered(orjson.loads(body)).get("id")
    return resource_id if isinstance(resource_id, str) and is_id(resource_id) else ""


def answer_body(body: bytes, replacement: Mapping[str, Any]) -> bytes | None:
    """Return a stored answer with fields of its resource replaced; None if it has these values already."""
    answer = orjson.loads(body)
    return orjson.dumps(answer) if _replace(_answered(answer), replacement) else None


def _answered(answer: Any) -> dict[str, Any]:
    """Return the resource that an answer is, or the booking inside, which the answer to a change has."""
    if not isinstance(answer, dict):
        return {}
    inside = answer.get("booking")
    return inside if isinstance(inside, dict) else answer


def _replace(resource: dict[str, Any], replacement: Mapping[str, Any]) -> bool:
    """Replace the fields that the object has, and return whether one was different."""
    different = {name: value for name, value in replacement.items() if name in resource and resource[name] != value}
    resource.update(different)
    return bool(different)


def timeline_data(data: str) -> str | None:
    """Return the data of a timeline entry without notes of staff; None if it has none."""
    entry = orjson.loads(data)
    if not any(entry.get(name) for name in _NOTES):
        return None
    return orjson.dumps({name: value for name, value in entry.items() if name not in _NOTES}).decode()


def emptied_contacts(contacts: Mapping[str, str | None], addresses: frozenset[str]) -> dict[str, str | None]:
    """Return the columns of a gift card to be emptied: name and address of each side that has one of the addresses.

    Args:
        contacts: the columns `purchaser_name` to `recipient_email`.
    """
    emails = {side: contacts[f"{side}_email"] for side in _SIDES}
    sides = [side for side, email in emails.items() if email and email_key(email) in addresses]
    return {f"{side}_{field}": None for side in sides for field in ("name", "email")}


def shown_contacts(contacts: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the contacts of a gift card as its events show them."""
    return {side: {field: contacts[f"{side}_{field}"] for field in ("name", "email")} for side in _SIDES}
