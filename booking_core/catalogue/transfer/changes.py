"""Compare the entries of a catalogue with the stored rows, and compute the changes. No storage, no clock.

An entry is matched by its id, then by its natural key (slug, start, e-mail, code). Columns that an entry leaves out
keep their stored values. Nothing is deleted; sold seats and gift card balances are never changed.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from booking_core.base import tokens
from booking_core.catalogue.transfer.document import CustomerEntry, ExperienceEntry, GiftCardEntry, Note, Problem
from booking_core.catalogue.transfer.rules import NAMES, ONE_PRICE, Entry, unknown_names

CatalogueRow = dict[str, Any]
"""A row by column, with parsed JSON. A gift card also has `code`, and `is_active` instead of deactivated_at."""

NEW_EXPERIENCE: CatalogueRow = ExperienceEntry.defaults("id", "price_from", "departures", "schedules") | {
    "price_from_minor": None
}
NEW_DEPARTURE: CatalogueRow = {"ends_at": None, "status": "open", "price_minor": None, "prices": None}
NEW_CUSTOMER: CatalogueRow = CustomerEntry.defaults("id")
NEW_GIFT_CARD: CatalogueRow = GiftCardEntry.defaults("id", "balance", "purchaser", "recipient") | dict.fromkeys(
    ("purchaser_name", "purchaser_email", "recipient_name", "recipient_email")
)
_AMOUNT_COLUMNS = ("currency", "initial_minor", "balance_minor")
"""Amounts of a gift card, which an import sets only when it creates the card."""


class Counts(NamedTuple):
    """The numbers of created, updated and unchanged entries of one kind."""

    created: int
    updated: int
    unchanged: int

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*(count + its for count, its in zip(self, other, strict=True)))


@dataclass(slots=True)
class Changes:
    """The changes to be written for one kind."""

    rows: list[CatalogueRow] = field(default_factory=list)
    """The resulting row of each entry, in the order of the entries."""
    created: list[CatalogueRow] = field(default_factory=list)
    updated: list[CatalogueRow] = field(default_factory=list)
    """The id, and only the columns that change."""
    moved: list[Entry] = field(default_factory=list)
    """Entries of stored departures that get another start."""
    vacated: list[str] = field(default_factory=list)
    """Ids of departures whose start another one takes over. They are moved to a temporary start first."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def counts(self) -> Counts:
        created, updated = len(self.created), len(self.updated)
        return Counts(created, updated, len(self.rows) - created - updated)

    def add(self, entry: Entry, stored: CatalogueRow | None, values: CatalogueRow, new: CatalogueRow) -> CatalogueRow:
        """Record the change that an entry makes, and return the resulting row."""
        if stored is None:
            row = {"id": entry.id or tokens.new_id()} | new | values
            self.created.append(row)
        else:
            changed = {key: value for key, value in values.items() if stored[key] != value}
            row = stored | changed
            if changed:
                self.updated.append({"id": stored["id"]} | changed)
            if entry.id and entry.id != stored["id"]:
                self.notes.append(Note(f"{entry.pointer}/id", f"is stored as {stored['id']}, and stays so"))
        self.rows.append(row)
        return row

    def add_problem(self, entry: Entry, key: str, message: str) -> None:
        self.problems.append(Problem(f"{entry.pointer}/{key}" if key else entry.pointer, message))


def _match(
    entries: Sequence[Entry],
    by_id: Mapping[str, CatalogueRow],
    by_key: Mapping[Hashable, CatalogueRow],
    key: Callable[[Entry], Hashable],
) -> list[CatalogueRow | None]:
    """Match each entry with its stored row. Ids come first: a moved row is not matched with its successor."""
    stored_ids = {entry.id for entry in entries if entry.id in by_id}

    def stored(entry: Entry) -> CatalogueRow | None:
        if entry.id is not None and entry.id in by_id:
            return by_id[entry.id]
        row = by_key.get(key(entry))
        return None if row is None or row["id"] in stored_ids else row

    return [stored(entry) for entry in entries]


# Kinds -----------------------------------------------------------------------------------------------------------


