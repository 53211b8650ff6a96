"""Bookings that are created together have the same results as one by one, in order."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
from support.world.creating import create, created
from support.world.world import DAY, HOUR, World

from booking_core import bookings
from booking_core.base.errors import BookingError, IdempotencyInProgress, IdempotencyKeyReused
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.records import idempotency
from booking_core.records.idempotency import Answer

FULL = (409, "insufficient_capacity")


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=12)


def outcomes(answers: Sequence[Answer | BookingError]) -> list[tuple[int, Any]]:
    """Return the status of each answer, and the booking's number or the refusal's code."""
    bodies = [orjson.loads(answer.body) for answer in answers]
    numbers_or_codes = [body.get("booking_number") or body["code"] for body in bodies]
    return [(answer.status, outcome) for answer, outcome in zip(answers, numbers_or_codes, strict=True)]


def guest(number: int) -> dict[str, str]:
    return {"name": f"Guest {number}", "email": f"guest{number}@example.com"}


def test_an_empty_batch_creates_nothing(world: World) -> None:
    assert created(world.database, []) == []


def test_a_batch_is_numbered_in_its_order(world: World, departure: str) -> None:
    creates = [create(world, departure, f"in-order-{n}", customer=guest(n)) for n in range(12)]
    assert outcomes(created(world.database, creates)) == [(201, n) for n in range(1, 13)]
    events = sorted(world.rows(tables.events), key=lambda event: event["sequence"])
    types = ["customer.created", "booking.created", "booking.confirmed"]
    assert [event["type"] for event in events] == types * 12
    assert [event["sequence"] for event in events] == list(range(1, 37))
    assert world.row(tables.departures, departure)["seats_taken"] == 12


def test_each_is_decided_on_the_seats_left_by_the_one_before(world: World, departure: str) -> None:
    creates = [create(world, departure, f"party-{n:03}", count=count) for n, count in enumerate([5, 6, 3, 1, 1])]
    answers = created(world.database, creates)
    assert outcomes(answers) == [(201, 1), (201, 2), FULL, (201, 3), FULL]
    seats = [orjson.loads(answer.body).get("seats_available") for answer in answers]
    assert seats == [None, None, 1, None, 0]
    assert world.row(tables.departures, departure)["seats_taken"] == 12


def test_a_refused_creation_takes_no_number_and_stores_only_its_answer(world: World, departure: str) -> None:
    bad = [
        create(world, "00000000-0000-4000-8000-000000000000", "bad-key-1"),
        create(world, departure, "bad-key-2", guests=[{"tier_id": "nobody", "count": 1}]),
        create(world, departure, "bad-key-3", count=13),
    ]
    good = [create(world, departure, f"good-key-{n}") for n in range(2)]
    answers = created(world.database, [bad[0], good[0], bad[1], bad[2], good[1]])
    expected = [(404, "not_found"), (201, 1), (422, "validation_failed"), FULL, (201, 2)]
    assert outcomes(answers) == expected
    assert len(world.rows(tables.bookings)) == 2
    assert len(world.rows(tables.idempotency)) == 5


def test_one_address_in_a_batch_is_one_customer_in_any_case(world: World, departure: str) -> None:
    addresses = ["ada@example.com", "ADA@example.com", "grace@example.com", "Ada@Example.Com"]
    creates = [
        create(world, departure, f"address-{n}", customer={"name": f"Name {n}", "email": email})
        for n, email in enumerate(addresses)
    ]
    created(world.database, creates)
    customers = world.rows(tables.customers)
    assert sorted(row["name"] for row in customers) == ["Name 0", "Name 2"]
    by_number = sorted(world.rows(tables.bookings), key=lambda row: row["booking_number"])
    assert [row["guest_email"] for row in by_number] == addresses
    assert len({row["customer_id"] for row in by_number}) == 2
    assert [event["type"] for event in world.rows(tables.events)].count("customer.created") == 2


def test_a_new_guest_may_stand_behind_a_known_one(world: World, departure: str) -> None:
    """Write the new customer before both bookings: on SQLite the tables are written one after the other."""
    created(world.database, [create(world, departure, "known-guest-0")])
    creates = [create(world, departure, f"known-guest-{n}", customer=guest(n)) for n in (1, 2)]
    batch = [create(world, departure, "known-guest-3"), *creates]
    assert outcomes(created(world.database, batch)) == [(201, 2), (201, 3), (201, 4)]


def test_organizations_in_one_batch_do_not_touch_each_other(world: World, new_world: Callable[..., World]) -> None:
    other = new_world(timezone="Asia/Tokyo")
    departure = world.departure(world.experience(), seats=1)
    other_departure = other.departure(other.experience(), seats=1)
    batch = [
        create(world, departure, "same-key-in-both"),
        create(other, other_departure, "same-key-in-both"),
        create(world, other_departure, "not-our-departure"),
        create(other, other_departure, "no-seat-is-left"),
    ]
    answers = created(world.database, batch)
    assert outcomes(answers) == [(201, 1), (201, 1), (404, "not_found"), FULL]
    for tenant in (world, other):
        assert len(tenant.rows(tables.bookings)) == 1


def test_several_departures_of_one_batch_keep_their_own_seats(world: World) -> None:
    experience = world.experience()
    several = [world.departure(experience, seats=n, starts_at=world.clock() + n * DAY) for n in (1, 2, 3)]
    creates = [create(world, several[n % 3], f"several-{n:02}") for n in range(12)]
    assert [status for status, _ in outcomes(created(world.database, creates))].count(201) == 6
    assert [world.row(tables.departures, departure)["seats_taken"] for departure in several] == [1, 2, 3]


# The same key twice ----------------------------------------------------------------------------------------------


def test_a_key_twice_in_a_batch_is_one_booking_and_its_replay(world: World, departure: str) -> None:
    creates = [create(world, departure, key) for key in ("twice-in-one", "another-key", "twice-in-one")]
    first, _, again = created(world.database, creates)
    assert (first.status, first.replayed) == (201, False)
    assert again == Answer(201, first.body, replayed=True)
    assert len(world.rows(tables.bookings)) == len(world.rows(tables.idempotency)) == 2


def test_the_same_key_with_another_body_in_a_batch_is_a_reuse(world: World, departure: str) -> None:
    first, again = created(
        world.database, [create(world, departure, "reused-in-one"), create(world, departure, "reused-in-one", count=2)]
    )
    assert outcomes([first]) == [(201, 1)]
    assert isinstance(again, IdempotencyKeyReused)
    assert len(world.rows(tables.bookings)) == 1


def test_a_refusal_is_replayed_within_a_batch_too(world: World, departure: str) -> None:
    creates = [create(world, departure, "refused-twice", count=13) for _ in range(2)]
    first, again = created(world.database, creates)
    assert again == Answer(409, first.body, replayed=True)
    assert len(world.rows(tables.idempotency)) == 1


def test_a_reuse_in_a_batch_does_not_hide_the_replay_behind_it(world: World, departure: str) -> None:
    (first,) = created(world.database, [create(world, departure, "known-key-1")])
    reused, replayed = created(
        world.database, [create(world, departure, "known-key-1", count=2), create(world, departure, "known-key-1")]
    )
    assert isinstance(reused, IdempotencyKeyReused)
    assert replayed == Answer(201, first.body, replayed=True)


@pytest.mark.usefixtures("postgresql_only")
@pytest.mark.parametrize("is_booked", [False, True], ids=["before its departure is locked", "after it"])
def test_a_key_in_use_is_refused_without_a_wait_for_the_departure(
    world: World, departure: str, new_world: Callable[..., World], is_booked: bool
) -> None:
    neighbour, free_departure = world, departure
    if is_booked:
        neighbour = new_world()
        free_departure = neighbour.departure(neighbour.experience())
    creates = [create(world, departure, "held-key-1"), create(neighbour, free_departure, "free-key-1")]
    with world.database.writing() as holder:
        assert idempotency.try_locks(holder, [(world.org, "held-key-1")]) == [True]
        if is_booked:
            bookings.create_many(holder, creates[:1])
        in_progress, free = created(world.database, creates)
    assert isinstance(in_progress, IdempotencyInProgress)
    assert outcomes([free]) == [(201, 1)]


# The order of refusals (decision B4) -----------------------------------------------------------------------------


WRONG_IN_EVERY_WAY = {"guests": [{"tier_id": "nobody", "count": 99}]}


@pytest.mark.parametrize(
    ("columns", "over", "reason"),
    [
        ({"status": "cancelled", "starts_at": 1}, WRONG_IN_EVERY_WAY, "departure_cancelled"),
        ({"status": "closed", "starts_at": 1}, WRONG_IN_EVERY_WAY, "departure_closed"),
        ({"starts_at": 1}, WRONG_IN_EVERY_WAY, "departure_started"),
        ({}, WRONG_IN_EVERY_WAY, "unknown_tier"),
        ({}, {"count": 99, "add_ons": [{"id": "yacht", "count": 1}]}, "unknown_add_on"),
    ],
)
def test_the_departure_is_judged_first_then_the_lines_then_the_seats(
    world: World, columns: dict[str, Any], over: dict[str, Any], reason: str
) -> None:
    departure = world.departure(world.experience(), seats=1, **columns)
    (answer,) = created(world.database, [create(world, departure, "judged-in-order", **over)])
    assert orjson.loads(answer.body)["reasons"] == [reason]


def test_a_hold_counts_to_the_microsecond_and_once(world: World, departure: str) -> None:
    expires_at = world.clock() + HOUR
    world.insert(tables.holds, departure_id=departure, seats=12, expires_at=expires_at, created_at=0)
    world.clock.at = expires_at - 1
    assert outcomes(created(world.database, [create(world, departure, "hold-is-live")])) == [FULL]
    world.clock.at = expires_at
    assert outcomes(created(world.database, [create(world, departure, "hold-is-over", count=12)])) == [(201, 1)]


# A batch that cannot be written ----------------------------------------------------------------------------------


def test_a_batch_that_fails_leaves_no_gap(world: World, departure: str) -> None:
    """The numbers were taken already when the writing fails."""

    def fail(text: str) -> None:
        if "INSERT INTO idempotency" in text:
            raise RuntimeError("a failure that nobody foresaw")

    world.database.observer = fail
    with pytest.raises(RuntimeError):
        created(world.database, [create(world, departure, f"doomed-{n}") for n in range(3)])
    world.database.observer = None
    assert world.rows(tables.bookings) == world.rows(tables.events) == world.rows(tables.idempotency) == []
    assert world.row(tables.departures, departure)["seats_taken"] == 0
    assert outcomes(created(world.database, [create(world, departure, "after-doom")])) == [(201, 1)]


def test_the_table_itself_refuses_one_seat_too_many(
    world: World, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "seats_available", lambda total, sold, on_hold: 1_000_000)
    with pytest.raises(Exception, match="ck_departures_seats_taken"):
        created(world.database, [create(world, departure, "one-too-many", count=13)])
    assert world.rows(tables.bookings) == []
