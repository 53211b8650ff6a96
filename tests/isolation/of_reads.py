"""Misbehaviours by requests that read."""

from collections.abc import Iterator
from contextlib import contextmanager

from support.operations import Operations

from booking_core import tokens
from isolation import bulk
from isolation.measuring import Misbehaviour
from isolation.processes import request
from isolation.world import Scene

CLIENTS = 24


def _many_bookings(scene: Scene) -> None:
    offender = scene.offender
    count = scene.size(300_000, 60_000)
    bulk.bookings(scene.url, offender.world, offender.departure, offender.experience, count)


@contextmanager
def _rare_filters(scene: Scene) -> Iterator[None]:
    rare = [
        "/bookings?departure_from=2039-01-01",
        f"/bookings?experience_id={tokens.new_id()}&departure_from=2039-01-01",
        "/bookings?updated_since=2039-01-01T00:00:00Z",
        f"/bookings?status=confirmed&experience_id={scene.offender.world.experience()}",
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
    count = scene.size(100_000, 30_000)
    over = {"customer_id": str(owned), "guest_email": "often@example.com"}
    bulk.bookings(scene.url, offender.world, offender.departures[1], offender.experience, count, **over)


@contextmanager
def _of_one_customer(scene: Scene) -> Iterator[None]:
    """Book for the customer, and read what there is of them."""
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


def _many_events(scene: Scene) -> None:
    bulk.events(scene.url, scene.offender.world, scene.size(200_000, 10_000))


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
    """Guess one key after the other, each client from an address of its own."""
    guesses = [request("GET", "/api/v1/me", tokens.new_api_key()) for _ in range(2_000)]
    with scene.crowd(guesses, 50, addresses=50):
        yield


MISBEHAVIOURS = (
    Misbehaviour(
        "rare-filter",
        "24 clients ask for what none of 300,000 bookings is",
        _rare_filters,
        _many_bookings,
    ),
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
    Misbehaviour("polling", "16 followers poll the feed in a loop", _poll_in_a_loop, _many_events),
    Misbehaviour("dump", "16 clients read whole pages of bookings in a loop", _dump, _many_bookings),
    Misbehaviour("invalid-keys", "50 addresses guess keys in a loop", _guess_keys),
)
