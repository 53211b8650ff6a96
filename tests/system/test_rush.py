"""Many buyers at once, over real sockets: exactly the seats there are get sold, and every refusal tells the truth."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pytest
from support.api import booking_body
from support.databases import drop_check
from support.servers import Answer, Line, Service, lines, new_world, served_in_process

from booking_core.base.clock import DAY, to_datetime
from booking_core.catalogue import departures
from booking_core.db import tables

BUYERS = 200
MIXED = [1 + number % 6 for number in range(BUYERS)]


@dataclass(frozen=True, slots=True)
class Purchase:
    """A party's request and its answer."""

    party: int
    answer: Answer


def buy(ports: Sequence[int], key: str, departure_id: str, parties: Sequence[int]) -> list[Purchase]:
    """Send the requests of all parties at the same moment, each on its own connection."""

    async def one(line: Line, number: int, party: int, start: asyncio.Barrier) -> Purchase:
        guest = {"name": f"Buyer {number}", "email": f"buyer{number % 20}@example.com"}
        body = booking_body(departure_id, count=party, customer=guest)
        await start.wait()
        return Purchase(party, await line.post("/bookings", body, f"rush-{departure_id}-{number}"))

    async def all_of_them() -> list[Purchase]:
        start = asyncio.Barrier(len(parties))
        async with lines(ports, key, len(parties)) as opened:
            buyers = (one(line, number, parties[number], start) for number, line in enumerate(opened))
            return await asyncio.gather(*buyers)

    return asyncio.run(all_of_them())


def check(purchases: Sequence[Purchase], seats: int) -> None:
    """Check that every answer is a sale or a refusal, no seat is sold twice, and each refusal names a number of seats
    that was true at some moment while it was being decided, and too small for the party."""
    answers = [purchase.answer for purchase in purchases]
    assert {answer.status for answer in answers} <= {201, 409}
    sold = sorted((each for each in purchases if each.answer.status == 201), key=_number)
    assert [_number(each) for each in sold] == list(range(1, len(sold) + 1))
    left = [seats, *(seats - taken for taken in accumulate(each.party for each in sold))]
    assert left[-1] >= 0
    for purchase in purchases:
        if purchase.answer.status == 409:
            refusal = purchase.answer.json()
            assert refusal["code"] == "insufficient_capacity"
            assert refusal["seats_available"] < purchase.party
            assert _was_true(refusal["seats_available"], purchase.answer, left, [each.answer for each in sold])


def _number(purchase: Purchase) -> int:
    return int(purchase.answer.json()["booking_number"])


def _was_true(claimed: int, refusal: Answer, left: Sequence[int], sold: Sequence[Answer]) -> bool:
    """Return True if so many seats were left after a sale that can have come before the refusal, its next one after."""
    return any(
        left[done] == claimed
        and (done == 0 or sold[done - 1].sent_at <= refusal.answered_at)
        and (done == len(sold) or sold[done].answered_at >= refusal.sent_at)
        for done in range(len(left))
    )


def seats_sold(purchases: Sequence[Purchase]) -> int:
    return sum(purchase.party for purchase in purchases if purchase.answer.status == 201)


@pytest.mark.parametrize("seats", [50, 7, 1])
def test_of_200_buyers_exactly_as_many_succeed_as_there_are_seats(service: Service, seats: int) -> None:
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=seats)
        purchases = buy(service.ports, world.key(), departure, [1] * BUYERS)
        check(purchases, seats)
        assert seats_sold(purchases) == seats
        assert {each.answer.json()["seats_available"] for each in purchases if each.answer.status == 409} == {0}
        assert world.row(tables.departures, departure)["seats_taken"] == seats
        assert world.examine() == []


def test_parties_of_one_to_six_are_refused_only_what_no_longer_fits(service: Service) -> None:
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=100)
        purchases = buy(service.ports, world.key(), departure, MIXED)
        check(purchases, 100)
        smallest_refused = min(each.party for each in purchases if each.answer.status == 409)
        assert 100 - seats_sold(purchases) < smallest_refused
        assert world.row(tables.departures, departure)["seats_taken"] == seats_sold(purchases)
        assert world.examine() == []


