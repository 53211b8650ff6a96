"""Numbers of the contract (API v1 section 8 and decisions I7, L8), held by the running service.

They are literals, as the contract gives them. None is imported from the code that has to hold it, and no setting is
passed in: the service has its defaults. The numbers of keys of idempotency, endpoints, bodies, pages and windows are in
`test_idempotency.py`, `test_webhooks.py`, `test_http.py`, `test_lists.py` and `test_params.py`, as literals too.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from support.api.api import Api, error_of
from support.api.client import WholeResponses
from support.api.refusals import conflict_reason, invalid_field
from support.databases.databases import fill
from support.receivers.senders import FAILED, FakeSender, worker_of
from support.serving import jumping_loop
from support.world.hooks import Hooks
from support.world.world import DAY, HOUR, SECRET, World

from booking_core import webhooks
from booking_core.base import tokens
from booking_core.base.errors import Conflict
from booking_core.base.settings import Settings
from booking_core.db import tables
from booking_core.models.webhooks import AttemptError
from booking_core.organizations import keys
from booking_core.records import retention_clock
from booking_core.records.retention_clock import Measured
from booking_server.adapters.webhook_client import Sent, WebhookSender
from booking_server.app import create_app
from booking_server.worker.jobs.retention import RetentionJob
from webhook_verify import WebhookVerificationError, sign, verify

pytestmark = pytest.mark.one_database

SECOND, MINUTE = 1_000_000, 60_000_000
WHSEC = "whsec_" + "QUJD" * 11


# Requests --------------------------------------------------------------------------------------------------------


def test_an_organization_holds_20_active_keys(world: World) -> None:
    def create(number: int) -> Any:
        return world.database.write(
            lambda tx: keys.create(tx, world.organization, name=f"key {number}", now=world.clock())
        )

    for number in range(20):
        create(number)
    with pytest.raises(Conflict):
        create(20)


def test_a_window_of_bookings_with_one_end_has_92_days(api: Api, world: World) -> None:
    midnight, experience = world.clock() + 11 * HOUR, world.experience()
    booking_of = {
        day: api.book(world.departure(experience, starts_at=midnight + day * DAY)).json()["id"] for day in (0, 92, 93)
    }
    for window, days in (({"departure_from": "2026-11-22"}, {0, 92}), ({"departure_to": "2027-02-23"}, {92, 93})):
        bookings = api.get("/bookings", **window).json()["data"]
        assert {booking["id"] for booking in bookings} == {booking_of[day] for day in days}


CUSTOMER = {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "1"}
TEXTS: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    "note": (2000, lambda length: {"note": "\U0001f600" * length}),
    "customer.name": (200, lambda length: {"customer": CUSTOMER | {"name": "é" * length}}),
    "customer.phone": (200, lambda length: {"customer": CUSTOMER | {"phone": "1" * length}}),
    "customer.email": (200, lambda length: {"customer": CUSTOMER | {"email": "@example.com".rjust(length, "a")}}),
}
"""The longest value of each text of a booking in characters, and the part of a body with a value of some length."""


@pytest.mark.parametrize("field", TEXTS)
def test_a_text_of_a_booking_has_a_longest_value(api: Api, departure: str, field: str) -> None:
    longest, part = TEXTS[field]
    assert api.book(departure, **part(longest)).status_code == 201
    assert invalid_field(api.book(departure, **part(longest + 1))) == field


@pytest.mark.parametrize(
    "over",
    [{"name": "n" * 201}, {"phone": "1" * 201}, {"email": "@example.com".rjust(201, "a")}],
    ids=lambda o: next(iter(o)),
)
def test_a_text_of_a_customer_has_200_characters(api: Api, over: dict[str, str]) -> None:
    ((field, value),) = over.items()
    assert api.post("/customers", CUSTOMER | {field: value[1:]}).status_code == 201
    assert invalid_field(api.post("/customers", CUSTOMER | over)) == field


def test_the_reason_of_a_cancellation_has_200_characters(api: Api, departure: str) -> None:
    booking_id = api.book(departure).json()["id"]
    assert invalid_field(api.cancel(booking_id, reason="é" * 201)) == "reason"
    assert api.cancel(booking_id, reason="é" * 200).status_code == 200


def test_an_organization_has_200_live_holds(api: Api, world: World) -> None:
    departure, at = world.departure(world.experience(), seats=1000), world.clock()
    live = {"organization_id": world.org, "departure_id": departure, "seats": 1, "expires_at": at + MINUTE}
    fill(
        str(world.database.url),
        tables.holds,
        ({"id": tokens.new_id(), "created_at": at, **live} for _ in range(199)),
    )
    body = {"experience_date_id": departure, "seats": 1}
    last = api.post("/holds", body).json()["id"]
    assert conflict_reason(api.post("/holds", body)) == "hold_limit_reached"
    api.call("DELETE", f"/holds/{last}")
    assert api.post("/holds", body).status_code == 201
    world.clock.advance(MINUTE)
    assert api.post("/holds", body).status_code == 201


# Deliveries ------------------------------------------------------------------------------------------------------


async def _sent_to_a_receiver_that_answers_after(seconds: float) -> Sent:
    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(seconds)
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        finally:
            writer.close()

    settings = Settings(webhook_allow_http=True, webhook_allow_cidrs=("127.0.0.0/8",))
    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        sender = WebhookSender(settings, clock=asyncio.get_running_loop().time)
        sent = await sender.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", (), b"{}")
        await sender.close()
        return sent


def test_a_receiver_has_10_seconds_to_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "booking.webhooks")
    in_time = jumping_loop.run(_sent_to_a_receiver_that_answers_after(9.99))
    assert (in_time.status, in_time.error) == (204, None)
    late = jumping_loop.run(_sent_to_a_receiver_that_answers_after(10.01))
    assert (late.status, late.error) == (None, AttemptError.TIMEOUT)
    assert late.duration_ms == pytest.approx(10_000, abs=1)


def settings_of(world: World) -> Settings:
    return Settings(database_url=str(world.database.url), secret_key=SECRET)


def attempts_at(world: World, sender: FakeSender, *instants: int) -> int:
    """Run a worker at each instant, and return how many attempts it made."""
    before = len(sender.requests)
    for instant in instants:
        world.clock.at = instant
        worker = worker_of(world, sender)
        asyncio.run(worker.run_once())
    return len(sender.requests) - before


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_a_delivery_is_attempted_6_times_with_growing_waits(
    alone: World, monkeypatch: pytest.MonkeyPatch, jitter: float
) -> None:
    """The jitter lengthens a wait by 5 % at most (decision W10)."""
    monkeypatch.setattr(webhooks, "record", partial(webhooks.record, jitter=lambda: jitter))
    hooks, sender = Hooks(alone), FakeSender(always=FAILED)
    hooks.endpoint(events=1)
    assert attempts_at(alone, sender, alone.clock()) == 1
    for wait in (1 * MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 8 * HOUR):
        due_at = alone.clock() + wait + int(wait * 0.05 * jitter)
        assert attempts_at(alone, sender, due_at - 1) == 0
        assert attempts_at(alone, sender, due_at) == 1
    assert hooks.delivery()["status"] == "dead"
    assert attempts_at(alone, sender, alone.clock() + 30 * DAY) == 0


@pytest.mark.parametrize(
    ("failures", "hours", "status"),
    [(5, 72, "enabled"), (6, 71, "enabled"), (6, 72, "auto_disabled")],
    ids=lambda value: str(value),
)
def test_an_endpoint_is_disabled_after_72_hours_and_6_failures(
    alone: World, failures: int, hours: int, status: str
) -> None:
    hooks = Hooks(alone)
    endpoint = hooks.endpoint(events=failures)
    assert attempts_at(alone, FakeSender(always=FAILED), alone.clock() + hours * HOUR) == failures
    assert hooks.row(endpoint)["status"] == status


def test_a_signature_is_accepted_for_5_minutes() -> None:
    headers = {"Svc-Signature": sign(b"{}", WHSEC, timestamp=1_795_262_400)}
    for drift in (-300, 300):
        assert verify(b"{}", headers, WHSEC, now=1_795_262_400 + drift).payload == b"{}"
    for drift in (-301, 301):
        with pytest.raises(WebhookVerificationError):
            verify(b"{}", headers, WHSEC, now=1_795_262_400 + drift)


# Retention -------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone_api(alone: World) -> Iterator[Api]:
    """The service of that organization."""
    app = create_app(settings_of(alone), database=alone.database)
    with WholeResponses(app) as running:
        yield Api(running, alone)


def purge_at(world: World, instant: int) -> None:
    """Run the retention job of a worker that has run for a long time: its clock agrees with the database's."""
    world.clock.at = instant
    job = RetentionJob(settings_of(world), world.database, elapsed_s=lambda: world.clock() / SECOND)
    job._measured = Measured(instant, instant / SECOND - 1e9)
    for _ in range(2):
        world.database.write(lambda tx: retention_clock.advance(tx, job._measured, instant / SECOND))
    asyncio.run(job.run_once())


