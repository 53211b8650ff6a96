"""The data of `booking demo`: a catalogue around the present day, and bookings, gift cards and changes to look at."""

import random
from collections.abc import Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

Json = dict[str, Any]

EXAMPLES_BEGIN, EXAMPLES_END = date(2026, 11, 1), date(2027, 11, 30)
"""The first and the last day of the schedules in `examples/`."""
_YEAR = timedelta(weeks=52)
"""Whole weeks, so a departure of a Saturday stays on a Saturday."""
_BOOKED_DAYS = 28
_FULL_SEATS_MAX = 24
_PAYMENTS = ("external_paid", "external_paid", "pay_on_site", "invoice")
_GUESTS = (
    *("Ada Lovelace", "Ingrid Solheim", "Grace Hopper", "Lars Nygård", "Chen Wei", "Fatima Benali", "Jonas Weber"),
    *("Sofía Rojas", "Emma Dubois", "Marte Lien", "Kwame Mensah", "Yuki Tanaka", "Olav Haugen", "Nora Kelly"),
)


def shifted(document: Json, today: date) -> Json:
    """Return an example catalogue with at least half a year of departures from today, in their seasons and weekdays."""
    by = max(0, (today - EXAMPLES_BEGIN) // _YEAR) * _YEAR
    moved: Json = _moved(document, by)
    if today - EXAMPLES_BEGIN - by > _YEAR / 2:
        end = EXAMPLES_END + by
        for experience in moved["experiences"]:
            schedules = experience.get("schedules", [])
            experience["schedules"] = [*schedules, *_continued(schedules, end + timedelta(days=1))]
    return moved


def _continued(schedules: list[Json], begin: date) -> Iterator[Json]:
    """Yield the schedules of the next year, each from `begin` on."""
    for schedule in schedules:
        following = _moved(schedule, _YEAR)
        following["from"] = max(following["from"], str(begin))
        if following["from"] <= following["to"]:
            yield following


def _moved(value: Any, by: timedelta) -> Any:
    """Move the date in every text of a JSON value that begins with one, and return the value."""
    if isinstance(value, dict):
        return {key: _moved(each, by) for key, each in value.items()}
    if isinstance(value, list):
        return [_moved(each, by) for each in value]
    if isinstance(value, str) and len(value) in (10, 19, 20, 25) and value[4:5] == "-":
        try:
            return f"{date.fromisoformat(value[:10]) + by}{value[10:]}"
        except ValueError:
            return value
    return value


def add_bookings(tx: "Tx", actor: "Actor") -> None:
    """Write what an organization has after some weeks: bookings, a full and a cancelled departure, a gift card."""
    from booking_core import bookings
    from booking_core.catalogue import departures
    from booking_core.models.bookings import CancelReason

    chance, today = random.Random(actor.organization.slug), actor.organization.zone.wall(actor.at).date()
    last = today + timedelta(days=_BOOKED_DAYS)
    found = departures.find_available(tx, actor, date_from=today, date_to=last)["data"]
    offered = [each for each in found if each["status"] == "open" and each["price_tiers"]]
    if len(offered) < len(_GUESTS):
        return
    full = next(each for each in offered if each["seats_available"] <= _FULL_SEATS_MAX)
    _book(tx, actor, full, _GUESTS[0], full["seats_available"], "external_paid")
    cancelled, *others = (each for each in offered if each is not full)
    guests = iter(_GUESTS * len(others))
    for number, departure in enumerate([cancelled, *others]):
        for _ in range(min(chance.randint(0, 3), departure["seats_available"] // 4) + (departure is cancelled)):
            booking_id = _book(tx, actor, departure, next(guests), chance.randint(1, 4), chance.choice(_PAYMENTS))
            if number % 9 == 8:
                bookings.cancel(tx, actor, booking_id, reason=CancelReason.CUSTOMER)
    bookings.cancel_departure(tx, actor, cancelled["id"])
    _redeem_gift_card(tx, actor, others[-1])


def _book(tx: "Tx", actor: "Actor", departure: Json, name: str, count: int, payment: str, **more: Any) -> str:
    """Book seats of the first tier that takes one, and return the booking's id."""
    import orjson

    from booking_core import bookings
    from booking_core.models.bookings import BookingSource, GuestInput, GuestLineInput, PaymentMode

    tier = next(each for each in departure["price_tiers"] if each["seats_per_unit"] == 1)
    request = bookings.BookingRequest(
        departure_id=departure["id"],
        guests=[GuestLineInput(tier_id=tier["id"], count=count)],
        customer=GuestInput(name=name, email=f"{'.'.join(_ascii(name))}@example.com"),
        source=BookingSource.ADMIN,
        payment=PaymentMode(payment),
        send_confirmation_email=False,
        **more,
    )
    return str(orjson.loads(bookings.create(tx, actor, request))["id"])


def _ascii(name: str) -> Iterator[str]:
    yield from name.lower().replace("å", "a").replace("í", "i").split()


def _redeem_gift_card(tx: "Tx", actor: "Actor", departure: Json) -> None:
    from booking_core.payments import gift_cards

    amount_minor = 10 * departure["price_tiers"][0]["price"]["amount_minor"]
    issue = gift_cards.GiftCardIssue(
        amount_minor=amount_minor, recipient_name="Nora Kelly", recipient_email="nora.kelly@example.com"
    )
    _, code = gift_cards.issue(tx, actor, issue)
    _book(tx, actor, departure, "Nora Kelly", 1, "external_paid", gift_card_code=code)
