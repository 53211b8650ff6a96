"""Moves of bookings to another departure in the fake, and what all changes of a booking have in common."""

from collections.abc import Iterator

from booking_core.models.bookings import (
    BookedDeparture,
    BookedExperience,
    ChangeMoney,
    ChangeSettlement,
)
from booking_sdk.models import BookingChange
from booking_sdk.testing._http import Refusal, conflict, unprocessable
from booking_sdk.testing._refusals import Check, refusal_rows, refusals_of
from booking_sdk.testing._store import Row, Store, select_fields
from booking_sdk.testing.factories import resource_fields


def reschedule(store: Store, booking_id: str, departure_id: str) -> Row:
    """Move a booking to another departure, and return the change."""
    row, to = store.get(store.bookings, booking_id), store.get(store.departures, departure_id)
    for check in _move_checks(store, row, to):
        check()
    if row["departure"]["id"] != to["id"]:
        move(store, row, to)
    return _moved(store, row, to)


def preview_reschedule(store: Store, booking_id: str, departure_id: str) -> Row:
    """Return the change that `reschedule` would make, or its refusals."""
    row, to = store.get(store.bookings, booking_id), store.get(store.departures, departure_id)
    if refusals := refusals_of(_move_checks(store, row, to)):
        return refused(row, refusals)
    is_moved = row["departure"]["id"] != to["id"]
    return _moved(store, row | _moved_fields(store, to) | {"updated_at": store.now} if is_moved else row, to)


def move(store: Store, row: Row, to: Row) -> None:
    """Move a booking to another departure without a check, and write the event."""
    previous = {name: row["departure"][name] for name in ("id", "starts_at")}
    store.update("booking.rescheduled", row, _moved_fields(store, to), previous_departure=previous)


def _moved_fields(store: Store, to: Row) -> Row:
    return {
        "experience": select_fields(BookedExperience, store.experiences[to["experience_id"]]),
        "departure": select_fields(BookedDeparture, to),
        "checked_in_at": None,
        "no_show_at": None,
    }


def _move_checks(store: Store, row: Row, to: Row) -> Iterator[Check]:
    yield lambda: require_live(row)
    if row["departure"]["id"] != to["id"]:
        yield lambda: store.check_bookable(to)
        yield lambda: _require_currency(row, to)
        yield lambda: store.check_seats(to, row["_seats"])


def require_live(row: Row) -> None:
    if row["status"] == "cancelled":
        raise conflict("booking_cancelled", "The booking is cancelled.")


def _require_currency(row: Row, to: Row) -> None:
    if row["totals"]["total"]["currency"] != to["price"]["currency"]:
        message = f"The departure is sold in {to['price']['currency']}."
        raise unprocessable("departure_id", message, "currency_mismatch")


def refused(row: Row, refusals: list[Refusal]) -> Row:
    return resource_fields(
        BookingChange, allowed=False, refusals=refusal_rows(refusals), booking=row, seats=row["_seats"], money=None
    )


def _moved(store: Store, row: Row, to: Row) -> Row:
    money = money_of(store, row, to, ChangeSettlement.PRICE_KEPT, 0)
    return resource_fields(BookingChange, allowed=True, refusals=[], booking=row, seats=row["_seats"], money=money)


def money_of(store: Store, row: Row, departure: Row, settlement: ChangeSettlement, difference: int) -> Row:
    currency, total = row["totals"]["total"]["currency"], row["totals"]["total"]["amount_minor"]
    due = total if row["payment"]["status"] == "unpaid" else 0
    amounts = {"price_difference": difference, "refund": 0, "gift_card_refund": 0, "kept": 0, "balance_due": due}
    shown = {name: {"amount_minor": amount, "currency": currency} for name, amount in amounts.items()}
    price = _list_price(store, row, departure)
    listed = None if price is None else {"amount_minor": price, "currency": currency}
    return resource_fields(ChangeMoney, settlement=settlement, list_price=listed, **shown)


def _list_price(store: Store, row: Row, departure: Row) -> int | None:
    tiers = {tier["id"]: tier["price"] for tier in departure["_tiers"]}
    add_ons = {each["id"]: each["price"] for each in store.experiences[departure["experience_id"]]["_add_ons"]}
    wanted = [(tiers.get(line["tier_id"]), line["count"]) for line in row["guests"]]
    wanted += [(add_ons.get(line["id"]), line["count"]) for line in row["add_ons"]]
    if any(price is None for price, _ in wanted):
        return None
    total: int = sum(price["amount_minor"] * count for price, count in wanted if price)
    return total
