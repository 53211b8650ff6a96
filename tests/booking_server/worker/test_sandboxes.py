"""The worker serves a sandbox by its own clock, and nothing of it leaves the service but webhooks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from support.world.hooks import Hooks
from support.world.operations import Operations
from support.world.world import DAY, HOUR, NOON, SECRET, FixedClock, World, make_world

from booking_core import organizations, sandboxes
from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.context import Actor, Caller
from booking_core.base.errors import Conflict
from booking_core.base.settings import Settings
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import IntentUpdate
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.models.checkouts import CheckoutCreate
from booking_core.models.events import EventType
from booking_core.models.sandbox import SandboxClockAdvance
from booking_core.models.webhooks import AttemptError
from booking_core.notifications import ClaimedMail, Mailbox, MailOutcome, MailResult
from booking_core.payments import (
    ClaimedRefund,
    RefundResult,
    SandboxCard,
    new_sandbox_checkout_intent,
    new_sandbox_intent,
    stripe_accounts,
)
from booking_core.upkeep import backlog, doctor
from booking_server.adapters.webhook_client import Sent
from booking_server.worker.jobs.expiry import ExpiryJob
from booking_server.worker.jobs.mail import MailJob
from booking_server.worker.jobs.payments import PaymentCheckJob, RefundJob, refund_job
from booking_server.worker.process import Worker

SENDER = Mailbox("Booking Office", "office@book.example")
"""Of the installation."""


@dataclass
class Outside:
    """The mail server, the gateway and the receivers of an installation, which note everything that reaches them."""

    delivers = True
    mails: list[ClaimedMail] = field(default_factory=list)
    refunds: list[ClaimedRefund] = field(default_factory=list)
    attempts: list[tuple[str, int]] = field(default_factory=list)
    """URL and signed timestamp."""

    async def send(self, target: Any, *rest: Any) -> Any:
        """Take mails, as a `Mailer`, or an attempt of a delivery, as a `Sender`, which fails."""
        if not isinstance(target, str):
            self.mails.extend(target)
            return await rest[0]([MailResult(mail, MailOutcome.SENT) for mail in target])
        signature = dict(rest[0])["Svc-Signature"]
        timestamp = next(part for part in signature.split(",") if part.startswith("t="))
        self.attempts.append((target, int(timestamp[2:])))
        return Sent(500, "no", AttemptError.HTTP_STATUS, 5)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def look_up(self, api_key: str, intent_id: str) -> IntentUpdate:
        raise AssertionError("a sandbox asks no Stripe")

    cancel = look_up

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        self.refunds.append(claimed)
        raise ConnectionError


def expiry_job(world: World) -> ExpiryJob:
    return ExpiryJob(world.database, world.installation, elapsed_s=lambda: world.clock() / SECOND)


class Sandbox:
    """A sandbox with its key, and the live organization beside it."""

    def __init__(self, world: World, outside: Outside) -> None:
        self.world, self.outside = world, outside
        self.shop = Operations(world)
        self.departure = world.departure(world.experience(), starts_at=world.clock() + 30 * DAY)

    def worker(self) -> Worker:
        """Make a worker with the jobs that a sandbox's clock moves."""
        world, outside = self.world, self.outside
        database, installation = world.database, world.installation
        refunds, mails = RefundJob(database, outside), MailJob(database, installation, outside, SENDER)
        settings = Settings(database_url=str(database.url), secret_key=SECRET)
        jobs = [expiry_job(world), refunds, PaymentCheckJob(database, installation, outside), mails]
        return Worker(settings, database, installation, outside, jobs)

    def caller(self) -> Caller:
        offset = self.world.database.read(lambda tx: organizations.by_id(tx, self.world.org)).clock_offset
        organization = replace(self.world.organization, clock_offset=offset)
        return replace(self.world.caller(), organization=organization, at=organization.instant(self.world.clock()))

    def advance(self, seconds: int) -> dict[str, Any]:
        request = SandboxClockAdvance(seconds=seconds)
        return self.world.database.write(lambda tx: sandboxes.advance(tx, self.caller(), request))

    def clock(self) -> dict[str, Any]:
        caller = self.caller()

        def read(tx: Any) -> dict[str, Any]:
            tx.instant = caller.at
            return sandboxes.clock(tx, caller)

        return self.world.database.read(read)

    def work(self) -> None:
        """Run a worker until nothing is due."""
        asyncio.run(self.worker().run_once())

    def checkout(self) -> str:
        """Return the id of a checkout over HTTP, whose guest can pay."""
        guests, customer = [{"tier_id": "adult", "count": 1}], {"name": "Ada", "email": "ada@example.com"}
        body = {"experience_date_id": self.departure, "guests": guests, "customer": customer}
        request, caller = CheckoutCreate.model_validate(body), self.caller()
        write = self.world.database.write
        booking_id: str = orjson.loads(write(lambda tx: checkouts.create(tx, caller, request)))["id"]
        intent_id = new_sandbox_checkout_intent(booking_id)
        write(lambda tx: checkouts.record_intent(tx, caller, booking_id, intent_id, f"{intent_id}_secret_1"))
        return booking_id

    def pay(self, checkout_id: str, card: SandboxCard) -> dict[str, Any]:
        caller = self.caller()
        paid = self.world.database.write(lambda tx: checkouts.pay_in_sandbox(tx, caller, checkout_id, card))
        checkout: dict[str, Any] = orjson.loads(orjson.dumps(paid))
        return checkout

    def intent(self, checkout_id: str) -> dict[str, Any]:
        (row,) = [row for row in self.world.rows(tables.payment_intents) if row["booking_id"] == checkout_id]
        return row

    def booking(self, booking_id: str) -> dict[str, Any]:
        return self.world.row(tables.bookings, booking_id)

    def refund(self) -> dict[str, Any]:
        (row,) = self.world.rows(tables.refunds)
        return row


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def sandbox(module_database: Database, clock: FixedClock, outside: Outside) -> Sandbox:
    return Sandbox(make_world(module_database, clock, clock_offset=0), outside)


