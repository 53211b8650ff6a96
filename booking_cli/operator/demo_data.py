"""The data of `booking demo`: a catalogue around the present day, and bookings, gift cards, webhooks and changes to
look at."""

import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import PurePosixPath
from typing import Any

import orjson
from sqlalchemy import bindparam, select, update

from booking_core import bookings, webhooks
from booking_core.base.clock import DAY
from booking_core.base.context import Actor, Caller, Installation, Organization
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
from booking_core.models.bookings import BookingSource, CancelReason, GuestInput, GuestLineInput, PaymentMode
from booking_core.models.events import EventType
from booking_core.models.json import JsonObject
from booking_core.models.limits import WEBHOOK_WAITS_S
from booking_core.models.pages import Order
from booking_core.models.scopes import Scope
from booking_core.models.webhooks import AttemptError, WantedStatus, WebhookEndpointChange, WebhookEndpointCreate
from booking_core.organizations import keys
from booking_core.payments import gift_cards
from booking_core.webhooks import ClaimedDelivery, DeliveryResult

EXAMPLES_BEGIN, EXAMPLES_END = date(2026, 11, 1), date(2027, 11, 30)
"""The first and the last day of the schedules in `examples/`."""
_YEAR = timedelta(weeks=52)
"""Whole weeks, so a departure of a Saturday stays on a Saturday."""
_BOOKED_DAYS = 28
"""Bookings were made in so many days before today, for departures in as many days from today."""
_FULL_SEATS_MAX = 24
_BOOKINGS_MAX = 1000
_ANYWHERE = "http://localhost"
_PAYMENTS = ("external_paid", "external_paid", "pay_on_site", "invoice")
_GUESTS = (
    *("Ada Lovelace", "Ingrid Solheim", "Grace Hopper", "Lars Nygård", "Chen Wei", "Fatima Benali", "Jonas Weber"),
    *("Sofía Rojas", "Emma Dubois", "Marte Lien", "Kwame Mensah", "Yuki Tanaka", "Olav Haugen", "Nora Kelly"),
)
_LOCALES = dict.fromkeys(("Ingrid Solheim", "Lars Nygård", "Marte Lien", "Olav Haugen"), "nb")
_LOCALES |= {"Jonas Weber": "de", "Sofía Rojas": "es", "Emma Dubois": "fr"}


def shifted(document: JsonObject, today: date) -> JsonObject:
    """Return an example catalogue with at least half a year of departures from today, in their seasons and weekdays."""
    by = max(0, (today - EXAMPLES_BEGIN) // _YEAR) * _YEAR
    moved: JsonObject = _moved(document, by)
    if today - EXAMPLES_BEGIN - by > _YEAR / 2:
        end = EXAMPLES_END + by
        for experience in moved["experiences"]:
            schedules = experience.get("schedules", [])
            experience["schedules"] = [*schedules, *_continued(schedules, end + timedelta(days=1))]
    return moved


def _continued(schedules: list[JsonObject], begin: date) -> Iterator[JsonObject]:
    """Yield the schedules of the next year, each from `begin` on."""
    for schedule in schedules:
        following = _moved(schedule, _YEAR)
        following["from"] = max(following["from"], str(begin))
        if following["from"] <= following["to"]:
            yield following


def _moved(value: Any, by: timedelta) -> Any:
    """Move the date in every text of a JSON value that begins with one, and return the value."""
    if isinstance(value, dict):
        return {key: _moved(item, by) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, by) for item in value]
    if isinstance(value, str) and len(value) in (10, 19, 20, 25) and value[4:5] == "-":
        try:
            return f"{date.fromisoformat(value[:10]) + by}{value[10:]}"
        except ValueError:
            return value
    return value


def with_pictures(document: JsonObject) -> JsonObject:
    """Return an example catalogue with the pictures of `demo_app`; `serve_at` completes their URLs."""
    for experience in document["experiences"]:
        if url := experience.get("image_url"):
            experience["image_url"] = f"{_ANYWHERE}/demo/pictures/{PurePosixPath(url).stem}.svg"
    return document


