"""Power cuts: at every point of a request, a retry with the same key settles it, and nothing is half done."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient
from support.api.api import Api, booking_body
from support.databases.databases import departure_held
from support.faults.proxies import CommitCutter
from support.serving.servers import COMMITTED, MUTE, Answer, Line, Service, lines, new_world
from support.world.world import DAY, SECRET, World

from booking_core.base.clock import HOUR
from booking_core.base.settings import Settings
from booking_core.bookings import storefront
from booking_core.bookings.storefront import CheckoutRequest
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.bookings import GuestInput, GuestLineInput
from booking_core.organizations import keys
from booking_server.app import create_app

REQUESTS = 500
LINES = 25
ANSWERED_BEFORE_THE_KILL = 150
GUESTS = 40
HOLDS = REQUESTS // 10

Requests = Mapping[str, dict[str, Any]]
"""Bodies by idempotency key."""


def send(service: Service, key: str, requests: Requests, *, kill_after: int | None = None) -> dict[str, Answer]:
    """Send the requests and return the answers by key. With `kill_after` every process is killed after that many
    answers."""
    waiting = list(requests.items())
    answers: dict[str, Answer] = {}

    async def work(line: Line) -> None:
        while waiting:
            idempotency_key, body = waiting.pop()
            answer = await line.try_post("/bookings", body, idempotency_key)
            if answer is None:
                return
            answers[idempotency_key] = answer
            if len(answers) == kill_after:
                service.kill()

    async def all_of_them() -> None:
        async with lines(service.ports, key, LINES) as opened:
            await asyncio.gather(*(work(line) for line in opened))

    asyncio.run(all_of_them())
    return answers


@pytest.mark.exhaustive(but="postgresql")
def test_a_kill_during_a_burst_loses_doubles_and_halves_nothing(mortal_service: Service) -> None:
    """Every tenth of the requests takes a hold over, without which there would be no seat for it."""
    with new_world(mortal_service.url) as world:
        key, departure = world.key(), world.departure(world.experience(), seats=REQUESTS)
        hold = {"departure_id": departure, "seats": 1, "created_at": world.clock(), "expires_at": world.clock() + HOUR}
        holds = [world.insert(tables.holds, **hold) for _ in range(HOLDS)]
    requests = {
        f"burst-{number:04}": booking_body(
            departure,
            customer={"name": "A guest", "email": f"guest{number % GUESTS}@example.com"},
            hold_id=holds[number // 10] if number % 10 == 0 else None,
        )
        for number in range(REQUESTS)
    }
    before = send(mortal_service.start(), key, requests, kill_after=ANSWERED_BEFORE_THE_KILL)
    assert ANSWERED_BEFORE_THE_KILL <= len(before) < REQUESTS
    after = send(mortal_service.start(), key, requests)
    mortal_service.stop()
    check_answers(before, after)
    with reopened(mortal_service, world) as stored:
        check_rows(stored, departure, {answer.json()["id"] for answer in after.values()})


def check_answers(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> None:
    """Check that each key was answered with one booking, before and after the kill with the same bytes."""
    assert {answer.status for answer in (*before.values(), *after.values())} == {201}
    assert len(after) == REQUESTS
    for key, answer in before.items():
        assert (after[key].body, after[key].replayed) == (answer.body, True)
    bookings = [answer.json() for answer in after.values()]
    assert len({booking["id"] for booking in bookings}) == REQUESTS
    assert sorted(booking["booking_number"] for booking in bookings) == list(range(1, REQUESTS + 1))


def check_rows(world: World, departure_id: str, booking_ids: set[str]) -> None:
    """Check one booking, its two events and its stored answer for each key, one event for each customer, every seat
    taken."""
    assert {row["id"] for row in world.rows(tables.bookings)} == booking_ids
    events = world.rows(tables.events)
    assert Counter(event["type"] for event in events) == {
        "customer.created": GUESTS,
        "booking.created": REQUESTS,
        "booking.confirmed": REQUESTS,
    }
    assert sorted(event["sequence"] for event in events) == list(range(1, len(events) + 1))
    assert len(world.rows(tables.customers)) == GUESTS
    assert len(world.rows(tables.idempotency)) == REQUESTS
    assert world.row(tables.departures, departure_id)["seats_taken"] == REQUESTS
    taken_over = [row["booking_id"] for row in world.rows(tables.holds) if row["ended_at"] is not None]
    assert len(taken_over) == len(set(taken_over) & booking_ids) == HOLDS


@contextmanager
def reopened(service: Service, world: World) -> Iterator[World]:
    """Yield the organization on a database that was opened after everything else had let go of it."""
    with closing(Database(service.url)) as database:
        yield World(database, world.clock, world.organization)


@pytest.mark.exhaustive(but="sqlite")
def test_a_replay_settles_a_kill_between_commit_and_answer(mortal_service: Service) -> None:
    with new_world(mortal_service.url) as world:
        key, departure = world.key(), world.departure(world.experience())
    body = booking_body(departure)

    async def unanswered() -> Answer | None:
        async with lines(mortal_service.start(MUTE).ports, key, 1) as (line,):
            sent = asyncio.create_task(line.try_post("/bookings", body, "never-answered"))
            assert await asyncio.to_thread(mortal_service.servers[0].printed) == COMMITTED
            mortal_service.kill()
            return await sent

    assert asyncio.run(unanswered()) is None
    (answer,) = send(mortal_service.start(), key, {"never-answered": body}).values()
    assert (answer.status, answer.replayed, answer.json()["booking_number"]) == (201, True, 1)
    mortal_service.stop()
    with reopened(mortal_service, world) as stored:
        assert [row["id"] for row in stored.rows(tables.bookings)] == [answer.json()["id"]]


@pytest.mark.exhaustive(but="sqlite")
def test_a_kill_before_the_commit_leaves_all_to_the_retry(mortal_service: Service) -> None:
    with new_world(mortal_service.url) as world:
        key, departure = world.key(), world.departure(world.experience())
    body = booking_body(departure)

    async def stalled_then_killed() -> Sequence[Answer | None]:
        async with lines(mortal_service.start().ports[:1], key, 2) as opened:
            with departure_held(mortal_service.url, departure):
                sent = [asyncio.create_task(line.try_post("/bookings", body, "stalled-key")) for line in opened]
                # The second request is answered at once: it reports that the first one, which is stalled, still runs.
                await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
                mortal_service.kill()
            return await asyncio.gather(*sent)

    refused, cut = sorted(asyncio.run(stalled_then_killed()), key=lambda answer: answer is None)
    assert refused is not None
    assert (refused.json()["code"], cut) == ("idempotency_in_progress", None)
    (answer,) = send(mortal_service.start(), key, {"stalled-key": body}).values()
    assert (answer.status, answer.replayed, answer.json()["booking_number"]) == (201, False, 1)
    mortal_service.stop()
    with reopened(mortal_service, world) as stored:
        assert len(stored.rows(tables.bookings)) == 1


# A connection that is cut at the commit --------------------------------------------------------------------------

on_postgresql = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
"""SQLite has no connection to cut."""


@pytest.fixture(params=["before", "after"])
def when(request: pytest.FixtureRequest) -> str:
    """The moment of the cut: before or after the server has executed the COMMIT."""
    return str(request.param)


@pytest.fixture
def cutter(fresh_database_url: str) -> Iterator[CommitCutter]:
    with CommitCutter(fresh_database_url) as proxy:
        yield proxy
        assert not proxy.is_armed


@pytest.fixture
def behind_it(fresh_database_url: str, cutter: CommitCutter) -> Iterator[Api]:
    """The application, whose database connection passes the cutter, and an organization that is read directly."""
    settings = Settings(database_url=cutter.url, secret_key=SECRET, rate_limit=None, webhook_allow_http=True)
    with (
        new_world(fresh_database_url) as world,
        TestClient(create_app(settings), raise_server_exceptions=False) as client,
    ):
        yield Api(client, world)


@on_postgresql
def test_a_connection_cut_at_the_commit_is_settled_by_the_service_itself(
    behind_it: Api, cutter: CommitCutter, when: str
) -> None:
    world = behind_it.world
    departure = world.departure(world.experience())
    cutter.cut(when)
    first = behind_it.book(departure, key="cut-at-commit")
    assert not cutter.is_armed
    assert first.status_code == 201
    assert ("idempotent-replayed" in first.headers) == (when == "after")
    again = behind_it.book(departure, key="cut-at-commit")
    assert (again.status_code, again.content) == (201, first.content)
    assert len(world.rows(tables.bookings)) == 1


@pytest.mark.exhaustive(but="after")
@on_postgresql
def test_a_connection_cut_at_the_commit_repeats_no_booking_change(
    behind_it: Api, cutter: CommitCutter, when: str
) -> None:
    world = behind_it.world
    experience = world.experience()
    first, second = (world.departure(experience, starts_at=world.clock() + days * DAY) for days in (2, 3))
    booking_id = behind_it.book(first, count=3).json()["id"]
    bodies = {"reschedule": {"departure_id": second}, "party": {"guests": [{"tier_id": "adult", "count": 1}]}}
    for end, body in bodies.items():
        cutter.cut(when)
        answers = [behind_it.post(f"/bookings/{booking_id}/{end}", body, key=f"cut-{end}") for _ in range(2)]
        assert not cutter.is_armed
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].content == answers[1].content
    assert [world.row(tables.departures, departure)["seats_taken"] for departure in (first, second)] == [0, 1]
    types = [row["type"] for row in world.rows(tables.events)]
    assert (types.count("booking.rescheduled"), types.count("booking.updated")) == (1, 1)


@pytest.mark.exhaustive(but="after")
@on_postgresql
def test_a_connection_cut_at_the_commit_repeats_no_write_without_key(
    fresh_database_url: str, cutter: CommitCutter, when: str
) -> None:
    with new_world(fresh_database_url) as world, closing(Database(cutter.url)) as database:
        departure = world.departure(world.experience())
        actor, ada = world.caller(), GuestInput(name="Ada", email="ada@example.com")
        basket = CheckoutRequest(
            departure_id=departure, guests=[GuestLineInput(tier_id="adult", count=1)], customer=ada
        )
        cutter.cut(when)
        checkout = orjson.loads(database.write_once(lambda tx: storefront.check_out(tx, actor, basket)))
        cutter.cut(when)
        key, _ = database.write_once(lambda tx: keys.create(tx, world.organization, name="one", now=tx.now()))
        assert [(row["id"], row["booking_number"]) for row in world.rows(tables.bookings)] == [(checkout["id"], 1)]
        assert [row["id"] for row in world.rows(tables.api_keys)] == [key.id]
        assert world.row(tables.departures, departure)["seats_taken"] == 1


@pytest.mark.exhaustive(but="after")
@on_postgresql
def test_a_connection_cut_at_the_commit_repeats_no_endpoint(behind_it: Api, cutter: CommitCutter, when: str) -> None:
    body = {"url": "http://203.0.114.9/hook", "event_types": ["booking.created"]}
    cutter.cut(when)
    response = behind_it.post("/webhooks", body)
    assert not cutter.is_armed
    assert response.status_code == 201
    assert [row["id"] for row in behind_it.world.rows(tables.webhook_endpoints)] == [response.json()["id"]]
