"""The `object` of an event is the resource as the API returns it: compared key by key, for each type of event.

Two exceptions are in the contract: `manage_url` is null, and gift cards have the form of the list.
"""

from collections.abc import Callable
from typing import Any

import pytest
from support.api.api import Api
from support.world.hooks import REDEEMED, Hooks, queue_rows
from support.world.operations import Operations
from support.world.world import DAY, HOUR

from booking_core import bookings
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.models.bookings import PaymentMode
from booking_core.models.events import EventType

pytestmark = [pytest.mark.one_database, pytest.mark.usefixtures("public_addresses")]
Resource = dict[str, Any]


class Market:
    """An organization with a departure, and the calls that cause its events. Each returns the resource as answered."""

    def __init__(self, api: Api) -> None:
        self.api, self.world = api, api.world
        self.ops, self.hooks = Operations(api.world), Hooks(api.world)
        self.departure = self.world.departure(self.world.experience(), starts_at=self.world.clock() + 9 * DAY)

    def booking(self, booking_id: str) -> Resource:
        return dict(self.api.get(f"/bookings/{booking_id}").json())

    def booked(self) -> Resource:
        return dict(self.api.book(self.departure, count=2).json())

    def cancelled(self) -> Resource:
        return dict(self.api.cancel(self.booked()["id"]).json())

    def paid_by_card(self) -> Resource:
        return self.ops.pay(self.ops.check_out(self.departure, 2)["id"])

    def confirmed_by_card(self) -> Resource:
        return self.booking(self.paid_by_card()["id"])

    def moved(self) -> Resource:
        target = self.world.departure(self.world.experience(), starts_at=self.world.clock() + 4 * DAY)
        path = f"/bookings/{self.booked()['id']}/reschedule"
        return dict(self.api.post(path, {"departure_id": target}).json()["booking"])

    def checked_in(self) -> Resource:
        return dict(self.api.post(f"/bookings/{self.booked()['id']}/check-in", {}).json())

    def guest_changed(self) -> Resource:
        body = {"email": "grace@example.com", "note": "Late"}
        return dict(self.api.post(f"/bookings/{self.booked()['id']}/guest", body).json())

    def party_changed(self) -> Resource:
        body = {"guests": [{"tier_id": "adult", "count": 1}]}
        return dict(self.api.post(f"/bookings/{self.paid_by_card()['id']}/party", body).json()["booking"])

    def partly_paid_by_hand(self) -> Resource:
        booking_id = self.ops.book(self.departure, payment=PaymentMode.PAY_ON_SITE)["id"]
        self.ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking_id, amount_minor=1_000))
        return self.booking(booking_id)

    def refunded_elsewhere(self) -> Resource:
        booking_id = self.paid_by_card()["id"]
        self.ops.act(lambda tx, actor: bookings.record_elsewhere(tx, actor, booking_id, 1_000, None))
        return self.booking(booking_id)

    def refunded_elsewhere_wholly(self) -> Resource:
        booking_id = self.paid_by_card()["id"]
        self.ops.act(lambda tx, actor: bookings.record_elsewhere(tx, actor, booking_id, 178_000, None))
        return self.booking(booking_id)

    def sold(self) -> Resource:
        self.hooks.endpoint(EventType.DEPARTURE_UPDATED)
        self.booked()
        self.world.database.write(lambda tx: departures.announce(tx, self.world.org, [self.departure]))
        return dict(self.api.get(f"/departures/{self.departure}").json())

    def customer(self) -> Resource:
        guest = {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"}
        return dict(self.api.post("/customers", guest).json())

    def renamed(self) -> Resource:
        customer_id = self.customer()["id"]
        self.ops.update_customer(customer_id, name="Ada King")
        return dict(self.api.get(f"/customers/{customer_id}").json())

    def card(self) -> Resource:
        (listed,) = self.api.get("/gift-cards").json()["data"]
        return dict(listed)

    def issued(self) -> Resource:
        self.ops.issue(60_000, recipient_name="Grace Hopper", recipient_email="grace@example.com")
        return self.card()

    def redeemed(self) -> Resource:
        _, code = self.ops.issue(60_000)
        self.ops.check_out(self.departure, gift_card_code=code)
        return self.card()

    def restored(self) -> Resource:
        _, code = self.ops.issue(60_000)
        self.api.cancel(self.ops.check_out(self.departure, gift_card_code=code)["id"])
        return self.card()

    def endpoint(self, endpoint_id: str) -> Resource:
        return dict(self.api.get(f"/webhooks/{endpoint_id}").json())

    def failing(self, hours: int = 2, *, attempts: int = 0) -> Resource:
        """Let an endpoint that failed five times fail once more, so many hours after its last success."""
        endpoint_id = self.hooks.endpoint(REDEEMED, consecutive_failures=5, description="The calendar")
        self.world.clock.advance(hours * HOUR)
        self.hooks.publish()
        queue_rows(self.world)
        self.world.change(tables.deliveries, self.hooks.delivery()["id"], attempt_count=attempts)
        self.hooks.fail(*(delivery for delivery in self.hooks.claim(free=999) if delivery.endpoint_id == endpoint_id))
        return self.endpoint(endpoint_id)

    def dead(self) -> Resource:
        return self.failing(hours=0, attempts=5)

    def disabled(self) -> Resource:
        return self.failing(hours=73)

    def enabled(self) -> Resource:
        path = f"/webhooks/{self.hooks.endpoint()}"
        self.api.call("PATCH", path, json={"status": "disabled"})
        return dict(self.api.call("PATCH", path, json={"status": "enabled", "description": "The calendar"}).json())

    def rotated(self) -> Resource:
        path = f"/webhooks/{self.hooks.endpoint()}"
        rotated = dict(self.api.call("POST", f"{path}/rotate-secret").json())
        del rotated["secret"]  # only the answer to the rotation has it
        return rotated


CAUSES: list[tuple[EventType, Callable[[Market], Resource]]] = [
    (EventType.BOOKING_CREATED, Market.booked),
    (EventType.BOOKING_CONFIRMED, Market.booked),
    (EventType.BOOKING_CONFIRMED, Market.confirmed_by_card),
    (EventType.BOOKING_CANCELLED, Market.cancelled),
    (EventType.BOOKING_RESCHEDULED, Market.moved),
    (EventType.BOOKING_UPDATED, Market.checked_in),
    (EventType.BOOKING_UPDATED, Market.guest_changed),
    (EventType.BOOKING_UPDATED, Market.party_changed),
    (EventType.BOOKING_UPDATED, Market.partly_paid_by_hand),
    (EventType.BOOKING_REFUNDED, Market.refunded_elsewhere),
    (EventType.BOOKING_REFUNDED, Market.refunded_elsewhere_wholly),
    (EventType.DEPARTURE_UPDATED, Market.sold),
    (EventType.CUSTOMER_CREATED, Market.customer),
    (EventType.CUSTOMER_UPDATED, Market.renamed),
    (EventType.GIFT_CARD_ISSUED, Market.issued),
    (EventType.GIFT_CARD_REDEEMED, Market.redeemed),
    (EventType.GIFT_CARD_RESTORED, Market.restored),
    (EventType.WEBHOOK_FAILING, Market.failing),
    (EventType.WEBHOOK_AUTO_DISABLED, Market.disabled),
    (EventType.WEBHOOK_ENABLED, Market.enabled),
    (EventType.WEBHOOK_SECRET_ROTATED, Market.rotated),
    (EventType.WEBHOOK_DELIVERY_DEAD, Market.dead),
]


def test_every_type_of_event_about_a_resource_is_compared() -> None:
    assert {kind for kind, _ in CAUSES} == set(EventType) - {EventType.PING}  # a ping is about no resource


@pytest.mark.parametrize(("kind", "cause"), CAUSES, ids=[f"{kind}-{cause.__name__}" for kind, cause in CAUSES])
def test_the_object_of_an_event_is_the_resource_as_answered(
    api: Api, kind: EventType, cause: Callable[[Market], Resource]
) -> None:
    answered = cause(Market(api))
    (event,) = api.get("/events", type=kind.value).json()["data"]
    expected = answered | {"manage_url": None} if kind.startswith("booking.") else answered
    assert event["data"]["object"] == expected
    assert list(event["data"]["object"]) == list(expected)


BEFORE: list[tuple[Callable[[Market], Resource], set[str]]] = [
    (Market.moved, {"experience", "departure", "cancellation"}),
    (Market.checked_in, {"checked_in_at"}),
    (Market.guest_changed, {"customer", "note"}),
    (Market.party_changed, {"guests", "totals", "cancellation"}),
    (Market.partly_paid_by_hand, {"cancellation"}),
    (Market.refunded_elsewhere, {"payment", "cancellation"}),
    (Market.refunded_elsewhere_wholly, {"payment", "cancellation"}),
]


@pytest.mark.parametrize(("cause", "fields"), BEFORE, ids=[cause.__name__ for cause, _ in BEFORE])
def test_changes_have_the_terms_of_a_cancellation_before_them(
    api: Api, cause: Callable[[Market], Resource], fields: set[str]
) -> None:
    cause(Market(api))
    confirmed, changed = api.get("/events", type="booking.*", order="asc").json()["data"][1:]
    assert changed["data"]["changes"] == {name: confirmed["data"]["object"][name] for name in fields}