def test_the_seats_of_a_cancellation_are_sold_once_more(service: Service) -> None:
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=5)
        key = world.key()
        (full,) = buy(service.ports, key, departure, [5])
        purchases = cancel_and_buy(service.ports, key, departure, full.answer.json()["id"])
        assert {purchase.answer.status for purchase in purchases} <= {201, 409}
        assert seats_sold(purchases) <= 5
        assert world.row(tables.departures, departure)["seats_taken"] == seats_sold(purchases)
        assert world.examine() == []


def cancel_and_buy(ports: Sequence[int], key: str, departure_id: str, booking_id: str) -> list[Purchase]:
    """Fifty try to buy a seat while the one who holds them all gives them back."""

    async def one(line: Line, number: int, start: asyncio.Barrier) -> Purchase | None:
        await start.wait()
        if number == 0:
            cancelled = await line.post(f"/bookings/{booking_id}/cancel", {}, "the-cancellation")
            assert cancelled.status == 200
            return None
        return Purchase(1, await line.post("/bookings", booking_body(departure_id), f"again-{number:04}"))

    async def all_of_them() -> list[Purchase]:
        start = asyncio.Barrier(51)
        async with lines(ports, key, 51) as opened:
            done = await asyncio.gather(*(one(line, number, start) for number, line in enumerate(opened)))
        return [purchase for purchase in done if purchase]

    return asyncio.run(all_of_them())


def test_fifty_first_bookings_with_one_new_address_bring_one_customer(service: Service) -> None:
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=50)
        ada = {"name": "Ada Lovelace", "email": "ada@example.com"}

        async def one(line: Line, number: int, start: asyncio.Barrier) -> Answer:
            await start.wait()
            return await line.post("/bookings", booking_body(departure, customer=ada), f"first-{number:04}")

        async def all_of_them() -> list[Answer]:
            start = asyncio.Barrier(50)
            async with lines(service.ports, world.key(), 50) as opened:
                return await asyncio.gather(*(one(line, number, start) for number, line in enumerate(opened)))

        answers = asyncio.run(all_of_them())
        assert [answer.status for answer in answers] == [201] * 50
        assert sorted(answer.json()["booking_number"] for answer in answers) == list(range(1, 51))
        assert len(world.rows(tables.customers)) == 1
        types = [event["type"] for event in world.rows(tables.events)]
        assert (types.count("customer.created"), types.count("booking.created")) == (1, 50)
        assert world.examine() == []


def test_availability_is_never_out_of_bounds_in_a_rush(service: Service) -> None:
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=20)
        key, today = world.key(), to_datetime(world.clock()).date()

        async def shown(line: Line) -> list[int]:
            pages = [(await line.get(f"/availability?from={today}")).json() for _ in range(30)]
            return [page["data"][0]["seats_available"] for page in pages]

        async def one(line: Line, number: int) -> Answer:
            return await line.post("/bookings", booking_body(departure), f"seen-{number:04}")

        async def all_of_them() -> tuple[list[int], list[Any]]:
            async with lines(service.ports, key, 41) as (watching, *buying):
                watched, *answers = await asyncio.gather(
                    shown(watching), *(one(line, number) for number, line in enumerate(buying))
                )
                return watched, answers

        watched, answers = asyncio.run(all_of_them())
        assert sum(answer.status == 201 for answer in answers) == 20
        assert all(0 <= seats <= 20 for seats in watched)
        assert watched == sorted(watched, reverse=True)


def test_held_seats_are_booked_by_their_holds_alone_and_released_ones_by_anybody(service: Service) -> None:
    """Ten holds are taken over twice each, ten are released, and eighty buyers want the remaining seats."""
    with new_world(service.url) as world:
        departure = world.departure(world.experience(), seats=30)
        key = world.key()

        async def all_of_them() -> tuple[list[Answer], list[Answer]]:
            async with lines(service.ports, key, 110) as opened:
                hold = {"experience_date_id": departure, "seats": 1}
                made = [await opened[0].post("/holds", hold, f"rush-hold-{number:02}") for number in range(20)]
                held = [each.json()["id"] for each in made]
                bodies = [booking_body(departure, hold_id=each) for each in held[:10] * 2]
                bodies += [booking_body(departure)] * 80
                start = asyncio.Barrier(110)

                async def book(line: Line, number: int) -> Answer:
                    await start.wait()
                    return await line.post("/bookings", bodies[number], f"rush-held-{number:03}")

                async def release(line: Line, hold_id: str) -> None:
                    await start.wait()
                    assert (await line.delete(f"/holds/{hold_id}")).status == 204

                released = (release(line, each) for line, each in zip(opened[100:], held[10:], strict=True))
                answers = await asyncio.gather(
                    *(book(line, number) for number, line in enumerate(opened[:100])), *released
                )
                bought = [each for each in answers if each]
                return bought[:20], bought[20:]

        of_holds, others = asyncio.run(all_of_them())
        assert [each.status for each in of_holds].count(201) == 10
        refused = {each.json()["details"][0]["reason"] for each in of_holds if each.status == 409}
        assert refused == {"hold_booked"}
        assert {each.status for each in others} <= {201, 409}
        assert 10 <= sum(each.status == 201 for each in others) <= 20
        taken = world.row(tables.departures, departure)["seats_taken"]
        assert taken == 10 + sum(each.status == 201 for each in others)
        assert world.examine() == []


