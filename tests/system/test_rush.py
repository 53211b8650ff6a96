"""Many buyers at once, over real sockets: exactly the seats there are get sold, and every refusal tells the truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import pytest
from support.api.api import booking_body
from support.databases.databases import unbind
from support.serving.servers import Answer, Line, Service, at_once, new_world, posting, served_in_process

from booking_core.base.clock import to_datetime
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_server import app
from booking_server.execution import service as execution
from booking_server.execution.creations import Creations
from booking_server.transport.admission import Admission

pytestmark = pytest.mark.exhaustive(but="postgresql")
"""On SQLite one process writes, and `test_stampede` has a crowd there."""
BUYERS = 200
MIXED = [1 + number % 6 for number in range(BUYERS)]


@dataclass(frozen=True, slots=True)
class Purchase:
    """A party's request and its answer."""

    party: int
    answer: Answer


def buy(ports: Sequence[int], key: str, departure_id: str, parties: Sequence[int]) -> list[Purchase]:
    """Send the requests of all parties at the same moment, each on its own connection."""
    guests = [{"name": f"Buyer {number}", "email": f"buyer{number % 20}@example.com"} for number in range(len(parties))]
    asks = [
        posting("/bookings", booking_body(departure_id, count=party, customer=guest), f"rush-{departure_id}-{number}")
        for number, (party, guest) in enumerate(zip(parties, guests, strict=True))
    ]
    return [Purchase(*pair) for pair in zip(parties, at_once(ports, key, asks), strict=True)]


def check(purchases: Sequence[Purchase], seats: int) -> None:
    """Check that every answer is a sale or a refusal, no seat is sold twice, and each refusal names a number of seats
    that was true at some moment while it was being decided, and too small for the party."""
    answers = [purchase.answer for purchase in purchases]
    assert {answer.status for answer in answers} <= {201, 409}
    sold = sorted((purchase for purchase in purchases if purchase.answer.status == 201), key=_number)
    assert [_number(sale) for sale in sold] == list(range(1, len(sold) + 1))
    remaining = [seats, *(seats - count for count in accumulate(sale.party for sale in sold))]
    assert remaining[-1] >= 0
    for purchase in purchases:
        if purchase.answer.status == 409:
            refusal = purchase.answer.json()
            assert refusal["code"] == "insufficient_capacity"
            assert refusal["seats_available"] < purchase.party
            assert _was_true(refusal["seats_available"], purchase.answer, remaining, [sale.answer for sale in sold])


def _number(purchase: Purchase) -> int:
    return int(purchase.answer.json()["booking_number"])


def _was_true(claimed: int, refusal: Answer, remaining: Sequence[int], sold: Sequence[Answer]) -> bool:
    """Return True if so many seats were left after a sale that can have come before the refusal, its next one after."""
    return any(
        remaining[count] == claimed
        and (count == 0 or sold[count - 1].sent_at <= refusal.answered_at)
        and (count == len(sold) or sold[count].answered_at >= refusal.sent_at)
        for count in range(len(remaining))
    )


def seats_sold(purchases: Sequence[Purchase]) -> int:
    return sum(purchase.party for purchase in purchases if purchase.answer.status == 201)


def test_parties_of_one_to_six_are_refused_only_what_no_longer_fits(service: Service) -> None:
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=100)
        purchases = buy(service.ports, world.key(), departure, MIXED)
        check(purchases, 100)
        smallest_refused = min(purchase.party for purchase in purchases if purchase.answer.status == 409)
        assert 100 - seats_sold(purchases) < smallest_refused
        assert world.row(tables.departures, departure)["seats_taken"] == seats_sold(purchases)