def experiences(entries: Sequence[Entry], stored: Iterable[CatalogueRow], default_currency: str) -> Changes:
    by_id = {row["id"]: row for row in stored}
    by_slug: dict[Hashable, CatalogueRow] = {row["slug"]: row for row in by_id.values()}
    changes, new = Changes(), NEW_EXPERIENCE | {"currency": default_currency}
    for entry, before in zip(entries, _match(entries, by_id, by_slug, lambda e: e.values["slug"]), strict=True):
        row = changes.add(entry, before, entry.values, new)
        _compare_names(changes, entry, row)
        holder = by_slug.get(row["slug"])
        if holder is not None and holder is not before:
            changes.add_problem(entry, "slug", f"is the slug of the experience {holder['id']}")
        if before is not None and _mixes_currencies(entry, before, row):
            message = f"is in {row['currency']}, and keeps prices in {before['currency']} that it leaves out here"
            changes.add_problem(entry, "", message)
    return changes


def _compare_names(changes: Changes, entry: Entry, row: CatalogueRow) -> None:
    """Record translated names of price tiers and add-ons that the experience does not have: as problems, or as notes
    where the entry leaves its translations as they are stored."""
    ids = {key: [item["id"] for item in row[key]] for key in NAMES}
    unknown = list(unknown_names(entry.pointer, row["translations"], **ids))
    if "translations" in entry.values:
        changes.problems += unknown
    else:
        changes.notes += (Note(problem.pointer, f"{problem.message}, and is ignored") for problem in unknown)


def _mixes_currencies(entry: Entry, before: CatalogueRow, row: CatalogueRow) -> bool:
    currencies = {item["price"]["currency"] for key in ("price_tiers", "add_ons") for item in row[key]}
    if "price_from_minor" not in entry.values and row["price_from_minor"] is not None:
        currencies.add(before["currency"])
    return not currencies <= {row["currency"]}


def departures(entries: Sequence[Entry], tours: Sequence[CatalogueRow], stored: Iterable[CatalogueRow]) -> Changes:
    """Compute the changes of departures.

    Args:
        tours: the resulting rows of the experiences.
        stored: every departure with the id or the start of an entry.
    """
    kinds = {tour["id"]: tour for tour in tours}
    by_id = {row["id"]: row | effective_prices(row, kinds.get(row["experience_id"], NEW_EXPERIENCE)) for row in stored}
    by_start: dict[Hashable, CatalogueRow] = {(row["experience_id"], row["starts_at"]): row for row in by_id.values()}

    def start(entry: Entry) -> tuple[str, int]:
        return tours[entry.experience]["id"], entry.values["starts_at"]

    matched = _match(entries, by_id, by_start, start)
    moving = {
        row["id"]
        for entry, row in zip(entries, matched, strict=True)
        if row is not None and row["starts_at"] != entry.values["starts_at"]
    }
    changes = Changes()
    changes.moved += (entry for entry, row in zip(entries, matched, strict=True) if row and row["id"] in moving)
    for entry, before in zip(entries, matched, strict=True):
        new = NEW_DEPARTURE | {"experience_id": tours[entry.experience]["id"]}
        row = changes.add(entry, before, entry.values | _reset_columns(entry, before), new)
        if row["price_minor"] is not None and tours[entry.experience]["price_tiers"]:
            changes.add_problem(entry, "price", ONE_PRICE)
        changes.notes += _guest_notes(entry, before, row) if before is not None and before["seats_taken"] else ()
        holder = by_start.get(start(entry))
        if row["experience_id"] != new["experience_id"]:
            changes.add_problem(entry, "id", "is a departure of another experience")
        elif holder is not None and holder is not before:
            if holder["id"] in moving:
                changes.vacated.append(holder["id"])
            else:
                changes.add_problem(entry, "starts_at", f"is the start of the departure {holder['id']}")
        if row["ends_at"] is not None and row["ends_at"] < row["starts_at"]:
            changes.add_problem(entry, "starts_at", "is after the stored end; give ends_at too")
    return changes


