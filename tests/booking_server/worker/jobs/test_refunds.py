"""The refund job: a limited number of calls at once, no transaction during a call, and every refund is settled."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from support.databases import databases, due
from support.receivers.stripe_ledger import KEY, OTHER_KEY, Fault, Ledger, stripe
from support.world.checkouts import configure
from support.world.money import TOTAL, Till
from support.world.world import HOUR, FixedClock, make_world

from booking_core import payments
from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.settings import Settings
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult
from booking_server.adapters.stripe import StripeGateway
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.jobs.payments import REFUNDS_IN_FLIGHT_MAX, REFUNDS_OF_ONE_MAX, RefundJob, refund_job


@pytest.fixture
def till(module_database: Database, clock: FixedClock) -> Iterator[Till]:
    """An organization in a database of this module: the job sends the due refunds of every organization.

    At the end no refund is left due for the next test.
    """
    yield Till(make_world(module_database, clock))
    module_database.observer = None
    url = module_database.url.render_as_string(hide_password=False)
    databases.run(url, "UPDATE refunds SET next_attempt_at = NULL")


@dataclass
class ScriptedGateway:
    """A gateway that runs a function of the test, and counts its calls."""

    act: Callable[[ClaimedRefund], RefundOutcome] = lambda _: RefundOutcome.REFUNDED
    calls: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        with self._lock:
            self.calls[claimed.booking_id] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return RefundResult(claimed, self.act(claimed), f"re_{claimed.id}")
        finally:
            with self._lock:
                self.at_once -= 1


def run(job: RefundJob, *, turns: int = 1) -> list[int]:
    """Run turns, close the job, and return the count of each turn."""

    async def work() -> list[int]:
        try:
            return [await job.run_once() for _ in range(turns)]
        finally:
            await job.close()

    return asyncio.run(work())


def statuses(till: Till) -> Counter[str]:
    return Counter(row["status"] for row in till.world.rows(tables.refunds))


def test_each_refund_is_sent_once_within_the_share_of_its_organization(till: Till) -> None:
    booking_ids = [till.with_refund() for _ in range(2 * REFUNDS_IN_FLIGHT_MAX + 1)]
    full = threading.Barrier(REFUNDS_OF_ONE_MAX)
    places = iter(range(REFUNDS_OF_ONE_MAX))

    def act(_: ClaimedRefund) -> RefundOutcome:
        if next(places, None) is not None:
            full.wait(timeout=60)  # breaks unless the first calls all run at once
        return RefundOutcome.REFUNDED

    gateway = ScriptedGateway(act)
    assert run(RefundJob(till.world.database, gateway), turns=2) == [len(booking_ids), 0]
    assert gateway.most_at_once == REFUNDS_OF_ONE_MAX
    assert gateway.calls == dict.fromkeys(booking_ids, 1)
    assert statuses(till) == {"succeeded": len(booking_ids)}
    assert {row["status"] for row in till.world.rows(tables.payments)} == {"refunded"}


def test_a_stopping_worker_settles_its_sent_refunds_and_claims_no_other(till: Till) -> None:
    for _ in range(REFUNDS_OF_ONE_MAX + 1):
        till.with_refund()
    job, stop = RefundJob(till.world.database, ScriptedGateway()), asyncio.Event()

    async def work() -> None:
        assert await job.run_turn(stop) == REFUNDS_OF_ONE_MAX
        stop.set()
        assert await job.run_turn(stop) == 0
        await job.close()

    asyncio.run(work())
    assert statuses(till) == {"succeeded": REFUNDS_OF_ONE_MAX, "requested": 1}


def test_no_transaction_is_open_during_a_call(till: Till) -> None:
    booking_id = till.with_refund()
    in_call: list[str] = []

    def act(claimed: ClaimedRefund) -> RefundOutcome:
        # On SQLite, which has one writer, this would wait without end.
        till.world.change(tables.bookings, booking_id, note="changed meanwhile")
        in_call.append(till.refund(booking_id)["status"])
        return RefundOutcome.REFUNDED

    run(RefundJob(till.world.database, ScriptedGateway(act)))
    assert in_call == ["sending"]
    assert statuses(till) == {"succeeded": 1}


@pytest.mark.one_database
def test_a_slow_refund_delays_no_other(till: Till) -> None:
    slow = till.with_refund()
    for _ in range(2 * REFUNDS_IN_FLIGHT_MAX):
        till.with_refund()
    others_are_settled = threading.Event()

    def act(claimed: ClaimedRefund) -> RefundOutcome:
        if claimed.booking_id == slow:
            assert others_are_settled.wait(timeout=60)
        elif statuses(till)["succeeded"] >= REFUNDS_IN_FLIGHT_MAX:
            others_are_settled.set()
        return RefundOutcome.REFUNDED

    run(RefundJob(till.world.database, ScriptedGateway(act)))
    assert others_are_settled.is_set()
    assert statuses(till) == {"succeeded": 2 * REFUNDS_IN_FLIGHT_MAX + 1}


def test_a_bug_in_a_refund_leaves_its_lease_and_all_other_results(till: Till, caplog: pytest.LogCaptureFixture) -> None:
    wrong, others = till.with_refund(), [till.with_refund() for _ in range(3)]
    has_failed = threading.Event()

    def act(claimed: ClaimedRefund) -> RefundOutcome:
        if claimed.booking_id == wrong:
            has_failed.set()
            raise ZeroDivisionError
        assert has_failed.wait(timeout=20)
        return RefundOutcome.REFUNDED

    assert run(RefundJob(till.world.database, ScriptedGateway(act), lease_s=30)) == [4]
    assert "ZeroDivisionError" in caplog.text
    assert {till.refund(booking_id)["status"] for booking_id in others} == {"succeeded"}
    assert till.refund(wrong)["status"] == "sending"
    assert run(RefundJob(till.world.database, ScriptedGateway())) == [0]
    till.world.clock.advance(30 * SECOND)
    assert run(RefundJob(till.world.database, ScriptedGateway())) == [1]
    assert till.payment(wrong)["status"] == "refunded"


def test_a_refund_whose_lease_has_expired_is_not_sent(till: Till) -> None:
    booking_id = till.with_refund()
    gateway = ScriptedGateway()
    job = RefundJob(till.world.database, gateway, lease_s=0)

    async def turn() -> None:
        (claimed,) = await asyncio.to_thread(due.claim_refunds, till.world, lease_s=0)
        till.world.clock.advance(25 * HOUR)
        answered = await job.carry_out([claimed])
        assert (answered.outcome, answered.reason) == (RefundOutcome.UNKNOWN, "lease_lost")
        await job.close()

    asyncio.run(turn())
    assert gateway.calls == {}
    assert till.refund(booking_id)["status"] == "sending"


# With and without a gateway --------------------------------------------------------------------------------------


def test_without_a_stripe_key_refunds_are_recorded_for_staff(till: Till) -> None:
    booking_ids = [till.with_refund() for _ in range(3)]
    settings = Settings(database_url=till.world.database.url.render_as_string(hide_password=False))
    jobs = periodic_jobs(settings, till.world.database, till.world.installation)
    (job,) = [candidate for candidate in jobs if isinstance(candidate, RefundJob)]
    assert run(job, turns=2) == [3, 0]
    assert statuses(till) == {"needs_review": 3}
    assert sorted(till.staff_mails()) == sorted(booking_ids)


@pytest.mark.parametrize(
    ("own_key", "default_key", "answers", "keys", "status"),
    [
        pytest.param(OTHER_KEY, None, {OTHER_KEY: None}, [OTHER_KEY], "succeeded", id="its only account"),
        pytest.param(None, KEY, {KEY: None}, [KEY], "succeeded", id="the installation's only account"),
        pytest.param(OTHER_KEY, KEY, {KEY: None}, [OTHER_KEY, KEY], "succeeded", id="the installation's"),
        pytest.param(
            OTHER_KEY, KEY, {OTHER_KEY: "charge_disputed"}, [OTHER_KEY], "failed", id="its own, which refuses"
        ),
        pytest.param(OTHER_KEY, KEY, {}, [OTHER_KEY, KEY], "failed", id="neither"),
    ],
)
def test_a_refund_is_made_by_the_account_that_took_the_payment(
    till: Till,
    monkeypatch: pytest.MonkeyPatch,
    own_key: str | None,
    default_key: str | None,
    answers: dict[str, str | None],
    keys: list[str],
    status: str,
) -> None:
    """The account of the organization, or of the installation for payments that are older."""
    keys_used: list[str] = []

    class Account:
        def __init__(self, key: str, base_url: str | None) -> None:
            self.key = key

        def refund(self, claimed: ClaimedRefund) -> RefundResult:
            keys_used.append(self.key)
            reason = answers.get(self.key, "resource_missing")
            return RefundResult(claimed, RefundOutcome.REFUSED if reason else RefundOutcome.REFUNDED, "re_1", reason)

    monkeypatch.setattr("booking_server.adapters.stripe.StripeGateway", Account)
    if own_key:
        configure(till.world, api_key=own_key)
    booking_id = till.with_refund()
    run(refund_job(Settings(stripe_api_key=default_key), till.world.database, till.world.installation))
    assert (keys_used, till.refund(booking_id)["status"]) == (keys, status)


def reopen(till: Till, booking_id: str) -> None:
    refund_id = till.refund(booking_id)["id"]
    till.world.database.write(lambda tx: payments.reopen_refund(tx, till.actor, refund_id))


@pytest.mark.exhaustive(but=("sqlite-error_after", "sqlite-conflict"))
@pytest.mark.one_database
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.TIMEOUT_AFTER])
def test_money_is_returned_once_however_often_staff_reopens_the_refund(till: Till, fault: Fault) -> None:
    """Half of the payment is to be refunded: the gateway would not refuse to return it a second time."""
    booking_id = till.with_refund()
    till.world.change(tables.refunds, till.refund(booking_id)["id"], amount_minor=TOTAL // 2)
    with stripe() as ledger:
        ledger.charge(f"pi_{booking_id}", TOTAL)
        ledger.refusals[f"pi_{booking_id}"] = "balance_insufficient"
        job = RefundJob(till.world.database, StripeGateway(KEY, ledger.base_url))
        for _ in range(3):
            asyncio.run(job.run_once())
            assert till.refund(booking_id)["status"] == "failed"
            reopen(till, booking_id)
        del ledger.refusals[f"pi_{booking_id}"]
        ledger.next_faults += [None, fault]  # the look-up, and the request for the refund
        for _ in range(3):
            asyncio.run(job.run_once())
            till.world.clock.advance(5 * MINUTE)
        asyncio.run(job.close())
        assert till.refund(booking_id)["status"] == "succeeded"
        assert [refund["amount"] for refund in ledger.refunds(f"pi_{booking_id}")] == [TOTAL // 2]


# Many faults, in simulated time ------------------------------------------------------------------------


@dataclass
class Simulation:
    """The job, and a Stripe server that shares its clock."""

    till: Till
    ledger: Ledger

    def with_refunds(self, count: int) -> list[str]:
        booking_ids = []
        for number in range(count):
            booking_id = self.till.with_refund(amount_minor := 1_000 + number)
            self.ledger.charge(f"pi_{booking_id}", 2 * amount_minor)  # room for a second refund, were there one
            booking_ids.append(booking_id)
        return booking_ids

    def advance(self, micros: int) -> None:
        self.till.world.clock.advance(micros)
        self.ledger.ahead_s += micros / SECOND

    def work(self) -> None:
        is_failing = self.ledger.rate > 0 or self.ledger.next_faults
        # A healthy server gets more time: on a busy machine it may be slow.
        gateway = StripeGateway(KEY, self.ledger.base_url, read_s=0.2 if is_failing else 10)
        run(RefundJob(self.till.world.database, gateway))

    def work_for(self, micros: int, step: int) -> None:
        for _ in range(micros // step):
            self.work()
            self.advance(step)
        self.work()

    def recover(self) -> None:
        """Let Stripe work again, for ten minutes."""
        self.ledger.rate = 0.0
        self.work_for(10 * MINUTE, MINUTE)

    def each_was_refunded_once(self, booking_ids: list[str]) -> None:
        for number, booking_id in enumerate(booking_ids):
            refund, payment = self.till.refund(booking_id), self.till.payment(booking_id)
            ((given_back, name, refund_id),) = [
                (entry["amount"], entry["metadata"]["refund_id"], entry["id"])
                for entry in self.ledger.refunds(f"pi_{booking_id}")
            ]
            assert given_back == payment["refunded_minor"] == refund["amount_minor"] == 1_000 + number
            assert (name, refund_id) == (refund["id"], refund["provider_refund_id"])
            assert (refund["status"], payment["status"]) == ("succeeded", "refunded")
        assert set(self.ledger.keys()) == {f"refund-{self.till.refund(booking_id)['id']}" for booking_id in booking_ids}


@pytest.fixture
def simulation(till: Till) -> Iterator[Simulation]:
    with stripe() as ledger:
        yield Simulation(till, ledger)


@pytest.mark.exhaustive(but="postgresql")
def test_each_booking_is_refunded_once_despite_many_faults(simulation: Simulation) -> None:
    booking_ids = simulation.with_refunds(60)
    simulation.ledger.rate = 0.35
    simulation.ledger.kinds = list(Fault)
    simulation.work_for(10 * MINUTE, 30 * SECOND)
    simulation.recover()
    simulation.each_was_refunded_once(booking_ids)
    assert len(simulation.ledger.met) > 4


@pytest.mark.one_database
@pytest.mark.exhaustive(but="postgresql")
def test_ten_minutes_settle_all_refunds_after_a_day_of_outage(simulation: Simulation) -> None:
    booking_ids = simulation.with_refunds(24)
    ledger = simulation.ledger
    # The last responses before the outage: some refunds were made without a response.
    ledger.next_faults += [Fault.TIMEOUT_AFTER, Fault.ERROR_BEFORE, Fault.ERROR_AFTER] * 8
    simulation.work()
    ledger.rate, ledger.kinds = 1.0, [Fault.DROPPED_BEFORE, Fault.ERROR_BEFORE]
    simulation.work_for(25 * HOUR, 2 * HOUR + 30 * MINUTE)
    assert statuses(simulation.till) == {"sending": 24}
    simulation.recover()
    simulation.each_was_refunded_once(booking_ids)
