"""A refund or a dispute at Stripe whose webhook was lost is found by a look at the account."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support import checkouts
from support.api import Api
from support.checkouts import checkout_body, intent_row
from support.operations import Operations
from support.stripe_ledger import Ledger, stripe
from support.world import HOUR, World

from booking_core.bookings.checkouts.rules import LOOK_INTERVAL, LOOK_OVERLAP
from booking_core.db import tables
from booking_server.adapters.stripe_intents import Refunded, StripeIntents

TOTAL = 89_000


@pytest.fixture(scope="module")
def running() -> Iterator[Ledger]:
    with stripe() as ledger:
        yield ledger


@pytest.fixture
def ledger(running: Ledger, api: Api) -> Iterator[Ledger]:
    """A Stripe at the time of the service, and a shop with an account there."""
    checkouts.align(running, api.world)
    running.next_faults.clear()
    checkouts.configure(api.world)
    with checkouts.calling(api.client, running):
        yield running


def paid(api: Api, ledger: Ledger) -> tuple[str, str]:
    """Return the id of a confirmed booking, and its intent."""
    departure = api.world.departure(api.world.experience(), seats=5)
    shown = api.post("/checkouts", checkout_body(departure, 1)).json()
    intent_id = shown["payment"]["intent_id"]
    ledger.pay(intent_id)
    api.world.clock.advance(29 * 60_000_000)
    checkouts.check_payments(api.world, ledger)
    assert Operations(api.world).booking(shown["id"])["status"] == "confirmed"
    return shown["id"], intent_id


def looked_up(ledger: Ledger, intent_id: str) -> int:
    return ledger.requests.count(("intent", intent_id))


def account(world: World) -> dict[str, Any]:
    (row,) = world.rows(tables.stripe_accounts)
    return row


def test_a_refund_at_the_dashboard_whose_webhook_was_lost_is_found(api: Api, ledger: Ledger) -> None:
    world, (booking_id, intent_id) = api.world, paid(api, ledger)
    checkouts.look_at_accounts(world, ledger)
    world.clock.advance(40 * 24 * HOUR)
    checkouts.align(ledger, world)
    ledger.refund_at_the_dashboard(intent_id, 9_000)
    world.clock.advance(LOOK_INTERVAL)
    assert checkouts.look_at_accounts(world, ledger) >= 1
    assert Operations(world).booking(booking_id)["payment_status"] == "partially_refunded"
    assert world.examine() == []
    before = looked_up(ledger, intent_id)
    world.clock.advance(LOOK_INTERVAL + LOOK_OVERLAP)
    checkouts.look_at_accounts(world, ledger)
    assert looked_up(ledger, intent_id) == before, "a refund that is known is not asked for again"


def test_a_look_while_stripe_is_away_is_made_again_and_misses_nothing(api: Api, ledger: Ledger) -> None:
    world, (booking_id, intent_id) = api.world, paid(api, ledger)
    checkouts.look_at_accounts(world, ledger)
    ledger.refund_at_the_dashboard(intent_id, TOTAL)
    world.clock.advance(LOOK_INTERVAL)
    seen, ledger.in_between = account(world)["seen_until"], (502, b"<html>")
    try:
        checkouts.look_at_accounts(world, ledger)
    finally:
        ledger.in_between = None
    assert account(world)["seen_until"] == seen
    assert account(world)["look_at"] == world.clock() + LOOK_INTERVAL
    world.clock.advance(10 * LOOK_INTERVAL)
    checkouts.look_at_accounts(world, ledger)
    assert Operations(world).booking(booking_id)["payment_status"] == "refunded"


def test_a_dispute_whose_webhooks_were_lost_is_found_open_and_then_lost(api: Api, ledger: Ledger) -> None:
    world, (booking_id, intent_id) = api.world, paid(api, ledger)
    for status, mails in (("needs_response", 1), ("lost", 2), ("lost", 2)):
        ledger.dispute(intent_id, status)
        world.clock.advance(LOOK_INTERVAL)
        checkouts.look_at_accounts(world, ledger)
        assert intent_row(world, booking_id)["dispute_status"] == status
        assert len([row for row in world.rows(tables.effects) if "dispute" in row["kind"]]) == mails


class Busy(StripeIntents):
    """A Stripe where a refund is made each second, and 50 of them are read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    async def _refunds(self, api_key: str, since_s: int, until_s: int) -> tuple[list[str], bool]:
        self.read += 1
        made = [f"pi_{second}" for second in range(since_s, until_s)]
        return made[-50:], len(made) > 50


def test_many_refunds_are_read_in_shorter_spans_without_a_gap() -> None:
    busy, since, found = Busy(), 1_000, []
    while since < 2_000:
        part: Refunded = asyncio.run(busy.refunded("sk", since, 2_000))
        found += part.intent_ids
        since = part.until_s
    assert found == [f"pi_{second}" for second in range(1_000, 2_000)]
    assert busy.read < 200
