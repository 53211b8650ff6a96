"""Every event that the contract names is brought about by an operation, delivered, and holds what section 6 says."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest
from support.api.api import Api
from support.databases import due
from support.receivers.senders import FakeSender, worker_of
from support.world.hooks import Hooks
from support.world.operations import Operations
from support.world.world import DAY, HOUR, World

import webhook_verify
from booking_core import bookings
from booking_core.base.clock import MINUTE, SECOND
from booking_core.db import tables
from booking_core.models.base import Resource
from booking_core.models.bookings import Booking, BookingSource, CancelReason, PaymentMode
from booking_core.models.customers import Customer
from booking_core.models.events import EventType
from booking_core.models.gift_cards import GiftCard
from booking_core.models.limits import API_VERSION
from booking_core.payments import RefundOutcome, RefundResult

EXTRA: Mapping[str, set[str]] = {
    "booking.created": set(),
    "booking.confirmed": set(),
    "booking.cancelled": {"reason"},
    "booking.rescheduled": {"previous_departure", "changes"},
    "booking.updated": {"changes"},
    "booking.refunded": {"refunded_amount", "total_refunded", "changes"},
    "customer.created": set(),
    "customer.updated": {"changes"},
    "gift_card.issued": set(),
    "gift_card.redeemed": {"redeemed_amount", "booking_id"},
    "gift_card.restored": {"restored_amount", "booking_id"},
    "ping": set(),
}
"""The types of section 6, and the fields of each beside `object`."""
SHAPES: Mapping[str, type[Resource]] = {"booking": Booking, "customer": Customer, "gift_card": GiftCard}
NOK_89000 = {"amount_minor": 89000, "currency": "NOK"}


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world(cancel_under_minimum=True)


@pytest.fixture
def api(session_app: Any, world: World) -> Api:
    return Api(session_app, world)


def everything_happens(ops: Operations, api: Api) -> None:
    """Carry out each operation once: every source and every reason occurs."""
    world = ops.world
    experience = world.experience()
    first, second = (world.departure(experience, seats=20, starts_at=world.clock() + days * DAY) for days in (3, 4))
    _, code = ops.issue(89000)
    by_source = {
        BookingSource.ONLINE: ops.check_out(first, gift_card_code=code),
        BookingSource.API: api.book(first).json(),
        **{
            source: ops.book(first, source=source, payment=PaymentMode.INVOICE)
            for source in (BookingSource.ADMIN, BookingSource.AGENCY, BookingSource.AI)
        },
    }
    paid = ops.check_out(first)["id"]
    ops.pay(paid)
    ops.act(lambda tx, actor: bookings.check_in(tx, actor, by_source[BookingSource.ADMIN]["id"]))
    ops.reschedule(by_source[BookingSource.ADMIN]["id"], second)
    ops.update_customer(world.rows(tables.customers)[0]["id"], name="Ada King")
    ops.cancel(by_source[BookingSource.ONLINE]["id"], CancelReason.CUSTOMER)
    ops.cancel(paid, CancelReason.ADMIN)
    refunds = [RefundResult(refund, RefundOutcome.REFUNDED, "re_1") for refund in due.claim_refunds(world)]
    world.database.write(lambda tx: bookings.settle_refunds(tx, refunds))
    ops.cancel(by_source[BookingSource.AI]["id"], CancelReason.AGENT)
    api.cancel(by_source[BookingSource.API]["id"])
    ops.check_out(first)
    world.clock.advance(30 * MINUTE)
    ops.abandon_due()
    ops.cancel_departure(second)
    lonely = world.departure(world.experience(min_participants=2), starts_at=world.clock() + HOUR)
    ops.book(lonely)
    world.clock.advance(HOUR)
    ops.cancel_under_minimum()


@pytest.mark.one_database
def test_every_type_source_and_reason_comes_about_with_its_fields(ops: Operations, api: Api) -> None:
    everything_happens(ops, api)
    events = ops.events()
    assert {event["type"] for event in events} == set(EXTRA) - {"ping"}
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    for event in events:
        assert set(event["data"]) == {"object"} | EXTRA[event["type"]], event["type"]
        shape = SHAPES[event["type"].partition(".")[0]]
        resource = shape.model_validate(event["data"]["object"]).to_json()
        assert event["data"]["object"] == {key: value for key, value in resource.items() if key != "code"}
        assert event["api_version"] == API_VERSION
        assert event["data"]["object"].get("manage_url") is None
    sources = {event["data"]["object"]["source"] for event in events if event["type"] == "booking.created"}
    assert sources == set(BookingSource)
    assert {event["data"]["reason"] for event in events if event["type"] == "booking.cancelled"} == set(CancelReason)


@pytest.mark.one_database
def test_the_feed_and_the_deliveries_say_the_same_in_the_same_bytes(ops: Operations, api: Api) -> None:
    """A `ping` comes from the test of its endpoint, and from nowhere else."""
    hooks = Hooks(ops.world)
    types = [EventType(name) for name in EXTRA if name != "ping"]
    endpoint = hooks.endpoint(*types, url=f"https://hooks.example/{ops.world.org}")
    everything_happens(ops, api)
    tested = api.post(f"/webhooks/{endpoint}/test")
    assert tested.status_code == 202
    bodies = deliver(hooks, endpoint)
    assert sorted(bodies) == sorted(row["body"].encode() for row in ops.world.rows(tables.events))
    received = [orjson.loads(body) for body in bodies]
    assert {event["type"] for event in received} == set(EXTRA)
    (ping,) = (event["data"] for event in received if event["type"] == "ping")
    assert ping["object"]["endpoint_id"] == endpoint
    assert isinstance(ping["object"]["message"], str)
    for event in received:
        fed = api.get(f"/events/{event['id']}").json()
        assert {key: fed[key] for key in event} == event


def deliver(hooks: Hooks, endpoint_id: str) -> list[bytes]:
    """Return the verified body of every delivery of the endpoint, as the worker sent it."""
    sender = FakeSender(url=hooks.row(endpoint_id)["url"])
    asyncio.run(worker_of(hooks.world, sender).run_once())
    secret, now = hooks.secrets[endpoint_id], hooks.world.clock() / SECOND
    return [webhook_verify.verify(body, headers, secret, now=now).payload for _, headers, body in sender.requests]