@pytest.fixture
def live(module_database: Database, clock: FixedClock, outside: Outside) -> Sandbox:
    """A live organization beside it, with the same calls except calls of the clock."""
    return Sandbox(make_world(module_database, clock), outside)


def test_the_clock_of_a_sandbox_expires_only_its_own_checkouts(sandbox: Sandbox, live: Sandbox) -> None:
    sandbox_checkout, live_checkout = sandbox.shop.check_out(sandbox.departure), live.shop.check_out(live.departure)
    sandbox.advance(29 * 60)
    sandbox.work()
    assert sandbox.booking(sandbox_checkout["id"])["status"] == "pending"
    assert sandbox.advance(2 * 60)["due"]["bookings"] == 1
    sandbox.work()
    assert sandbox.booking(sandbox_checkout["id"])["status"] == "cancelled"
    assert sandbox.booking(sandbox_checkout["id"])["cancelled_at"] == NOON + 31 * MINUTE
    assert live.booking(live_checkout["id"])["status"] == "pending"


def test_everything_that_is_due_is_done_once_the_clock_is_ready(sandbox: Sandbox) -> None:
    sandbox.shop.check_out(sandbox.departure)
    assert sandbox.clock()["status"] == "ready"
    assert sandbox.advance(HOUR // SECOND)["status"] == "advancing"
    sandbox.work()
    clock = sandbox.clock()
    assert (clock["status"], clock["offset_seconds"]) == ("ready", 3600)
    assert set(clock["due"].values()) == {0}


def test_mails_of_a_sandbox_are_captured_and_reach_no_mail_server(sandbox: Sandbox, live: Sandbox) -> None:
    sandbox.shop.book(sandbox.departure)
    live.shop.book(live.departure)
    sandbox.work()
    assert {mail.organization_id for mail in sandbox.outside.mails} == {live.world.org}
    page = sandbox.world.database.read(lambda tx: sandboxes.find_mails(tx, sandbox.caller(), PageRequest(1)))
    (mail,) = page["data"]
    assert page["has_more"]
    assert "Fjord kayak" in mail["subject"] + mail["text"]
    assert mail["html"].startswith("<!DOCTYPE html>") or "<html" in mail["html"]
    assert {row["status"] for row in sandbox.world.rows(tables.mails)} == {"sent"}


def paid_by_hand(sandbox: Sandbox, card: SandboxCard) -> str:
    booking_id = str(sandbox.shop.check_out(sandbox.departure)["id"])
    sandbox.shop.pay(booking_id, new_sandbox_intent(card, booking_id))
    return booking_id


def paid_by_the_guest(sandbox: Sandbox, card: SandboxCard) -> str:
    checkout = sandbox.checkout()
    sandbox.advance(HOUR // SECOND // 4)
    assert sandbox.pay(checkout, SandboxCard.DECLINED)["status"] == "declined"
    assert sandbox.pay(checkout, card)["checkout"]["booking"]["status"] == "confirmed"
    return checkout


@pytest.mark.one_database
@pytest.mark.parametrize("pay", [paid_by_hand, paid_by_the_guest])
@pytest.mark.parametrize(
    ("card", "statuses"),
    [
        (SandboxCard.VISA, ["succeeded"]),
        (SandboxCard.REFUND_FAIL, ["failed"]),
        (SandboxCard.PENDING_REFUND, ["sending", "succeeded"]),
        (SandboxCard.REFUND_UNAVAILABLE, ["sending", "sending", "succeeded"]),
    ],
)
def test_the_test_card_decides_the_refunds_of_a_sandbox(
    sandbox: Sandbox, pay: Callable[[Sandbox, SandboxCard], str], card: SandboxCard, statuses: list[str]
) -> None:
    sandbox.shop.cancel(pay(sandbox, card))
    for status in statuses:
        sandbox.work()
        assert sandbox.refund()["status"] == status
        sandbox.advance(15 * 60)
    assert sandbox.outside.refunds == []


def test_a_refund_in_the_dashboard_can_be_played(sandbox: Sandbox) -> None:
    paid = sandbox.pay(sandbox.checkout(), SandboxCard("pm_card_dashboardRefund"))
    booking = paid["checkout"]["booking"]
    assert (paid["status"], booking["status"], booking["payment"]["status"]) == ("succeeded", "confirmed", "refunded")
    events = sorted(sandbox.world.rows(tables.events), key=lambda row: row["sequence"])
    assert [row["type"] for row in events if row["resource_id"] == booking["id"]][-2:] == [
        "booking.confirmed",
        "booking.refunded",
    ]
    sandbox.work()
    assert sandbox.outside.refunds == []
    assert sandbox.world.examine() == []


def test_an_ended_sandbox_checkout_cancels_its_payment_without_stripe(sandbox: Sandbox) -> None:
    checkout = sandbox.checkout()
    sandbox.advance(29 * 60)
    assert sandbox.clock()["due"]["payments"] == 1
    sandbox.work()
    assert (sandbox.intent(checkout)["status"], sandbox.clock()["status"]) == ("open", "ready")
    sandbox.advance(3 * 60)
    sandbox.work()
    assert (sandbox.booking(checkout)["status"], sandbox.intent(checkout)["status"]) == ("cancelled", "canceled")
    assert sandbox.clock()["status"] == "ready"
    with pytest.raises(Conflict) as caught:
        sandbox.pay(checkout, SandboxCard.VISA)
    assert caught.value.reason == "checkout_expired"


def test_refunds_of_a_sandbox_are_made_where_there_is_no_gateway(sandbox: Sandbox, live: Sandbox) -> None:
    for organization in (sandbox, live):
        booking = organization.shop.check_out(organization.departure)
        organization.shop.pay(booking["id"])
        organization.shop.cancel(booking["id"])
    asyncio.run(refund_job(Settings(), sandbox.world.database, sandbox.world.installation).run_once())
    assert sandbox.refund()["status"] == "succeeded"
    assert live.refund()["status"] == "needs_review"


def test_a_sandbox_takes_no_stripe_account(sandbox: Sandbox, live: Sandbox) -> None:
    def configure(tx: Tx, actor: Actor) -> Any:
        return stripe_accounts.configure(tx, actor, api_key="sk_live_12345678", webhook_secret="whsec_12345678")

    assert sandbox.shop.refusal(sandbox.shop.act, configure) == ("conflict", "is_a_sandbox")
    account = live.shop.act(configure)
    assert (account["api_key"], account["webhook_secret"]) == ("sk_live_...", "whsec_...")
    has_account = sandbox.world.database.read(lambda tx: stripe_accounts.exists(tx, sandbox.world.org))
    assert not has_account


def test_retries_of_webhooks_follow_the_clock_and_signatures_the_real_time(sandbox: Sandbox) -> None:
    url = f"https://hooks.example/{sandbox.world.org}"
    Hooks(sandbox.world).endpoint(EventType.BOOKING_CREATED, url=url)
    sandbox.shop.book(sandbox.departure)
    attempts = []
    for wait_s in (0, 63, 63, 317, 1890):  # after one attempt a minute, then five, then thirty; with the longest jitter
        if wait_s:
            sandbox.advance(wait_s)
        sandbox.work()
        attempts.append([at for to, at in sandbox.outside.attempts if to == url])
    assert [len(instants) for instants in attempts] == [1, 2, 2, 3, 4]
    assert set(attempts[-1]) == {NOON // SECOND}
    started = sorted(row["started_at"] for row in sandbox.world.rows(tables.attempts))
    assert [at - NOON for at in started] == [0, 63 * SECOND, 443 * SECOND, 2333 * SECOND]


def test_a_moved_clock_cancels_departures_under_their_minimum(
    module_database: Database, clock: FixedClock, outside: Outside
) -> None:
    world = make_world(module_database, clock, clock_offset=0, cancel_under_minimum=True)
    job = expiry_job(world)
    sandbox = Sandbox(world, outside)
    departure = world.departure(world.experience(min_participants=4), starts_at=clock() + 2 * DAY)
    sandbox.shop.book(departure)
    asyncio.run(job.run_once())
    sandbox.advance(2 * DAY // SECOND)
    clock.advance(SECOND)  # far less than the interval of the check
    asyncio.run(job.run_once())
    assert sandbox.world.row(tables.departures, departure)["status"] == "cancelled"


def test_repeated_clock_moves_of_a_sandbox_cost_others_no_batch(
    module_database: Database, clock: FixedClock, outside: Outside
) -> None:
    sandbox = Sandbox(make_world(module_database, clock, clock_offset=0), outside)
    live = Sandbox(make_world(module_database, clock, pending_minutes=1), outside)
    job = expiry_job(live.world)
    asyncio.run(job.run_once())
    for turn in range(3):
        sandbox_checkout = sandbox.shop.check_out(sandbox.departure)
        live_checkout = live.shop.check_out(live.departure)
        sandbox.advance(HOUR // SECOND)
        clock.advance(2 * MINUTE)
        assert asyncio.run(job.run_turn(asyncio.Event())) == 2, turn
        assert live.booking(live_checkout["id"])["cancelled_at"] == clock()
        assert sandbox.booking(sandbox_checkout["id"])["status"] == "cancelled"


def test_a_moved_clock_makes_nothing_late_in_metrics_or_doctor(sandbox: Sandbox) -> None:
    sandbox.shop.check_out(sandbox.departure)
    sandbox.shop.hold(sandbox.departure, 1)
    sandbox.advance(400 * DAY // SECOND)
    sandbox.shop.world.key()
    options = doctor.CheckOptions(overdue_s=300, skew_s=0)
    examine = lambda: sandbox.world.database.read(lambda tx: doctor.examine(tx, sandbox.world.org, options))  # noqa: E731
    assert examine() == []
    assert all(entry.age_s == 0 for entry in sandbox.world.database.read(backlog.read))
    sandbox.work()
    assert examine() == []


def test_the_doctor_measures_a_sandbox_by_its_own_clock(sandbox: Sandbox) -> None:
    sandbox.advance(30 * DAY // SECOND)
    held_until = sandbox.caller().at + HOUR
    row = {"departure_id": sandbox.departure, "seats": 1, "created_at": held_until - HOUR}
    hold = sandbox.world.insert(tables.holds, **row, expires_at=held_until)
    assert sandbox.world.examine() == []
    sandbox.world.change(tables.holds, hold, expires_at=held_until + 30 * DAY)
    assert [findings.subject for findings in sandbox.world.examine()] == [hold]
    findings = sandbox.world.database.read(doctor.examine)
    assert [finding.subject for finding in findings if finding.organization_id == sandbox.world.org] == [hold]
    sandbox.world.change(tables.holds, hold, expires_at=held_until)


def test_a_worker_sends_no_more_statements_once_it_has_followed_the_clock(sandbox: Sandbox, clock: FixedClock) -> None:
    worker = sandbox.worker()

    def statements_of_a_turn() -> int:
        texts: list[str] = []
        clock.advance(SECOND)
        sandbox.world.database.observer = texts.append
        asyncio.run(worker.run_once())
        sandbox.world.database.observer = None
        return len(texts)

    statements_of_a_turn()
    before = statements_of_a_turn()
    sandbox.advance(60)
    assert statements_of_a_turn() > before
    assert statements_of_a_turn() == before