def serve_at(tx: Tx, public_url: str, port: int) -> None:
    """Let the pictures and the webhook endpoints of the demo lead to this service, which may have another port today.

    Webhooks go to localhost, since none is sent to the service's own name.
    """
    for table, name, origin in (
        (tables.experiences, "image_url", public_url),
        (tables.webhook_endpoints, "url", f"{_ANYWHERE}:{port}"),
    ):
        is_demo = table.c[name].like("http%/demo/%")
        for owner, row_id, url in tx.all(
            Statement(select(table.c.organization_id, table.c.id, table.c[name]).where(is_demo))
        ):
            moved = {name: origin + url[url.index("/demo/") :]}
            tx.update(table, organization_id=owner, id=row_id, **moved)


def fill(database: Database, installation: Installation, organization: Organization, *, is_alone: bool = True) -> None:
    """Write the data of some weeks: webhook endpoints, bookings, and the results of deliveries.

    Args:
        is_alone: no other organization has deliveries that would be given a result.
    """
    caller = database.write_once(lambda tx: _add_endpoints(tx, installation, organization))
    database.write_once(lambda tx: add_bookings(tx, caller))
    database.write_once(lambda tx: _disable_endpoint(tx, caller))
    for _ in range(_TURNS if is_alone else 0):
        database.write_once(lambda tx: _deliver(tx, installation))


# Bookings ----------------------------------------------------------------------------------------------------------