def test_the_seats_of_a_cancellation_are_sold_once_more(service: Service) -> None:
    """Fifty try to buy a seat while the one who holds them all gives them back."""
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=5)
        key = world.key()
        (full,) = buy(service.ports, key, departure, [5])
        cancelling = posting(f"/bookings/{full.answer.json()['id']}/cancel", {}, "the-cancellation")
        buying = [posting("/bookings", booking_body(departure), f"again-{number:04}") for number in range(50)]
        cancelled, *answers = at_once(service.ports, key, [cancelling, *buying])
        assert cancelled.status == 200
        assert {answer.status for answer in answers} <= {201, 409}
        assert number_of(answers, 201) <= 5
        assert world.row(tables.departures, departure)["seats_taken"] == number_of(answers, 201)


def number_of(answers: Sequence[Answer], status: int) -> int:
    return sum(answer.status == status for answer in answers)


def test_availability_is_never_out_of_bounds_in_a_rush(service: Service) -> None:
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=20)
        today = to_datetime(world.clock()).date()

        async def watch(line: Line) -> list[Answer]:
            return [await line.get(f"/availability?from={today}") for _ in range(30)]

        async def buy_one(line: Line, number: int) -> list[Answer]:
            return [await line.post("/bookings", booking_body(departure), f"seen-{number:04}")]

        asks = [watch, *(partial(buy_one, number=number) for number in range(40))]
        pages, *answers = at_once(service.ports, world.key(), asks)
        watched = [page.json()["data"][0]["seats_available"] for page in pages]
        assert number_of([answer for (answer,) in answers], 201) == 20
        assert all(0 <= seats <= 20 for seats in watched)
        assert watched == sorted(watched, reverse=True)


def test_only_its_hold_books_a_held_seat_and_anybody_a_released(service: Service) -> None:
    """Ten holds are taken over twice each, ten are released, and eighty buyers want the remaining seats."""
    with new_world(service.url) as world:
        departure, key = world.departure(world.experience(), seats=30), world.key()
        hold = {"experience_date_id": departure, "seats": 1}
        asks = [posting("/holds", hold, f"rush-hold-{number:02}") for number in range(20)]
        hold_ids = [answer.json()["id"] for answer in at_once(service.ports, key, asks)]
        bodies = [booking_body(departure, hold_id=hold_id) for hold_id in hold_ids[:10] * 2]
        bodies += [booking_body(departure)] * 80
        asks = [posting("/bookings", body, f"rush-held-{number:03}") for number, body in enumerate(bodies)]
        asks += [partial(Line.delete, path=f"/holds/{hold_id}") for hold_id in hold_ids[10:]]
        answers = at_once(service.ports, key, asks)
        of_holds, others, released = answers[:20], answers[20:100], answers[100:]
        assert number_of(released, 204) == 10
        assert number_of(of_holds, 201) == 10
        refused = {response.json()["details"][0]["reason"] for response in of_holds if response.status == 409}
        assert refused == {"hold_booked"}
        assert {response.status for response in others} <= {201, 409}
        assert 10 <= number_of(others, 201) <= 20
        assert world.row(tables.departures, departure)["seats_taken"] == 10 + number_of(others, 201)


# The check can fail ----------------------------------------------------------------------------------------------


@pytest.mark.harmful
def test_without_both_guards_seats_are_oversold_and_the_check_fails(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service believes that there are always seats, and that no request has waited, however slow the machine is."""
    monkeypatch.setattr(departures, "seats_available", lambda total, sold, on_hold: 1_000_000)
    monkeypatch.setattr(execution, "Creations", partial(Creations, clock=lambda: 0.0))
    monkeypatch.setattr(app, "Admission", partial(Admission, clock=lambda: 0.0))
    with new_world(fresh_database_url) as world:
        departure, key = world.departure(world.experience(), seats=7), world.key()
        unbind(fresh_database_url)  # a column has no default either, so no departure can be made afterwards
        with served_in_process(fresh_database_url) as port:
            at_once([port], key, [partial(Line.get, path="/me")])  # the buyers do not wait for the look-up of the key
            purchases = buy([port], key, departure, [1] * 50)
        assert seats_sold(purchases) == 50
        with pytest.raises(AssertionError):
            check(purchases, 7)
        assert "no departure is sold beyond its highest capacity" in {finding.invariant for finding in world.examine()}
