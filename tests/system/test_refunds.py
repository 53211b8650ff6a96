"""Cancellations and their refunds, with a worker that is killed and a Stripe that fails: each guest gets the money
once.

BOOKING_TEST_REFUNDS and BOOKING_TEST_REFUND_KILLS make it larger than a run of every day has time for.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.receivers.receivers import wait_until, workers
from support.receivers.stripe_ledger import KEY, Ledger, Refunder, stripe
from support.serving.servers import new_world
from support.world.operations import Operations, with_retries
from support.world.world import World

from booking_cli.framework.exit_codes import ExitCode
from booking_core.db import tables
from booking_core.models.bookings import CancelReason

REFUNDS = int(os.environ.get("BOOKING_TEST_REFUNDS", "40"))
KILLS = int(os.environ.get("BOOKING_TEST_REFUND_KILLS", "3"))
DUPLICATES = 4
FAULTS = 0.2
WITHIN_S = 60 + REFUNDS
_BUYERS = 4


class Shop(Operations):
    """Card bookings that are bought and cancelled."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world)
        self.ledger = ledger
        self.departure_id = world.departure(world.experience(), seats=100_000)

    def sell(self, number: int) -> str:
        """Return the id of a confirmed booking that was paid by card. Its charge has room for a second refund, were
        there one."""
        booking = with_retries(self.check_out, self.departure_id, 1 + number % 3, email=f"guest-{number}@example.com")
        intent = f"pi_{booking['id']}"
        self.ledger.charge(intent, 2 * booking["totals"]["total"]["amount_minor"])
        with_retries(self.pay, booking["id"], intent)
        return str(booking["id"])

    def refund_count(self) -> int:
        """Return the number of refunds at Stripe."""
        return sum(len(charge.refunds) for charge in self.ledger.charges.values())

    def wait_for_more(self, count: int) -> None:
        """Until so many more were made, or all."""
        enough = min(REFUNDS, self.refund_count() + count)
        wait_until(lambda: self.refund_count() >= enough, f"{enough} refunds are made", within_s=WITHIN_S)

    def statuses(self) -> Counter[str]:
        return Counter(row["status"] for row in self.world.rows(tables.refunds))


@contextmanager
def refunder(url: str, folder: Path, ledger: Ledger) -> Iterator[Refunder]:
    worker = Refunder(url, folder / "refunder.log", ledger)
    try:
        yield worker
    finally:
        if worker.process is not None and worker.process.poll() is None:
            worker.kill()


@pytest.fixture
def shop(fresh_database_url: str) -> Iterator[Shop]:
    with stripe() as ledger, new_world(fresh_database_url) as world:
        yield Shop(world, ledger)


def each_was_refunded_once(shop: Shop, booking_ids: list[str]) -> None:
    bookings = {row["id"]: row for row in shop.world.rows(tables.bookings)}
    payments = {row["booking_id"]: row for row in shop.world.rows(tables.payments)}
    refunds = {row["booking_id"]: row for row in shop.world.rows(tables.refunds)}
    assert sorted(bookings) == sorted(payments) == sorted(refunds) == sorted(booking_ids)
    for booking_id in booking_ids:
        booking, payment, refund = bookings[booking_id], payments[booking_id], refunds[booking_id]
        (given_back,) = shop.ledger.refunds(payment["payment_intent"])
        assert given_back["metadata"] == {"refund_id": refund["id"], "booking_id": booking_id}
        assert given_back["id"] == refund["provider_refund_id"]
        amounts = {given_back["amount"], refund["amount_minor"], payment["refunded_minor"], payment["amount_minor"]}
        assert amounts == {booking["total_minor"]}
        states = (booking["status"], booking["payment_status"], payment["status"], refund["status"])
        assert states == ("cancelled", "refunded", "refunded", "succeeded")
    assert set(shop.ledger.keys()) == {f"refund-{row['id']}" for row in refunds.values()}
    published = Counter((row["resource_id"], row["type"]) for row in shop.world.rows(tables.events))
    assert all(published[booking_id, "booking.cancelled"] == 1 for booking_id in booking_ids)


@pytest.mark.exhaustive
def test_each_cancellation_is_refunded_once_though_the_worker_dies_again_and_again(shop: Shop, tmp_path: Path) -> None:
    shop.ledger.rate = FAULTS
    with ThreadPoolExecutor(_BUYERS) as pool:
        booking_ids = list(pool.map(shop.sell, range(REFUNDS)))
        orders = booking_ids * DUPLICATES
        random.Random(1).shuffle(orders)
        with refunder(shop.world.url, tmp_path, shop.ledger) as worker:
            worker.start()
            cancels = [
                pool.submit(with_retries, shop.cancel, booking_id, CancelReason.CUSTOMER) for booking_id in orders
            ]
            for _ in range(KILLS):
                shop.wait_for_more(REFUNDS // (KILLS + 2))
                worker.kill()
                worker.start()
            assert {cancel.result()["status"] for cancel in cancels} == {"cancelled"}
            settled = {"succeeded": REFUNDS}
            wait_until(lambda: shop.statuses() == settled, "every refund is settled", within_s=WITHIN_S)
            assert "Traceback" not in worker.log
    each_was_refunded_once(shop, booking_ids)
    requests = len(shop.ledger.requests)
    print(f"{REFUNDS} refunds, {requests} requests, faults {dict(shop.ledger.met)}, {KILLS} kills")


# The command itself ----------------------------------------------------------------------------------------------


@pytest.mark.exhaustive(but="sqlite")
def test_the_worker_command_refunds_through_stripe(shop: Shop, tmp_path: Path) -> None:
    booking_ids = [shop.sell(number) for number in range(3)]
    environment = {"BOOKING_STRIPE_API_KEY": KEY, "BOOKING_STRIPE_BASE_URL": shop.ledger.base_url}
    with workers(shop.world.url, tmp_path, **environment) as (worker,):
        worker.start().wait_until_it_runs()
        for booking_id in booking_ids:
            with_retries(shop.cancel, booking_id)
        wait_until(lambda: shop.statuses() == {"succeeded": 3}, "every refund is settled")
        assert worker.stop() == ExitCode.OK
        assert KEY not in worker.log
    each_was_refunded_once(shop, booking_ids)