def test_moves_quotes_and_bookings_of_two_departures_never_sell_a_seat_too_many(service: Service) -> None:
    """Thirty bookings want to move where fifty buyers book, thirty others want their seats, twenty only request a
    preview."""
    with new_world(service.url) as world:
        experience, key = world.experience(), world.key()
        left = world.departure(experience, seats=35)
        wanted = world.departure(experience, seats=30, starts_at=world.clock() + 3 * DAY)

        async def all_of_them() -> list[Answer]:
            async with lines(service.ports, key, 130) as opened:
                made = [await opened[0].post("/bookings", booking_body(left), f"rush-move-{n:02}") for n in range(30)]
                target = {"departure_id": wanted}
                sent: list[tuple[str, dict[str, Any]]] = [
                    *((f"/bookings/{each.json()['id']}/reschedule", target) for each in made),
                    *[("/bookings", booking_body(wanted))] * 50,
                    *[("/bookings", booking_body(left))] * 30,
                    *[("/bookings/quote", {"experience_date_id": wanted, "guests": [{"tier_id": "adult", "count": 1}]})]
                    * 20,
                ]
                start = asyncio.Barrier(len(sent))

                async def ask(line: Line, number: int, path: str, body: dict[str, Any]) -> Answer:
                    await start.wait()
                    return await line.post(path, body, f"rush-moving-{number:03}")

                asked = (ask(line, n, *each) for n, (line, each) in enumerate(zip(opened, sent, strict=True)))
                return await asyncio.gather(*asked)

        answers = asyncio.run(all_of_them())
        moved, bought, bought_instead, quoted = answers[:30], answers[30:80], answers[80:110], answers[110:]
        assert {each.status for each in moved} <= {200, 409}
        assert {each.status for each in (*bought, *bought_instead)} <= {201, 409}
        assert {each.status for each in quoted} == {200}
        moves, sales, others = (
            sum(each.status in (200, 201) for each in part) for part in (moved, bought, bought_instead)
        )
        assert world.row(tables.departures, wanted)["seats_taken"] == moves + sales == 30
        assert world.row(tables.departures, left)["seats_taken"] == 30 - moves + others <= 35
        assert world.examine() == []


# The check can fail ----------------------------------------------------------------------------------------------


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service believes that there are always seats."""
    monkeypatch.setattr(departures, "seats_available", lambda total, taken, held: 1_000_000)


@pytest.mark.usefixtures("unguarded")
def test_without_its_guard_the_table_still_refuses_but_the_check_fails(fresh_database_url: str) -> None:
    with new_world(fresh_database_url) as world:
        departure = world.departure(world.experience(), seats=7)
        with served_in_process(fresh_database_url) as port:
            purchases = buy([port], world.key(), departure, [1] * BUYERS)
        assert {purchase.answer.status for purchase in purchases} == {201, 500}
        with pytest.raises(AssertionError):
            check(purchases, 7)
        assert seats_sold(purchases) == 7
        assert world.examine() == []


@pytest.mark.harmful
@pytest.mark.usefixtures("unguarded")
def test_without_both_guards_seats_are_oversold_and_the_check_fails(fresh_database_url: str) -> None:
    drop_check(fresh_database_url, "departures", "ck_departures_seats_taken")
    with new_world(fresh_database_url) as world:
        departure = world.departure(world.experience(), seats=7)
        with served_in_process(fresh_database_url) as port:
            purchases = buy([port], world.key(), departure, [1] * BUYERS)
        assert seats_sold(purchases) == BUYERS
        with pytest.raises(AssertionError):
            check(purchases, 7)
        assert "no departure is sold beyond its highest capacity" in {found.invariant for found in world.examine()}
