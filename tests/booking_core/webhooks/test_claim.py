"""Claims: due deliveries, with the live secrets, fair to every endpoint, each by one worker only."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy.engine import make_url
from support.databases import databases
from support.receivers.receivers import wait_until
from support.serving.threads import together
from support.world.hooks import CARD, Hooks, queue_rows
from support.world.world import HOUR, SECRET, FixedClock

from booking_core import webhooks
from booking_core.base import tokens
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.webhooks import AttemptTrigger
from booking_core.webhooks import ClaimedDelivery, claiming, filling

SECOND = 1_000_000


def of(claimed: Iterable[ClaimedDelivery]) -> Counter[str]:
    """Count the claimed attempts of each endpoint."""
    return Counter(delivery.endpoint_id for delivery in claimed)


# Claimed deliveries ----------------------------------------------------------------------------------------------


def test_a_claim_holds_all_that_sending_takes(hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    (event,) = hooks.publish()
    claimed = hooks.one()
    row, (attempt,) = hooks.delivery(), hooks.attempts()
    (stored,) = hooks.world.rows(tables.events)
    assert claimed.organization_id == hooks.world.org
    assert (claimed.delivery_id, claimed.endpoint_id, claimed.event_id) == (row["id"], endpoint, event)
    assert (claimed.attempt_id, claimed.number, claimed.trigger) == (attempt["id"], 1, AttemptTrigger.SCHEDULED)
    assert (claimed.url, claimed.event_type) == ("https://receiver.example/hook", "gift_card.redeemed")
    assert claimed.body == stored["body"].encode()
    assert claimed.secrets == (hooks.secrets[endpoint],)
    assert not claimed.timed_out_before
    assert hooks.secrets[endpoint] not in repr(claimed)


def test_an_attempt_is_written_down_before_it_is_made(hooks: Hooks) -> None:
    hooks.endpoint(events=1)
    claimed, now = hooks.one(lease_s=30), hooks.world.clock()
    row, (attempt,) = hooks.delivery(), hooks.attempts()
    assert (row["status"], row["attempt_count"], row["last_attempt_at"]) == ("queued", 0, now)
    assert (row["lease_token"], row["lease_until"]) == (claimed.lease_token, now + 30 * SECOND)
    assert attempt | {"number": 1, "trigger": "scheduled", "started_at": now, "delivery_id": row["id"]} == attempt
    assert [attempt[name] for name in ("duration_ms", "response_status", "error")] == [None, None, None]


def test_a_delivery_under_way_is_found_by_its_attempt(hooks: Hooks) -> None:
    endpoint, caller = hooks.endpoint(events=1), hooks.world.caller()
    claimed = hooks.one()
    by_id, by_attempt = (
        hooks.database.read(lambda tx, name=name: webhooks.get_delivery(tx, caller, endpoint, name))
        for name in (claimed.delivery_id, claimed.attempt_id)
    )
    assert by_id == by_attempt
    assert (by_id["id"], by_id["status"], by_id["attempts"][0]["id"]) == (
        claimed.delivery_id,
        "queued",
        claimed.attempt_id,
    )


def test_nothing_is_handed_out_before_it_is_due(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=1)
    hooks.fail(hooks.one())
    clock.advance(60 * SECOND - 1)
    assert hooks.claim() == []
    clock.advance(1)
    assert hooks.one().number == 2


@pytest.mark.parametrize("free", [0, -1])
def test_without_a_free_slot_the_database_is_not_asked(hooks: Hooks, counted: list[str], free: int) -> None:
    assert hooks.claim(free=free) == []
    assert counted == []


# Secrets ---------------------------------------------------------------------------------------------------------


def test_every_live_secret_signs_the_newest_first(hooks: Hooks, clock: FixedClock) -> None:
    endpoint, now = hooks.endpoint(), clock()
    hooks.secret(endpoint, expires_at=now, created_at=now - 30)
    older = hooks.secret(endpoint, expires_at=now + 1, created_at=now - 20)
    old = hooks.secret(endpoint, expires_at=now + HOUR, created_at=now - 10)
    hooks.publish()
    current, *former = hooks.one().secrets
    assert former == [old, older]
    assert current not in former


def test_secrets_survive_the_rotation_of_the_key_that_seals_them(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=1)
    rotated = tokens.SecretKeys("a newer key", SECRET)
    hooks.world.installation = type(hooks.world.installation)(rotated)
    assert hooks.one().secrets == (hooks.secrets[endpoint],)


def test_what_cannot_be_signed_is_not_handed_out_and_blocks_nobody(
    hooks: Hooks, clock: FixedClock, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = hooks.endpoint(), hooks.endpoint()
    (secret,) = [row for row in hooks.world.rows(tables.webhook_secrets) if row["endpoint_id"] == broken]
    foreign = tokens.SecretKeys("another installation").seal("webhook_secret", b"whsec_x")
    hooks.world.change(tables.webhook_secrets, secret["id"], secret_sealed=foreign)
    hooks.publish()
    with caplog.at_level(logging.ERROR):
        assert hooks.one().endpoint_id == sound
        assert hooks.claim() == []
    (record,) = caplog.records
    assert broken in record.getMessage()
    assert "BOOKING_SECRET_KEY" in record.getMessage()
    clock.advance(30 * SECOND)
    assert hooks.rescue() == 2


# Who is served ---------------------------------------------------------------------------------------------------


def test_whoever_was_served_least_recently_comes_first(hooks: Hooks, clock: FixedClock) -> None:
    endpoints = [hooks.endpoint() for _ in range(3)]
    hooks.publish(times=4)
    served = []
    for _ in range(9):
        served.append(hooks.one(free=1).endpoint_id)
        clock.advance(1)
    assert sorted(served[:3]) == sorted(endpoints)
    assert served[3:] == served[:3] * 2


def test_a_long_queue_hides_nobody(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=300)
    clock.advance(HOUR)
    late = hooks.endpoint()
    hooks.publish()
    assert of(hooks.claim(free=10))[late] == 1


def test_an_endpoint_has_so_many_attempts_under_way_and_no_more(hooks: Hooks) -> None:
    busy, idle = hooks.endpoint(), hooks.endpoint()
    hooks.publish(times=9)
    assert of(hooks.claim(per_endpoint=2, in_flight={busy: 1})) == {busy: 1, idle: 2}
    assert of(hooks.claim(per_endpoint=2, in_flight={busy: 2, idle: 2})) == {}
    assert of(hooks.claim(per_endpoint=2, in_flight={busy: 5, idle: 0})) == {idle: 2}


def test_endpoints_that_time_out_share_the_slow_lane(hooks: Hooks) -> None:
    slow = [hooks.endpoint(last_timed_out=True) for _ in range(4)]
    fast = [hooks.endpoint() for _ in range(2)]
    hooks.publish(times=3)
    claimed = hooks.claim(slow_free=3, free=20, per_endpoint=3)
    assert of(claimed) == dict.fromkeys(fast, 3) | of(delivery for delivery in claimed if delivery.timed_out_before)
    assert sum(delivery.timed_out_before for delivery in claimed) == 3
    assert {delivery.endpoint_id for delivery in claimed if delivery.timed_out_before} < set(slow)
    assert hooks.claim(slow_free=0, in_flight=of(claimed), per_endpoint=3) == []


def test_the_slow_lane_is_never_wider_than_what_is_free(hooks: Hooks) -> None:
    hooks.endpoint(events=9, last_timed_out=True)
    assert len(hooks.claim(free=4, slow_free=100)) == 4


def test_hanging_endpoints_do_not_delay_an_answering_endpoint(hooks: Hooks, clock: FixedClock) -> None:
    hanging = [hooks.endpoint() for _ in range(40)]
    for _ in range(3):  # their second events wait for the first ones, which are under way
        hooks.publish(CARD)
    under_way = hooks.claim()
    assert len(under_way) == 40
    clock.advance(5 * SECOND)
    healthy = hooks.endpoint()
    hooks.publish()
    in_flight = of(under_way)
    assert of(hooks.claim(free=4, per_endpoint=1, in_flight=in_flight)) == {healthy: 1}
    assert set(in_flight) == set(hanging)
    assert hooks.claim(free=4, per_endpoint=1, in_flight=in_flight | {healthy: 1}) == []


# Order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactions", [1, 3])
def test_first_attempts_for_one_resource_go_out_one_by_one_in_order(hooks: Hooks, transactions: int) -> None:
    hooks.endpoint()
    event_ids = [event_id for _ in range(transactions) for event_id in hooks.publish(CARD, times=4 // transactions)]
    sent = []
    for _ in event_ids:
        claimed = hooks.one()
        assert hooks.claim() == []
        sent.append(claimed.event_id)
        hooks.fail(claimed)
    assert sent == event_ids


def test_order_holds_nobody_up_but_the_same_resource_at_the_same_endpoint(hooks: Hooks) -> None:
    hooks.endpoint()
    (first,) = hooks.publish(CARD)
    hooks.one()
    second = hooks.endpoint()
    (later,) = hooks.publish(CARD)
    (other,) = hooks.publish()
    assert {(delivery.event_id, delivery.endpoint_id == second) for delivery in hooks.claim()} == {
        (later, True),
        (other, True),
        (other, False),
    }
    assert first not in {later, other}


def test_a_retry_blocks_nothing_and_waits_for_nothing(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint()
    (first,) = hooks.publish(CARD)
    hooks.fail(hooks.one())
    (second,) = hooks.publish(CARD)
    assert hooks.one().event_id == second
    clock.advance(HOUR)
    assert hooks.one().event_id == first


def test_tests_wait_for_nothing(hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    for _ in range(2):
        hooks.ping(endpoint)
    assert len(hooks.claim()) == 2


def test_a_first_attempt_that_was_lost_keeps_its_place(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint()
    event_ids = [hooks.publish(CARD)[0] for _ in range(2)]
    hooks.one(lease_s=30)
    clock.advance(31 * SECOND)
    assert hooks.claim() == []
    hooks.rescue()
    again = hooks.one()
    assert (again.event_id, again.number) == (event_ids[0], 2)
    hooks.succeed(again)
    assert hooks.one().event_id == event_ids[1]


# Endpoints that take nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["disabled", "auto_disabled"])
def test_an_endpoint_that_is_off_gets_tests_only(hooks: Hooks, status: str) -> None:
    endpoint = hooks.endpoint(events=2)
    queue_rows(hooks.world)
    for row, trigger in zip(hooks.deliveries(), ("event", "test"), strict=True):
        hooks.world.change(tables.deliveries, row["id"], trigger=trigger)
    hooks.world.change(tables.webhook_endpoints, endpoint, status=status)
    assert hooks.one().delivery_id == hooks.deliveries()[1]["id"]


# Several workers -------------------------------------------------------------------------------------------------


def test_no_delivery_is_handed_out_twice(hooks: Hooks, new_hooks: Callable[..., Hooks]) -> None:
    worlds = [hooks, new_hooks(), new_hooks()]
    for tenant in worlds:
        for _ in range(4):
            tenant.endpoint()
        tenant.publish(times=25)
    deliveries: list[ClaimedDelivery] = []

    def work() -> None:
        misses = 0
        while misses < 5 and len(deliveries) <= 300:  # ends also if one is handed out twice
            claimed = hooks.claim(free=7, per_endpoint=3)
            deliveries.extend(claimed)
            misses = 0 if claimed else misses + 1

    together(*[work] * 4)
    assert len(deliveries) == 300
    assert len({delivery.delivery_id for delivery in deliveries}) == 300


@pytest.mark.usefixtures("postgresql_only")
def test_a_claim_waits_for_no_other_transaction(hooks: Hooks, queue_url: str) -> None:
    endpoint, other = hooks.endpoint(events=1), hooks.endpoint()
    hooks.publish(times=3)
    queue_rows(hooks.world)
    locked_id = hooks.rows(other)[0]["id"]
    with (
        databases.rows_held(queue_url, "SELECT 1 FROM webhook_endpoints WHERE id = %s FOR NO KEY UPDATE", other),
        databases.rows_held(
            queue_url, "SELECT 1 FROM webhook_cursors WHERE endpoint_id = %s FOR NO KEY UPDATE", endpoint
        ),
        databases.rows_held(queue_url, "SELECT 1 FROM deliveries WHERE id = %s FOR UPDATE", locked_id),
    ):
        claimed = hooks.claim()
    assert {lease.delivery_id for lease in claimed} == {row["id"] for row in hooks.rows(other)} - {locked_id}
    assert hooks.cursor(endpoint)["last_claimed_at"] is None
    assert {lease.delivery_id for lease in hooks.claim()} == {row["id"] for row in hooks.rows(endpoint)} | {locked_id}
    assert hooks.cursor(endpoint)["last_claimed_at"] == hooks.world.clock()


_CLOCK_THAT_WAITS = """
CREATE SCHEMA IF NOT EXISTS late;
CREATE OR REPLACE FUNCTION late.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    RETURN to_timestamp({now} / 1000000.0);
END $$
"""


LateClaim = Callable[[Callable[[], object]], list[ClaimedDelivery]]


@pytest.fixture
def claimed_late(hooks: Hooks, queue_url: str, postgresql_only: None) -> LateClaim:
    """Claims with a statement that has read the queue before something else happens, and takes its choice afterwards.
    It asks for the time in between, and is made to wait for the answer."""
    databases.run(queue_url, _CLOCK_THAT_WAITS.format(now=hooks.world.clock()))
    late_url = make_url(queue_url).update_query_dict({"options": "-csearch_path=late,public,pg_catalog"})
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    def claim(happens: Callable[[], object]) -> list[ClaimedDelivery]:
        database = Database(late_url.render_as_string(hide_password=False))
        late = Hooks(replace(hooks.world, database=database))
        with ThreadPoolExecutor(1) as thread, databases.connect(queue_url) as connection:
            connection.execute("SELECT pg_advisory_lock(1)")
            claiming = thread.submit(late.claim)
            wait_until(lambda: connection.execute(waits).fetchone()[0] == 1, "the claim waits")
            happens()
            connection.execute("SELECT pg_advisory_unlock(1)")
            claimed = claiming.result()
        database.close()
        return claimed

    return claim


@pytest.mark.parametrize("settle", [lambda *_: None, Hooks.fail, Hooks.succeed], ids=["sending", "failed", "succeeded"])
def test_what_another_worker_took_since_a_claim_began_is_left_alone(
    hooks: Hooks, claimed_late: LateClaim, settle: Callable[[Hooks, ClaimedDelivery], None]
) -> None:
    hooks.endpoint(events=1)
    queue_rows(hooks.world)
    assert claimed_late(lambda: settle(hooks, hooks.one())) == []
    assert len(hooks.attempts()) == 1


def test_a_delayed_claim_respects_the_pause_of_another_worker(hooks: Hooks, claimed_late: LateClaim) -> None:
    hooks.endpoint(events=2, max_per_second=10)
    queue_rows(hooks.world)
    assert claimed_late(hooks.one) == []


def test_a_claim_that_was_held_up_takes_what_nobody_else_took(hooks: Hooks, claimed_late: LateClaim) -> None:
    hooks.endpoint()
    (event,) = hooks.publish()
    queue_rows(hooks.world)
    assert [delivery.event_id for delivery in claimed_late(lambda: None)] == [event]


# Rows ahead of the claims -------------------------------------------------------------------------------------------


def test_rows_are_made_a_bounded_number_ahead(hooks: Hooks) -> None:
    hooks.endpoint(events=100)
    counts = [hooks.database.write(lambda tx: filling.fill(tx, ahead=8, window=6)) for _ in range(2)]
    assert counts == [12, 0], "no more while nine have not ended"
    assert [row["event_sequence"] for row in hooks.rows()] == list(range(1, 13))


def test_a_burst_reaches_every_endpoint_in_the_first_turn(hooks: Hooks, new_hooks: Callable[..., Hooks]) -> None:
    worlds = [hooks, *(new_hooks() for _ in range(7))]
    endpoints = [tenant.endpoint() for tenant in worlds for _ in range(8)]
    for tenant in worlds:
        tenant.publish(times=40)
    assert of(hooks.claim(free=64)) == dict.fromkeys(endpoints, 1)


@pytest.mark.usefixtures("postgresql_only")
def test_two_workers_make_rows_of_each_event_once(hooks: Hooks) -> None:
    hooks.endpoint(events=200)
    together(*[lambda: hooks.database.write(filling.fill)] * 8)
    sequences = [row["event_sequence"] for row in hooks.rows()]
    assert sequences == list(range(1, len(sequences) + 1))
    assert hooks.world.examine() == []


# Costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deliveries", "limit"), [(1, None), (30, None), (20, 100)])
def test_a_claim_costs_the_same_statements_for_any_number_and_limit(
    hooks: Hooks, counted: list[str], deliveries: int, limit: int | None
) -> None:
    for max_per_second in (None, limit):
        hooks.endpoint(max_per_second=max_per_second)
    hooks.publish(times=deliveries)
    counted.clear()
    burst = min(deliveries, claiming.burst(limit)) if limit else deliveries
    assert len(hooks.claim(free=100)) == deliveries + burst
    # The endpoints behind, the next events, their rows, the due deliveries, the secrets, the leases. SQLite changes one
    # table with a statement.
    assert len(counted) == (9 if hooks.database.is_sqlite else 6)


def test_a_claim_that_finds_nothing_is_two_statements(hooks: Hooks, counted: list[str]) -> None:
    hooks.endpoint()
    counted.clear()
    assert hooks.claim() == []
    assert len(counted) == 2
