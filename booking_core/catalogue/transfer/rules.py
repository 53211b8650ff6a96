"""Validate a catalogue across its keys, and turn its entries into rows. No storage, no clock.

The validation does not depend on stored rows, so a valid catalogue can be imported into an empty organization. The
comparison with stored rows is in `changes`.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from booking_core.base.clock import Zone
from booking_core.base.gift_codes import normalise_code
from booking_core.catalogue import experiences
from booking_core.catalogue.transfer import schedules
from booking_core.catalogue.transfer.document import (
    PROBLEMS_MAX,
    Contact,
    CustomerEntry,
    DepartureEntry,
    Document,
    ExperienceEntry,
    GiftCardEntry,
    InvalidCatalogue,
    Moment,
    Note,
    Price,
    Problem,
    TextsEntry,
    did_you_mean,
    moment,
    pointer,
    read,
)
from booking_core.catalogue.transfer.schedules import Timetable, resolve_wall_time
from booking_core.models.base import email_key
from booking_core.models.experiences import STANDARD_TIER_ID
from booking_core.models.money import CURRENCIES


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the catalogue with the columns that it sets. Other columns keep their stored values."""

    pointer: str
    id: str | None
    values: dict[str, Any]
    experience: int = -1
    """The position of its experience, for a departure."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A valid catalogue with its schedules expanded."""

    experiences: tuple[Entry, ...] = ()
    departures: tuple[Entry, ...] = ()
    customers: tuple[Entry, ...] = ()
    gift_cards: tuple[Entry, ...] = ()
    notes: tuple[Note, ...] = ()
    """The starts that a clock change skips or repeats."""


def plan(document: object, zone: Zone, others: Iterable[Problem] = ()) -> Plan:
    """Validate a catalogue, and return its plan. Times without an offset are wall time of the zone.

    Args:
        others: problems that were found elsewhere, to be reported with the others.

    Raises:
        InvalidCatalogue: with the first problems, problems of shape before others.
    """
    shaped, of_shape = read(document, zone)
    timetables: list[Timetable] = []
    problems = list(islice(chain(of_shape, others, _problems(document, zone, timetables)), PROBLEMS_MAX + 1))
    if problems or shaped is None:
        raise InvalidCatalogue(problems)
    return _planned(shaped, timetables, zone)


def _problems(document: object, zone: Zone, timetables: list[Timetable]) -> Iterator[Problem]:
    """Yield problems between the keys of a catalogue, and add the timetable of each experience to the list."""
    yield from _between(document)
    starts_count = 0
    for path, raw in objects(document, "experiences"):
        spans = _spans(path, raw, zone)
        yield from _of_experience(path, raw, spans)
        starts = {span.starts_at for span in spans if span.starts_at is not None}
        timetable = schedules.timetable(objects(raw, "schedules", path), starts, zone)
        yield from timetable.problems
        timetables.append(timetable)
        starts_count += len(timetable.starts)
        if starts_count > schedules.STARTS_MAX:
            yield Problem("/experiences", f"have schedules of more than {schedules.STARTS_MAX} departures")
            return
    for path, raw in objects(document, "gift_cards"):
        yield from _of_card(path, raw, zone)


# Values of any shape ---------------------------------------------------------------------------------------------
#
# A catalogue with mistakes of shape is checked for all other problems as well: one reading finds them all. The
# functions below use the valid values of the raw document, and skip the values that `document.read` has reported.