def test_events_are_kept_for_90_days(alone_api: Api) -> None:
    world = alone_api.world
    created_at = world.clock()
    assert alone_api.post("/customers", CUSTOMER).status_code == 201
    (event,) = alone_api.get("/events").json()["data"]
    purge_at(world, created_at + 90 * DAY)
    assert alone_api.get(f"/events/{event['id']}").status_code == 200
    purge_at(world, created_at + 90 * DAY + MINUTE)
    assert error_of(alone_api.get(f"/events/{event['id']}")) == (404, "not_found")


def test_deliveries_are_kept_for_30_days(alone_api: Api) -> None:
    world, hooks = alone_api.world, Hooks(alone_api.world)
    endpoint = hooks.endpoint(events=1)
    hooks.succeed(hooks.one())
    settled_at, path = world.clock(), f"/webhooks/{endpoint}/deliveries"
    purge_at(world, settled_at + 30 * DAY)
    assert len(alone_api.get(path).json()["data"]) == 1
    purge_at(world, settled_at + 30 * DAY + MINUTE)
    assert alone_api.get(path).json()["data"] == []


def test_a_stored_answer_is_replayed_for_30_days(alone_api: Api) -> None:
    world = alone_api.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 60 * DAY)
    created_at, first = world.clock(), alone_api.book(departure, key="order-1001")

    def again() -> httpx.Response:
        return alone_api.book(departure, key="order-1001")

    purge_at(world, created_at + 30 * DAY)
    assert (again().content, again().headers["idempotent-replayed"]) == (first.content, "true")
    purge_at(world, created_at + 30 * DAY + MINUTE)
    assert again().json()["id"] != first.json()["id"]
