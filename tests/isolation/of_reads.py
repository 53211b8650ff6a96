"""Misbehaviours by requests that read."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from support.operations import Operations

from booking_core.base import tokens
from booking_core.base.clock import system_clock
from booking_core.models.limits import LINES_MAX, MANIFEST_BOOKINGS_MAX
from isolation import bulk
from isolation.measuring import Misbehaviour
from isolation.processes import request
from isolation.world import Scene

CLIENTS = 24
_FAR_DAY = "2039-01-01"
_FAR = 2_177_496_000_000_000
"""Noon of that day, UTC."""


def _many_bookings(scene: Scene) -> None:
    """Make bookings of two experiences: confirmed bookings of one, and cancelled bookings of the other."""
    offender, count = scene.offender, scene.size(300_000, 60_000)
    over = {"status": "cancelled", "cancelled_at": system_clock()}
    other = offender.world.experience(slug="cancelled")
    departure = offender.world.departure(other, starts_at=_FAR)
    bulk.bookings(scene.url, offender.world, offender.departure, offender.experience, count // 2)
    bulk.bookings(scene.url, offender.world, departure, other, count // 2, **over)


def _some_bookings(scene: Scene) -> None:
    offender = scene.offender
    bulk.bookings(scene.url, offender.world, offender.departure, offender.experience, 1_000)


@contextmanager
def _rare_filters(scene: Scene) -> Iterator[None]:
    """List with combined filters: many bookings match each filter, and none matches all of them."""
    cancelled = bulk.value(scene.url, "SELECT id FROM experiences WHERE slug = 'cancelled'")
    rare = [
        f"/bookings?status=confirmed&experience_id={cancelled}",
        f"/bookings?status=cancelled&experience_id={scene.offender.experience}",
        f"/bookings?status=confirmed&departure_from={_FAR_DAY}",
    ]
    with scene.crowd([scene.get(path) for path in rare], CLIENTS):
        yield


def _many_gift_cards(scene: Scene) -> None:
    bulk.gift_cards(scene.url, scene.offender.world, scene.size(50_000, 30_000))


@contextmanager
def _gift_cards_by_status(scene: Scene) -> Iterator[None]:
    paths = ["/gift-cards?status=inactive", "/gift-cards?status=expired"]
    with scene.crowd([scene.get(path) for path in paths], CLIENTS):
        yield


def _many_of_one_customer(scene: Scene) -> None:
    offender = scene.offender
    made = Operations(offender.world).book(offender.departure, email="often@example.com", send_confirmation_email=False)
    owned = bulk.value(scene.url, f"SELECT customer_id FROM bookings WHERE id = '{made['id']}'")
    count = scene.size(100_000, 10_000)
    over = {"customer_id": str(owned), "guest_email": "often@example.com"}
    bulk.bookings(scene.url, offender.world, offender.departures[1], offender.experience, count, **over)


@contextmanager
def _of_one_customer(scene: Scene) -> Iterator[None]:
    """Book for one customer, and read the customer's bookings."""
    booking = (
        f'{{"experience_date_id": "{scene.offender.departure}", "guests": [{{"tier_id": "adult", "count": 1}}],'
        ' "customer": {"name": "Often Here", "email": "often@example.com"}, "payment": "pay_on_site",'
        ' "send_confirmation_email": false}'
    )
    requests = [
        scene.get("/customers?email=often@example.com"),
        scene.send("POST", "/bookings", booking.encode()),
        scene.get("/bookings?limit=100"),
    ]
    with scene.crowd(requests, 8, pause_s=0.02):
        yield


def _many_of_one_departure(scene: Scene) -> None:
    """Make a departure with as many bookings as a manifest holds, and one with more."""
    offender, most, more = scene.offender, MANIFEST_BOOKINGS_MAX, scene.size(100_000, 5_000)
    bulk.bookings(scene.url, offender.world, offender.departures[1], offender.experience, most)
    bulk.bookings(scene.url, offender.world, offender.departures[2], offender.experience, more)


@contextmanager
def _manifests(scene: Scene) -> Iterator[None]:
    paths = [f"/departures/{each}/manifest" for each in scene.offender.departures[1:3]]
    with scene.crowd([scene.get(path) for path in paths], 16):
        yield


def _many_events(scene: Scene) -> None:
    bulk.events(scene.url, scene.offender.world, scene.size(200_000, 5_000))


@contextmanager
def _poll_in_a_loop(scene: Scene) -> Iterator[None]:
    paths = ["/events?order=asc&limit=100", "/events?limit=1", "/events?order=asc&type=webhook.auto_disabled"]
    with scene.crowd([scene.get(path) for path in paths], 16):
        yield


@contextmanager
def _dump(scene: Scene) -> Iterator[None]:
    with scene.crowd([scene.get("/bookings?limit=100")], 16):
        yield


@contextmanager
def _guess_keys(scene: Scene) -> Iterator[None]:
    """Guess one key after the other, each client from a different address."""
    guesses = [request("GET", "/api/v1/me", tokens.new_api_key()) for _ in range(2_000)]
    with scene.crowd(guesses, 50, addresses=50):
        yield


@contextmanager
def _quotes(scene: Scene) -> Iterator[None]:
    lines = [{"tier_id": "adult", "count": 1}] * LINES_MAX
    orders = [{"experience_date_id": each, "guests": lines} for each in scene.offender.departures[:8]]
    asked = [scene.send("POST", "/bookings/quote", json.dumps(order).encode()) for order in orders]
    with scene.crowd(asked, CLIENTS):
        yield


MISBEHAVIOURS = (
    Misbehaviour("rare-filter", "24 clients ask for what none of 300,000 bookings is", _rare_filters, _many_bookings),
    Misbehaviour(
        "gift-card-status",
        "24 clients filter 50,000 gift cards by a status that none has",
        _gift_cards_by_status,
        _many_gift_cards,
    ),
    Misbehaviour(
        "one-customer",
        "a customer with 100,000 bookings is read, and books again and again",
        _of_one_customer,
        _many_of_one_customer,
    ),
    Misbehaviour(
        "manifest",
        "16 clients read the manifests of departures with 1,000 and 100,000 bookings in a loop",
        _manifests,
        _many_of_one_departure,
    ),
    Misbehaviour("quotes", "24 clients quote the longest order in a loop", _quotes),
    Misbehaviour("polling", "16 followers poll the feed in a loop", _poll_in_a_loop, _many_events),
    Misbehaviour("dump", "16 clients read whole pages of bookings in a loop", _dump, _some_bookings),
    Misbehaviour("invalid-keys", "50 addresses guess keys in a loop", _guess_keys),
)
