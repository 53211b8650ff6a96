"""Search bookings by number, e-mail address, name or departure.

A number, an address and a departure are looked up in an index. A name, and an address that no customer record has any
more, are compared in slices of the organization's list: each statement is short for any number of bookings.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from booking_core.base import cursors
from booking_core.base.context import Actor, Organization
from booking_core.base.cursors import Binding
from booking_core.base.errors import Malformed, NotFound
from booking_core.bookings import presenting, queries, store
from booking_core.bookings.queries import BookingConditions
from booking_core.bookings.store import lists
from booking_core.bookings.store.lists import SearchTexts
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, PageRequest, page_of
from booking_core.models import names
from booking_core.models.base import email_key, is_id

_ENDPOINT = "bookings by text"
"""The name of these lists in their cursors."""
_DIGITS_MAX = 18
"""Decimal digits that always fit in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(BookingConditions):
    """The conditions of a search. The address is the guest's: of the customer record, or else of the booking itself."""

    name: str | None = None
    """Words of the guest's name, in any order and case, with or without accents."""


def search(tx: Tx, actor: Actor, page: PageRequest, conditions: Search) -> JsonPage:
    """Return a page of the bookings that meet the conditions, in the order of their creation.

    Raises:
        Malformed: an empty name.
        Unprocessable: the window of departures is reversed, or wider than 92 days.
    """
    filters = queries.applied_filters(actor, conditions)
    matches = [_has_words(conditions.name)] if conditions.name is not None else []
    if conditions.email is not None:
        key = email_key(conditions.email.strip())
        if lists.has_customer(tx, actor.organization.id, key):
            filters["email_key"] = key
        else:
            matches.append(lambda texts: email_key(texts.guest_email or "") == key)
    if not matches:
        return lists.LIST.find(tx, actor, page, presenting.row_presenter(actor), **filters)
    return _matching(tx, actor, page, conditions, filters, lambda texts: all(is_match(texts) for is_match in matches))


def _has_words(name: str) -> Callable[[SearchTexts], bool]:
    words = names.words(name)
    if not words:
        raise Malformed.at("name", "must have at least one letter or digit", "too_short")
    return lambda texts: names.has_words(texts.guest_name, words)


def _matching(
    tx: Tx,
    actor: Actor,
    page: PageRequest,
    conditions: Search,
    filters: dict[str, Any],
    matches: Callable[[SearchTexts], bool],
) -> JsonPage:
    organization_id, keys = actor.organization.id, actor.secret_keys
    binding = Binding(organization_id, _ENDPOINT, page.order, (("search", repr(conditions)),))
    after = cursors.decode_row(keys, binding, page.starting_after) if page.starting_after is not None else None
    texts = list(islice(filter(matches, _texts(tx, organization_id, page, filters, after)), page.limit + 1))
    rows = store.get_many_with_payment(tx, organization_id, [text.id for text in texts]) if texts else {}
    present = presenting.presenter(actor)
    return page_of(
        texts, page, lambda text: present(rows[text.id]), lambda text: cursors.encode_row(keys, binding, *text[:2])
    )


def _texts(
    tx: Tx, organization_id: str, page: PageRequest, filters: dict[str, Any], after: tuple[int, str] | None
) -> Iterator[SearchTexts]:
    """Yield the searched texts of each booking, in the order of the list."""
    while True:
        slice_ = lists.texts(tx, organization_id, order=page.order, after=after, filters=filters)
        yield from slice_
        if len(slice_) < lists.SLICE:
            return
        after = slice_[-1][:2]


def resolve_id(tx: Tx, organization: Organization, reference: str) -> str:
    """Return the id of the booking of the organization with this number or id.

    Raises:
        NotFound: the organization has no booking of that number, or the text can be neither.
    """
    if is_id(reference):
        return reference.lower()
    number = parse_number(reference)
    booking_id = lists.id_of_number(tx, organization.id, number) if number is not None else None
    if booking_id is None:
        raise NotFound(f"There is no booking {reference!r} of {organization.slug}.", noun="booking")
    return booking_id


def parse_number(text: str) -> int | None:
    """Parse a booking number; return None for a text that is not a possible number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None