def add_bookings(tx: Tx, actor: Actor) -> None:
    """Write the data of an organization after some weeks: bookings, a full and a cancelled departure, a gift card."""
    chance, today = random.Random(actor.organization.slug), actor.organization.zone.wall(actor.at).date()
    last = today + timedelta(days=_BOOKED_DAYS)
    available = departures.find_available(tx, actor, date_from=today, date_to=last)["data"]
    offered = [departure for departure in available if departure["status"] == "open" and departure["price_tiers"]]
    if len(offered) < len(_GUESTS):
        return
    full = next(departure for departure in offered if departure["seats_available"] <= _FULL_SEATS_MAX)
    _book(tx, actor, full, _GUESTS[0], full["seats_available"], "external_paid")
    cancelled, *others = (departure for departure in offered if departure is not full)
    guests = iter(_GUESTS * len(others))
    for number, departure in enumerate([cancelled, *others]):
        seats = departure["seats_available"]
        # Parties of four leave a seat for the gift card; the departure that is cancelled has one party at least.
        for _ in range(max(min(chance.randint(0, 3), (seats - 1) // 4), departure is cancelled)):
            party = min(chance.randint(1, 4), seats)
            booking_id = _book(tx, actor, departure, next(guests), party, chance.choice(_PAYMENTS))
            if number % 9 == 8:
                bookings.cancel(tx, actor, booking_id, reason=CancelReason.CUSTOMER)
    bookings.cancel_departure_batch(tx, actor, cancelled["id"])
    _redeem_gift_card(tx, actor, others[-1])
    _spread(tx, actor, chance)


def _spread(tx: Tx, actor: Actor, chance: random.Random) -> None:
    """Move the bookings to the weeks before today, in the order of their numbers. Their events stay where they are."""
    columns, entry, owner = tables.bookings.c, tables.timeline.c, actor.organization.id
    age, booking_id = bindparam("age", type_=columns.created_at.type), bindparam("booking_id", type_=columns.id.type)
    dates = {column: column - age for column in (columns.created_at, columns.confirmed_at, columns.cancelled_at)}
    statements = (
        Statement(
            update(tables.bookings).where(columns.organization_id == owner, columns.id == booking_id).values(dates)
        ),
        Statement(
            update(tables.timeline)
            .where(entry.organization_id == owner, entry.booking_id == booking_id)
            .values(created_at=entry.created_at - age)
        ),
    )
    rows = bookings.search(tx, actor, PageRequest(_BOOKINGS_MAX, Order.ASC, None), bookings.Search())["data"]
    ages = sorted((int(chance.triangular(0, _BOOKED_DAYS, 0) * DAY) for _ in rows), reverse=True)
    for booking, age_us in zip(sorted(rows, key=lambda row: row["booking_number"]), ages, strict=True):
        for statement in statements:
            tx.run(statement, booking_id=booking["id"], age=age_us)


def _book(tx: Tx, actor: Actor, departure: JsonObject, name: str, count: int, payment: str, **more: Any) -> str:
    """Book seats of the first tier that takes one, and return the booking's id."""
    tier = next(tier for tier in departure["price_tiers"] if tier["seats_per_unit"] == 1)
    request = bookings.BookingRequest(
        departure_id=departure["id"],
        guests=[GuestLineInput(tier_id=tier["id"], count=count)],
        customer=GuestInput(name=name, email=f"{'.'.join(_ascii(name))}@example.com"),
        source=BookingSource.ADMIN,
        payment=PaymentMode(payment),
        send_confirmation_email=False,
        locale=_LOCALES.get(name),
        **more,
    )
    return str(orjson.loads(bookings.create(tx, actor, request))["id"])


def _ascii(name: str) -> Iterator[str]:
    yield from name.lower().replace("å", "a").replace("í", "i").split()


def _redeem_gift_card(tx: Tx, actor: Actor, departure: JsonObject) -> None:
    amount_minor = 10 * departure["price_tiers"][0]["price"]["amount_minor"]
    issue = gift_cards.GiftCardIssue(
        amount_minor=amount_minor, recipient_name="Nora Kelly", recipient_email="nora.kelly@example.com"
    )
    _, code = gift_cards.issue(tx, actor, issue)
    _book(tx, actor, departure, "Nora Kelly", 1, "external_paid", gift_card_code=code)


# Webhooks ----------------------------------------------------------------------------------------------------------

_ENDPOINTS = (
    ("calendar", "The guides' calendar", ("booking.confirmed", "booking.cancelled"), None),
    ("kitchen", "The kitchen, which takes one at a time", ("booking.created",), 1),
    ("gone", "Accounting, which has moved", ("booking.cancelled", "gift_card.redeemed"), None),
    ("newsletter", "The newsletter, switched off", ("customer.created",), None),
)
"""Endpoints of the receiver in `demo_app`. It refuses all to `gone`."""
_TURNS = 6
_CLAIMED_MAX = 1000


def _add_endpoints(tx: Tx, installation: Installation, organization: Organization) -> Caller:
    """Create the endpoints with a key that is revoked, and return its caller."""
    _, key = keys.create(tx, organization, name="webhooks of the demo", scopes=list(Scope), now=tx.now())
    caller = keys.identify(tx, key, installation)
    for name, description, types, max_per_second in _ENDPOINTS:
        fields = {
            "url": f"{_ANYWHERE}/demo/webhooks/{name}",
            "description": description,
            "event_types": [EventType(event_type) for event_type in types],
            "max_per_second": max_per_second,
        }
        request = WebhookEndpointCreate.model_validate(fields, context={"allow_http": True})
        webhooks.create(tx, caller, request, is_public=lambda _: True)
    keys.revoke(tx, caller.key.id, now=tx.now())
    return caller


def _disable_endpoint(tx: Tx, caller: Caller) -> None:
    endpoints = webhooks.find_all(tx, caller)["data"]
    endpoint_id = next(endpoint["id"] for endpoint in endpoints if endpoint["url"].endswith("/newsletter"))
    request = WebhookEndpointChange(status=WantedStatus.DISABLED)
    webhooks.change(tx, caller, endpoint_id, request, is_public=lambda _: True)


def _deliver(tx: Tx, installation: Installation) -> None:
    """Claim the due deliveries, and record the answers of the receiver without a request.

    Deliveries of gift cards are claimed again in the next turn, and are dead after the last; others keep their delays.
    """
    limits: Any = dict.fromkeys(("free", "slow_free", "per_endpoint"), _CLAIMED_MAX)
    claimed = webhooks.claim(tx, installation, in_flight={}, **limits)
    of_cards = [delivery.event_type.startswith("gift_card.") for delivery in claimed]
    for delays, is_card in ((WEBHOOK_WAITS_S, False), ((0,) * len(WEBHOOK_WAITS_S), True)):
        results = [_result(delivery) for delivery, is_one in zip(claimed, of_cards, strict=True) if is_one == is_card]
        webhooks.record(tx, results, retry_delays_s=delays)


def _result(claimed: ClaimedDelivery) -> DeliveryResult:
    if claimed.url.endswith("/gone"):
        return DeliveryResult(claimed, claimed.at, 31, 404, None, AttemptError.HTTP_STATUS)
    return DeliveryResult(claimed, claimed.at, 12, 204, None, None)
