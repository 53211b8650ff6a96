"""Finding bookings as staff looks for them: by number, e-mail address, name, or departure.

A number, an address and a departure are looked up in an index. A name, and an address that no customer record holds
any more, are compared in slices along the organization's own list, so that no statement is long, however many bookings
there are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any

from booking_core import cursors
from booking_core.bookings import rules, service, store
from booking_core.bookings.store import Texts
from booking_core.context import Actor
from booking_core.cursors import Binding
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, PageRequest, envelope
from booking_core.errors import Malformed, NotFound
from booking_core.models import names
from booking_core.models.base import email_key
from booking_core.models.bookings import BookingStatus

_ENDPOINT = "bookings by text"
"""The name of these lists in their cursors."""
_DIGITS_MAX = 18
"""As many as any number of 64 bits may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The conditions that the bookings meet, all of them; none: every booking."""

    number: int | None = None
    email: str | None = None
    """Of the guest, in any case: of the customer record, or as it was given when no record has it any more."""
    name: str | None = None
    """Words of the guest's name, in any order and case, with or without accents."""
    departure_id: str | None = None
    status: BookingStatus | None = None
    experience_id: str | None = None
    departure_from: date | None = None
    departure_to: date | None = None
    updated_since: int | None = None


def search(tx: Tx, actor: Actor, page: PageRequest, wanted: Search) -> Page:
    """Return a page of the bookings that meet the conditions, in the order of their creation.

    Raises:
        Malformed: an empty name.
        Unprocessable: the window of departures is reversed, or wider than 92 days.
    """
    filters = _filters(actor, wanted)
    matches = [_has_words(wanted.name)] if wanted.name is not None else []
    if wanted.email is not None:
        key = email_key(wanted.email.strip())
        if store.has_customer(tx, actor.organization.id, key):
            filters["email_key"] = key
        else:
            matches.append(lambda texts: email_key(texts.guest_email or "") == key)
    if not matches:
        return store.LIST.find(tx, actor, page, service.presenter(actor), **filters)
    return _matching(tx, actor, page, wanted, filters, lambda texts: all(matches_it(texts) for matches_it in matches))


def _filters(actor: Actor, wanted: Search) -> dict[str, Any]:
    filters = {
        "number": wanted.number,
        "departure_id": wanted.departure_id,
        "status": wanted.status,
        "experience_id": wanted.experience_id,
        "window": service.window(actor.organization.zone, wanted.departure_from, wanted.departure_to),
        "updated_since": wanted.updated_since,
    }
    return {name: value for name, value in filters.items() if value is not None}


def _has_words(name: str) -> Callable[[Texts], bool]:
    words = names.words(name)
    if not words:
        raise Malformed.at("name", "must have at least one letter or digit", "too_short")
    return lambda texts: names.has_words(texts.guest_name, words)


def _matching(
    tx: Tx,
    actor: Actor,
    page: PageRequest,
    wanted: Search,
    filters: dict[str, Any],
    matches: Callable[[Texts], bool],
) -> Page:
    organization_id, keys = actor.organization.id, actor.secret_keys
    binding = Binding(organization_id, _ENDPOINT, page.order, (("search", repr(wanted)),))
    after = cursors.decode_row(keys, binding, page.starting_after) if page.starting_after is not None else None
    found = list(islice(filter(matches, _texts(tx, organization_id, page, filters, after)), page.limit + 1))
    shown = found[: page.limit]
    rows = store.get_many(tx, organization_id, [each.id for each in shown]) if shown else {}
    present = service.presenter(actor)
    return envelope(
        [present(rows[each.id]) for each in shown],
        cursors.encode_row(keys, binding, *shown[-1][:2]) if len(found) > page.limit else None,
    )


def _texts(
    tx: Tx, organization_id: str, page: PageRequest, filters: dict[str, Any], after: tuple[int, str] | None
) -> Iterator[Texts]:
    """Yield what is compared of each booking, in the order of the list."""
    while True:
        slice_ = store.texts(tx, organization_id, order=page.order, after=after, filters=filters)
        yield from slice_
        if len(slice_) < store.SLICE:
            return
        after = slice_[-1][:2]


def refer(tx: Tx, actor: Actor, reference: str) -> str:
    """Return the id of the booking that has this number, or this id.

    Raises:
        NotFound: the organization has no booking of that number, or the text can be neither.
    """
    if rules.is_id(reference):
        return reference.lower()
    number = as_number(reference)
    found = store.id_of_number(tx, actor.organization.id, number) if number is not None else None
    if found is None:
        raise NotFound(f"There is no booking {reference!r} of {actor.organization.slug}.")
    return found


def as_number(text: str) -> int | None:
    """Return the booking number that the text writes; none when it writes no number that there can be."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None