def effective_prices(departure: CatalogueRow, tour: CatalogueRow) -> CatalogueRow:
    """Return the departure's own prices as far as they count: a single price without tiers, else the prices of tiers
    that the experience has (decisions/0010)."""
    if not tour["price_tiers"]:
        return {"price_minor": departure["price_minor"], "prices": None}
    tiers, prices = {tier["id"] for tier in tour["price_tiers"]}, departure["prices"] or {}
    return {"price_minor": None, "prices": {tier: prices[tier] for tier in prices if tier in tiers} or None}


def _reset_columns(entry: Entry, before: CatalogueRow | None) -> CatalogueRow:
    """Return the columns that an entry resets on a stored departure.

    A departure that is on sale again drops a cancellation in progress. Otherwise a later import that cancels the
    departure would also cancel its bookings. A departure with another start has its minimum checked again.
    """
    reset: CatalogueRow = {}
    if before is not None and entry.values.get("status", "cancelled") != "cancelled":
        reset["cancelling"] = None
    if before is not None and entry.values["starts_at"] != before["starts_at"]:
        reset["minimum_checked_at"] = None
    return reset


def _guest_notes(entry: Entry, before: CatalogueRow, row: CatalogueRow) -> Iterator[Note]:
    """Yield notes on changes that affect booked guests. An import sends no mails."""
    sold = f"{before['seats_taken']} seats are sold"
    if row["starts_at"] != before["starts_at"]:
        yield Note(f"{entry.pointer}/starts_at", f"{sold}: their guests are not told of the new start")
    if row["status"] == "cancelled" != before["status"]:
        yield Note(f"{entry.pointer}/status", f"{sold}: the import itself cancels no booking")
    if row["seats_total"] < before["seats_taken"] and row["seats_total"] != before["seats_total"]:
        yield Note(f"{entry.pointer}/seats_total", f"{sold} already")


def customers(
    entries: Sequence[Entry], by_key: Mapping[str, CatalogueRow], by_id: Mapping[str, CatalogueRow]
) -> Changes:
    """Compute the changes of customers, which are matched by e-mail address and never by id."""
    changes = Changes()
    for entry in entries:
        before = by_key.get(entry.values["email_key"])
        if before is None and entry.id in by_id:
            changes.add_problem(entry, "id", "is a customer of another e-mail address")
        values = {key: value for key, value in entry.values.items() if before is None or key != "email"}
        changes.add(entry, before, values, NEW_CUSTOMER)
    return changes


def gift_cards(
    entries: Sequence[Entry], by_code: Mapping[Hashable, CatalogueRow], by_id: Mapping[str, CatalogueRow]
) -> Changes:
    changes = Changes()
    for entry, before in zip(entries, _match(entries, by_id, by_code, lambda e: e.values["code"]), strict=True):
        holder = by_code.get(entry.values["code"])
        if holder is not None and holder is not before:
            changes.add_problem(entry, "code", f"is the code of the gift card {holder['id']}")
        if before is None:
            whole = {"balance_minor": entry.values["initial_minor"]}
            changes.add(entry, None, whole | entry.values, NEW_GIFT_CARD)
            continue
        changes.add(
            entry, before, {key: value for key, value in entry.values.items() if key not in _AMOUNT_COLUMNS}, {}
        )
        for key in _AMOUNT_COLUMNS:
            if key in entry.values and entry.values[key] != before[key]:
                where = "balance" if key == "balance_minor" else "initial_amount"
                changes.notes.append(Note(f"{entry.pointer}/{where}", f"stays {before[key]}, as it is stored"))
    return changes


# Stored departures that a changed experience affects ---------------------------------------------------------------


def changes_terms(before: CatalogueRow | None, row: CatalogueRow) -> bool:
    """Return whether the price, currency or duration of stored departures changes."""
    return before is not None and any(
        before[name] != row[name] for name in ("currency", "price_from_minor", "price_tiers", "duration_minutes")
    )