def objects(parent: object, key: str, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a list of the file, each with its pointer."""
    items = parent.get(key) if isinstance(parent, dict) else None
    for i, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield f"{path}/{key}/{i}", item


def texts(items: Iterable[tuple[str, dict[str, Any]]], key: str) -> Iterator[tuple[str, str]]:
    """Yield the texts that objects of the file have under a key, each with its pointer."""
    for path, item in items:
        if isinstance(value := item.get(key), str):
            yield f"{path}/{key}", value


def _instant(item: dict[str, Any], key: str, zone: Zone) -> int | None:
    try:
        return moment(item.get(key), zone).at
    except ValueError:
        return None


def _once(pairs: Iterable[tuple[str, Hashable]]) -> Iterator[Problem]:
    first: dict[Hashable, str] = {}
    for path, value in pairs:
        if (first_path := first.setdefault(value, path)) != path:
            yield Problem(path, f"is the same as {first_path}")


def _between(document: object) -> Iterator[Problem]:
    """Yield problems of ids, slugs, e-mail addresses and codes that are not unique in the catalogue."""
    experiences = list(objects(document, "experiences"))
    departures = [departure for path, raw in experiences for departure in objects(raw, "departures", path)]
    customers, cards = list(objects(document, "customers")), list(objects(document, "gift_cards"))
    ids = texts([*experiences, *departures, *customers, *cards], "id")
    yield from _once((path, value.lower()) for path, value in ids)
    yield from _once(texts(experiences, "slug"))
    yield from _once((path, email_key(value)) for path, value in texts(customers, "email"))
    yield from _once((path, normalise_code(value)) for path, value in texts(cards, "code"))


class _Span(NamedTuple):
    """A single departure. An instant that cannot be read is None."""

    pointer: str
    starts_at: int | None
    ends_at: int | None
    has_end: bool


def _spans(path: str, raw: dict[str, Any], zone: Zone) -> list[_Span]:
    return [
        _Span(at, _instant(item, "starts_at", zone), _instant(item, "ends_at", zone), item.get("ends_at") is not None)
        for at, item in objects(raw, "departures", path)
    ]


def _of_experience(path: str, raw: dict[str, Any], spans: Sequence[_Span]) -> Iterator[Problem]:
    for key in ("price_tiers", "add_ons"):
        yield from _once(texts(objects(raw, key, path), "id"))
    yield from _one_currency(_prices(path, raw))
    yield from _tier_prices(path, raw)
    yield from _translations(path, raw)
    yield from _once((f"{span.pointer}/starts_at", span.starts_at) for span in spans if span.starts_at is not None)
    for span in spans:
        if span.starts_at is not None and span.ends_at is not None and span.ends_at < span.starts_at:
            yield Problem(f"{span.pointer}/ends_at", "is before starts_at")
    if raw.get("duration_minutes") is None:
        for span in spans:
            if not span.has_end:
                yield Problem(span.pointer, "needs ends_at, or a duration_minutes of its experience")
        for at, _ in objects(raw, "schedules", path):
            yield Problem(at, "needs a duration_minutes of its experience")


def _tier_prices(path: str, raw: dict[str, Any]) -> Iterator[Problem]:
    """Yield problems of departures whose prices do not match the tiers of their experience."""
    tiers = [tier for _, tier in texts(objects(raw, "price_tiers", path), "id")]
    for at, item in objects(raw, "departures", path):
        if tiers and item.get("price") is not None:
            yield Problem(f"{at}/price", ONE_PRICE)
        if item.get("prices") and not tiers:
            yield Problem(
                f"{at}/prices", "need price tiers, and the file gives its experience none; without tiers write price"
            )
            continue
        for tier, _ in _members(item, "prices"):
            if tier not in tiers:
                yield Problem(
                    at + pointer("prices", tier), f"is no price tier of its experience{did_you_mean(tier, tiers)}"
                )


def _translations(path: str, raw: dict[str, Any]) -> Iterator[Problem]:
    """Yield problems of translations: a language that is given twice, and names of unknown tiers and add-ons.

    Names of tiers and add-ons that the file leaves out are compared with the stored ones, in `changes`.
    """
    yield from _once((path + pointer("translations", tag), tag.lower()) for tag, _ in _members(raw, "translations"))
    ids = {key: [item_id for _, item_id in texts(objects(raw, key, path), "id")] for key in NAMES if key in raw}
    yield from unknown_names(path, raw.get("translations"), **ids)


NAMES = {"price_tiers": "price tier", "add_ons": "add-on"}
"""Keys of the names that are translated, each with the noun of its entries."""


def unknown_names(
    path: str,
    translations: object,
    *,
    price_tiers: Sequence[str] | None = None,
    add_ons: Sequence[str] | None = None,
) -> Iterator[Problem]:
    """Yield a problem for each translated name of a price tier or add-on that the experience does not have.

    Args:
        path: the pointer of the experience.
        translations: by language; parts of another shape are left out.
        price_tiers, add_ons: the ids that it has, without the standard tier; None: not known.
    """
    tiers = None if price_tiers is None else (price_tiers or [STANDARD_TIER_ID])
    ids = {"price_tiers": tiers, "add_ons": add_ons}
    for tag, key, line_id in experiences.unknown_names(translations, tiers, add_ons):
        close = did_you_mean(line_id, ids[key] or ())
        yield Problem(path + pointer("translations", tag, key, line_id), f"is no {NAMES[key]} of its experience{close}")


ONE_PRICE = "is a single price, and its experience has price tiers; write prices, with those tiers that differ"


def _members(parent: dict[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    members = parent.get(key)
    yield from members.items() if isinstance(members, dict) else ()


def _prices(path: str, raw: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    within = [*objects(raw, "price_tiers", path), *objects(raw, "add_ons", path), *objects(raw, "departures", path)]
    for at, value in ((path, raw.get("price_from")), *((at, item.get("price")) for at, item in within)):
        if isinstance(value, dict):
            yield f"{at}/{'price_from' if at == path else 'price'}", value
    for at, item in objects(raw, "departures", path):
        for tier, value in _members(item, "prices"):
            if isinstance(value, dict):
                yield at + pointer("prices", tier), value


def _one_currency(prices: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[Problem]:
    currencies = [(path, currency) for path, currency in texts(prices, "currency") if currency in CURRENCIES]
    for path, currency in currencies:
        if currency != currencies[0][1]:
            yield Problem(path, f"is not the currency of {currencies[0][0]}: an experience has one")


def _of_card(path: str, raw: dict[str, Any], zone: Zone) -> Iterator[Problem]:
    initial, balance = raw.get("initial_amount"), raw.get("balance")
    if isinstance(initial, dict) and isinstance(balance, dict):
        face, remaining = initial.get("amount_minor"), balance.get("amount_minor")
        if type(face) is int and type(remaining) is int and remaining > face:
            yield Problem(f"{path}/balance/amount_minor", "is more than the initial amount")
        if initial.get("currency") != balance.get("currency"):
            yield Problem(f"{path}/balance/currency", "is not the currency of the initial amount")
    begins, ends = (_instant(raw, key, zone) for key in ("valid_from", "expires_at"))
    if begins is not None and ends is not None and ends < begins:
        yield Problem(f"{path}/expires_at", "is before valid_from")


# Entries ---------------------------------------------------------------------------------------------------------


def _planned(document: Document, timetables: Sequence[Timetable], zone: Zone) -> Plan:
    return Plan(
        experiences=tuple(_experience(i, item) for i, item in enumerate(document.experiences)),
        departures=(*_listed(document), *_scheduled(timetables)),
        customers=tuple(_customer(i, item) for i, item in enumerate(document.customers)),
        gift_cards=tuple(_gift_card(i, item) for i, item in enumerate(document.gift_cards)),
        notes=(*_noted(document, zone), *(note for timetable in timetables for note in timetable.notes)),
    )


def _minor(price: Price | None) -> int | None:
    return price.amount_minor if price else None


def _experience(position: int, item: ExperienceEntry) -> Entry:
    values = item.given("id", "price_from", "departures", "schedules")
    if "price_from" in item.model_fields_set:
        values["price_from_minor"] = _minor(item.price_from)
    for name in values.keys() & {"price_tiers", "add_ons"}:
        values[name] = [element.model_dump(exclude_none=True) for element in values[name]]
    if "translations" in values:
        values["translations"] = _stored_texts(values["translations"] or {})
    if price := next(filter(None, _each_price(item)), None):
        values["currency"] = price.currency
    return Entry(pointer("experiences", position), item.id, values)


def _stored_texts(translations: Mapping[str, TextsEntry]) -> dict[str, Any] | None:
    """Return the texts that are given, by language; None: there are none."""
    dumped = {tag: texts.model_dump(exclude_defaults=True) for tag, texts in translations.items()}
    return {tag: texts for tag, texts in dumped.items() if texts} or None


def _each_price(item: ExperienceEntry) -> Iterator[Price | None]:
    yield item.price_from
    yield from (tier.price for tier in item.price_tiers)
    yield from (add_on.price for add_on in item.add_ons)
    for departure in item.departures:
        yield departure.price
        yield from (price for price in (departure.prices or {}).values() if price.currency)


def _listed(document: Document) -> Iterator[Entry]:
    for i, experience in enumerate(document.experiences):
        for j, item in enumerate(experience.departures):
            yield _departure(pointer("experiences", i, "departures", j), item, i)


def _noted(document: Document, zone: Zone) -> Iterator[Note]:
    """Yield notes on single departures whose wall time a clock change skips or repeats."""
    for i, experience in enumerate(document.experiences):
        for j, item in enumerate(experience.departures):
            for key, written in (("starts_at", item.starts_at), ("ends_at", item.ends_at)):
                note = resolve_wall_time(written.wall, zone).note if written and written.wall else None
                if note:
                    yield Note(pointer("experiences", i, "departures", j, key), note)


def _departure(path: str, item: DepartureEntry, experience: int) -> Entry:
    values = item.given("id", "price", "prices") | {"starts_at": item.starts_at.at}
    if "ends_at" in values:
        values["ends_at"] = _at(item.ends_at)
    if "price" in item.model_fields_set:
        values["price_minor"] = _minor(item.price)
    if "prices" in item.model_fields_set:
        values["prices"] = {tier: price.amount_minor for tier, price in sorted((item.prices or {}).items())} or None
    return Entry(path, item.id, values, experience)


def _scheduled(timetables: Iterable[Timetable]) -> Iterator[Entry]:
    for i, timetable in enumerate(timetables):
        for start in timetable.starts:
            yield Entry(start.pointer, None, {"starts_at": start.at, "seats_total": start.seats_total}, i)


def _at(value: Moment | None) -> int | None:
    return value.at if value else None


def _customer(position: int, item: CustomerEntry) -> Entry:
    return Entry(pointer("customers", position), item.id, item.given("id") | {"email_key": email_key(item.email)})


def _gift_card(position: int, item: GiftCardEntry) -> Entry:
    values = item.given("id", "initial_amount", "balance", "purchaser", "recipient")
    values |= {key: _at(values[key]) for key in values.keys() & {"valid_from", "expires_at"}}
    values |= {"currency": item.initial_amount.currency, "initial_minor": item.initial_amount.amount_minor}
    if item.balance:
        values["balance_minor"] = item.balance.amount_minor
    for role in ("purchaser", "recipient"):
        if role in item.model_fields_set:
            contact = getattr(item, role) or Contact(name=None, email=None)  # null clears both keys
            values |= {f"{role}_{key}": value for key, value in contact.given().items()}
    return Entry(pointer("gift_cards", position), item.id, values)
