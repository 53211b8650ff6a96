"""The chore of refunds: many at once within a bound, no transaction during a call, and in the end each is settled."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from support.money import TOTAL, Till, till_of
from support.stripe_ledger import KEY, Fault, Ledger, stripe
from support.world import HOUR, FixedClock, World, make_world

from booking_core import payments
from booking_core.clock import MINUTE, SECOND
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.payments import Answered, Claimed, Outcome, rules
from booking_core.settings import Settings
from booking_server.adapters.stripe import StripeGateway
from booking_server.worker.jobs.periodic import chores_of
from booking_server.worker.jobs.refunds import IN_FLIGHT, Refunding, refunding

TURN_S = 600.0
"""For turns that are to do all there is: a busy machine may need more than the usual time of one."""


@pytest.fixture(scope="module")
def module_database(
    backend: str, new_database_url: Callable[[str], str], session_clock: FixedClock
) -> Iterator[Database]:
    database = Database(new_database_url(backend), clock=session_clock)
    yield database
    database.close()


@pytest.fixture
def till(module_database: Database, clock: FixedClock) -> Iterator[Till]:
    with till_of(module_database, clock) as made:
        yield made


@dataclass
class Scripted:
    """A gateway that does what it is told, and counts."""

    act: Callable[[Claimed], Outcome] = lambda _: Outcome.REFUNDED
    calls: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def refund(self, claimed: Claimed) -> Answered:
        with self._lock:
            self.calls[claimed.booking_id] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return Answered(claimed, self.act(claimed), f"re_{claimed.id}")
        finally:
            with self._lock:
                self.at_once -= 1


def run(chore: Refunding, *, turns: int = 1) -> list[int]:
    """What each turn gave; then the chore is closed."""

    async def work() -> list[int]:
        try:
            return [await chore.run_once() for _ in range(turns)]
        finally:
            await chore.close()

    return asyncio.run(work())


def statuses(till: Till) -> Counter[str]:
    return Counter(row["status"] for row in till.world.rows(tables.refunds))


def test_a_turn_settles_all_that_is_due(till: Till) -> None:
    made = [till.owed() for _ in range(3 * IN_FLIGHT)]
    gateway = Scripted()
    assert run(Refunding(till.world.database, gateway, turn_s=TURN_S), turns=2) == [len(made), 0]
    assert gateway.calls == dict.fromkeys(made, 1)
    assert statuses(till) == {"succeeded": len(made)}
    assert {row["status"] for row in till.world.rows(tables.payments)} == {"refunded"}


def test_many_are_sent_at_once_and_never_more_than_the_bound(till: Till) -> None:
    for _ in range(2 * IN_FLIGHT + 1):
        till.owed()
    full = threading.Barrier(IN_FLIGHT)
    left = iter(range(IN_FLIGHT))

    def act(_: Claimed) -> Outcome:
        if next(left, None) is not None:
            full.wait(timeout=60)  # breaks when the first of them do not all come together
        return Outcome.REFUNDED

    gateway = Scripted(act)
    run(Refunding(till.world.database, gateway, turn_s=TURN_S))
    assert gateway.most_at_once == IN_FLIGHT
    assert statuses(till) == {"succeeded": 2 * IN_FLIGHT + 1}


def test_a_turn_that_lasts_takes_nothing_new(till: Till) -> None:
    for _ in range(2 * IN_FLIGHT + 1):
        till.owed()
    chore = Refunding(till.world.database, Scripted(), turn_s=0)
    assert run(chore, turns=4) == [IN_FLIGHT, IN_FLIGHT, 1, 0]


def test_no_transaction_is_open_during_a_call(till: Till) -> None:
    booking_id = till.owed()
    seen: list[str] = []

    def act(claimed: Claimed) -> Outcome:
        # On SQLite, which has one writer, this would wait in vain.
        till.world.change(tables.bookings, booking_id, note="changed meanwhile")
        seen.append(till.refund(booking_id)["status"])
        return Outcome.REFUNDED

    run(Refunding(till.world.database, Scripted(act)))
    assert seen == ["sending"]
    assert statuses(till) == {"succeeded": 1}


def test_one_that_hangs_holds_up_no_other(till: Till) -> None:
    slow = till.owed()
    for _ in range(2 * IN_FLIGHT):
        till.owed()
    others_are_settled = threading.Event()

    def act(claimed: Claimed) -> Outcome:
        if claimed.booking_id == slow:
            assert others_are_settled.wait(timeout=60)
        elif statuses(till)["succeeded"] >= IN_FLIGHT:
            others_are_settled.set()
        return Outcome.REFUNDED

    run(Refunding(till.world.database, Scripted(act), turn_s=TURN_S))
    assert others_are_settled.is_set()
    assert statuses(till) == {"succeeded": 2 * IN_FLIGHT + 1}


def test_a_fault_of_ours_leaves_a_lease_that_runs_out(till: Till, caplog: pytest.LogCaptureFixture) -> None:
    booking_id = till.owed()

    def fail(_: Claimed) -> Outcome:
        raise ZeroDivisionError

    assert run(Refunding(till.world.database, Scripted(fail), lease_s=30)) == [1]
    assert "ZeroDivisionError" in caplog.text
    assert till.refund(booking_id)["status"] == "sending"
    assert run(Refunding(till.world.database, Scripted())) == [0]
    till.world.clock.advance(30 * SECOND)
    assert run(Refunding(till.world.database, Scripted())) == [1]
    assert till.payment(booking_id)["status"] == "refunded"


def test_what_slept_through_its_lease_is_not_sent(till: Till) -> None:
    booking_id = till.owed()
    gateway = Scripted()
    chore = Refunding(till.world.database, gateway, lease_s=0)

    async def turn() -> None:
        (claimed,) = await chore._claim(1)
        till.world.clock.advance(25 * HOUR)
        answered = await chore._start(gateway, claimed)
        assert (answered.outcome, answered.reason) == (Outcome.UNKNOWN, "lease_lost")
        await chore.close()

    asyncio.run(turn())
    assert gateway.calls == {}
    assert till.refund(booking_id)["status"] == "sending"


# With and without a gateway --------------------------------------------------------------------------------------


def test_without_a_stripe_key_refunds_are_recorded_for_staff(till: Till) -> None:
    made = [till.owed() for _ in range(3)]
    url = till.world.database.url.render_as_string(hide_password=False)
    chore = refunding(Settings(database_url=url), till.world.database)
    assert run(chore, turns=2) == [3, 0]
    assert statuses(till) == {"needs_review": 3}
    assert sorted(till.staff_mails()) == sorted(made)


def reopen(till: Till, booking_id: str) -> None:
    refund_id = till.refund(booking_id)["id"]
    till.world.database.write(lambda tx: payments.reopen_refund(tx, till.actor, refund_id))


def test_what_waited_for_a_gateway_is_sent_to_it_once_staff_asks(till: Till) -> None:
    booking_id = till.owed()
    url = till.world.database.url.render_as_string(hide_password=False)
    assert run(refunding(Settings(database_url=url), till.world.database)) == [1]
    with stripe() as ledger:
        ledger.charge(f"pi_{booking_id}", TOTAL)
        settings = Settings(database_url=url, stripe_api_key=KEY, stripe_base_url=ledger.base_url)
        assert run(refunding(settings, till.world.database)) == [0]
        reopen(till, booking_id)
        assert run(refunding(settings, till.world.database)) == [1]
        assert [refund["amount"] for refund in ledger.refunds(f"pi_{booking_id}")] == [TOTAL]
    assert till.payment(booking_id)["status"] == "refunded"


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.TIMEOUT_AFTER])
def test_however_often_staff_asks_again_the_money_goes_back_once(till: Till, fault: Fault) -> None:
    """Half of the payment is owed, so that the gateway would not refuse to return it a second time."""
    booking_id = till.owed()
    till.world.change(tables.refunds, till.refund(booking_id)["id"], amount_minor=TOTAL // 2)
    with stripe() as ledger:
        ledger.charge(f"pi_{booking_id}", TOTAL)
        ledger.refusals[f"pi_{booking_id}"] = "balance_insufficient"
        chore = Refunding(till.world.database, StripeGateway(KEY, ledger.base_url))
        for _ in range(3):
            asyncio.run(chore.run_once())
            assert till.refund(booking_id)["status"] == "failed"
            reopen(till, booking_id)
        del ledger.refusals[f"pi_{booking_id}"]
        ledger.next_faults += [None, fault]  # the look, and what asks for the refund
        for _ in range(3):
            asyncio.run(chore.run_once())
            till.world.clock.advance(5 * MINUTE)
        asyncio.run(chore.close())
        assert till.refund(booking_id)["status"] == "succeeded"
        assert [refund["amount"] for refund in ledger.refunds(f"pi_{booking_id}")] == [TOTAL // 2]


def test_with_a_stripe_key_they_go_there(till: Till) -> None:
    booking_id = till.owed()
    with stripe() as ledger:
        ledger.charge(f"pi_{booking_id}", TOTAL)
        settings = Settings(stripe_api_key=KEY, stripe_base_url=ledger.base_url)
        (chore,) = [each for each in chores_of(settings, till.world.database, till.world.installation) if named(each)]
        assert isinstance(chore, Refunding)
        assert run(chore) == [1]
        assert [refund["amount"] for refund in ledger.refunds(f"pi_{booking_id}")] == [TOTAL]
    assert till.refund(booking_id)["provider_refund_id"] == "re_000001"


def test_a_fault_of_ours_takes_no_answer_of_others_with_it(till: Till) -> None:
    wrong, others = till.owed(), [till.owed() for _ in range(3)]
    has_failed = threading.Event()

    def act(claimed: Claimed) -> Outcome:
        if claimed.booking_id == wrong:
            has_failed.set()
            raise ZeroDivisionError
        assert has_failed.wait(timeout=20)
        return Outcome.REFUNDED

    run(Refunding(till.world.database, Scripted(act)))
    assert {till.refund(each)["status"] for each in others} == {"succeeded"}
    assert till.refund(wrong)["status"] == "sending"


def named(chore: object) -> bool:
    return getattr(chore, "name", None) == Refunding.name


# Everything goes wrong, in simulated time ------------------------------------------------------------------------


@dataclass
class Simulation:
    """The chore, and a Stripe that shares its time."""

    till: Till
    ledger: Ledger

    def owed(self, count: int) -> list[str]:
        made = []
        for number in range(count):
            booking_id = self.till.owed(amount_minor := 1_000 + number)
            self.ledger.charge(f"pi_{booking_id}", 2 * amount_minor)  # room for a second refund, were there one
            made.append(booking_id)
        return made

    def advance(self, micros: int) -> None:
        self.till.world.clock.advance(micros)
        self.ledger.ahead_s += micros / SECOND

    def work(self) -> None:
        is_ill = self.ledger.rate > 0 or self.ledger.next_faults
        # Who is well is waited for: on a busy machine it may take its time.
        gateway = StripeGateway(KEY, self.ledger.base_url, read_s=0.2 if is_ill else 10)
        run(Refunding(self.till.world.database, gateway))

    def work_for(self, micros: int, step: int) -> None:
        for _ in range(micros // step):
            self.work()
            self.advance(step)
        self.work()

    def recover(self) -> None:
        """Stripe is well again, for ten minutes."""
        self.ledger.rate = 0.0
        self.work_for(10 * MINUTE, MINUTE)

    def each_was_refunded_once(self, made: list[str]) -> None:
        for number, booking_id in enumerate(made):
            refund, payment = self.till.refund(booking_id), self.till.payment(booking_id)
            ((given_back, name, refund_id),) = [
                (each["amount"], each["metadata"]["refund_id"], each["id"])
                for each in self.ledger.refunds(f"pi_{booking_id}")
            ]
            assert given_back == payment["refunded_minor"] == refund["amount_minor"] == 1_000 + number
            assert (name, refund_id) == (refund["id"], refund["provider_refund_id"])
            assert (refund["status"], payment["status"]) == ("succeeded", "refunded")
        assert set(self.ledger.keys()) == {f"refund-{self.till.refund(each)['id']}" for each in made}


@pytest.fixture
def simulation(till: Till) -> Iterator[Simulation]:
    with stripe() as ledger:
        yield Simulation(till, ledger)


def test_each_is_refunded_once_however_much_goes_wrong(simulation: Simulation) -> None:
    made = simulation.owed(60)
    simulation.ledger.rate = 0.35
    simulation.ledger.kinds = list(Fault)
    simulation.work_for(10 * MINUTE, 30 * SECOND)
    simulation.recover()
    simulation.each_was_refunded_once(made)
    assert len(simulation.ledger.met) > 4


def test_all_are_settled_within_ten_minutes_of_an_outage_that_outlived_their_keys(simulation: Simulation) -> None:
    made = simulation.owed(24)
    ledger = simulation.ledger
    # The last words before the silence: some were refunded, and nobody heard of it.
    ledger.next_faults += [Fault.TIMEOUT_AFTER, Fault.ERROR_BEFORE, Fault.ERROR_AFTER] * 8
    simulation.work()
    ledger.rate, ledger.kinds = 1.0, [Fault.DROPPED_BEFORE, Fault.ERROR_BEFORE]
    simulation.work_for(25 * HOUR, 2 * HOUR + 30 * MINUTE)
    assert statuses(simulation.till) == {"sending": 24}
    simulation.recover()
    simulation.each_was_refunded_once(made)


def test_refusals_reach_staff_among_all_the_noise(simulation: Simulation) -> None:
    made = simulation.owed(20)
    simulation.ledger.rate = 0.2
    refused = made[::4]
    for booking_id in refused:
        simulation.ledger.refusals[f"pi_{booking_id}"] = "charge_disputed"
    simulation.work_for(5 * MINUTE, 30 * SECOND)
    simulation.recover()
    assert statuses(simulation.till) == {"succeeded": 15, "failed": 5}
    assert sorted(simulation.till.staff_mails()) == sorted(refused)
    assert all(not simulation.ledger.refunds(f"pi_{booking_id}") for booking_id in refused)


def test_what_stripe_pays_out_later_is_settled_when_it_has(simulation: Simulation) -> None:
    made = simulation.owed(3)
    simulation.ledger.born = "pending"
    simulation.work_for(30 * MINUTE, 10 * MINUTE)
    assert statuses(simulation.till) == {"sending": 3}
    simulation.ledger.pay_out()
    simulation.work_for(rules.ACCEPTED_WAIT_S * SECOND, rules.ACCEPTED_WAIT_S * SECOND)
    simulation.each_was_refunded_once(made)


def test_organizations_share_the_worker_and_nothing_else(till: Till) -> None:
    database = till.world.database
    worlds: list[World] = [make_world(database, till.world.clock) for _ in range(3)]
    tills = [Till(world) for world in worlds]
    made = [(each, each.owed()) for each in tills for _ in range(3)]
    run(Refunding(database, Scripted()))
    assert all(each.payment(booking_id)["status"] == "refunded" for each, booking_id in made)
    assert [len(each.timeline()) for each in tills] == [9, 9, 9]