def affects_stored_departures(before: CatalogueRow, row: CatalogueRow) -> bool:
    """Return whether the change may leave stored departures without an end or with a price that does not apply."""
    loses_duration = before["duration_minutes"] is not None and row["duration_minutes"] is None
    gains_tiers = bool(row["price_tiers"]) and not before["price_tiers"]
    return loses_duration or gains_tiers or before["currency"] != row["currency"] or bool(_removed_tiers(before, row))


def _removed_tiers(before: CatalogueRow, row: CatalogueRow) -> set[str]:
    return {tier["id"] for tier in before["price_tiers"]} - {tier["id"] for tier in row["price_tiers"]}


def ignored_prices(
    entry: Entry,
    before: CatalogueRow,
    row: CatalogueRow,
    stored: Iterable[CatalogueRow],
    values: Mapping[str, CatalogueRow],
    now: int,
) -> list[Note]:
    """Return a note when departures to come, with prices that the catalogue does not give, keep some for removed tiers.

    The arguments are the same as for `departure_conflicts`.
    """
    removed = _removed_tiers(before, row)
    count = sum(
        departure["starts_at"] > now
        and not removed.isdisjoint(departure["prices"] or ())
        and not values.get(departure["id"], {}).keys() & _OWN_PRICES
        for departure in stored
    )
    if not count:
        return []
    names = ", ".join(sorted(removed))
    message = f"{count} stored departures have prices for removed tiers ({names}), which are ignored"
    return [Note(f"{entry.pointer}/price_tiers", message)]


def unpriced(
    entries: Iterable[Entry], tours: Iterable[CatalogueRow], departures: Iterable[CatalogueRow]
) -> Iterator[Note]:
    """Yield a note for each experience with open departures that have neither a price tier nor a price.

    Args:
        tours: the resulting rows of the experiences.
        departures: the resulting rows of the departures.
    """
    counts = Counter(
        row["experience_id"] for row in departures if row["price_minor"] is None and row["status"] == "open"
    )
    for entry, tour in zip(entries, tours, strict=True):
        if not tour["price_tiers"] and tour["price_from_minor"] is None and (count := counts[tour["id"]]):
            yield Note(entry.pointer, f"has no price, so {count} departures without one are closed for booking")


def departure_conflicts(
    entry: Entry,
    before: CatalogueRow,
    row: CatalogueRow,
    stored: Iterable[CatalogueRow],
    values: Mapping[str, CatalogueRow],
    now: int,
) -> Iterator[Problem]:
    """Return the problems that a changed experience causes for stored departures.

    These are departures without an end, with a price in another currency, or, in the future, with a single price that
    price tiers override.

    Args:
        stored: the departures of the experience.
        values: the columns that the catalogue sets, by departure id.
    """
    departures = [
        (departure | effective_prices(departure, before), values.get(departure["id"], {})) for departure in stored
    ]
    if row["duration_minutes"] is None:
        endless = sum((departure | overrides)["ends_at"] is None for departure, overrides in departures)
        if endless:
            path = f"{entry.pointer}/duration_minutes"
            yield Problem(path, f"is needed by {endless} stored departures without an end")
    if row["currency"] != before["currency"]:
        priced = sum(_keeps_a_price(*departure) for departure in departures)
        if priced:
            message = f"is in {row['currency']}, and {priced} stored departures have a price in {before['currency']}"
            yield Problem(entry.pointer, message)
    if row["price_tiers"] and not before["price_tiers"]:
        single = sum(_keeps_a_single_price(*departure, now) for departure in departures)
        if single:
            message = (
                f"cannot be added while {single} stored departures have a single price: give each prices, or price null"
            )
            yield Problem(f"{entry.pointer}/price_tiers", message)


_OWN_PRICES = {"price_minor", "prices"}


def _keeps_a_price(departure: CatalogueRow, overrides: CatalogueRow) -> bool:
    return any(departure[name] is not None and name not in overrides for name in _OWN_PRICES)


def _keeps_a_single_price(departure: CatalogueRow, overrides: CatalogueRow, now: int) -> bool:
    is_to_come = departure["starts_at"] > now
    return departure["price_minor"] is not None and is_to_come and not overrides.keys() & _OWN_PRICES
