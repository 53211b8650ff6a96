"""First attempts in flight are one row for each endpoint, and become separate rows with their results."""

import pytest
from support import databases
from support.hooks import CARD, Hooks
from support.world import HOUR, FixedClock

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.db import tables
from booking_core.records import events
from booking_core.webhooks import log, park


def count(hooks: Hooks) -> dict[str, int]:
    names = (tables.webhook_leases, tables.deliveries, tables.attempts)
    return {table.name: len(hooks.world.rows(table)) for table in names}


def test_a_claim_for_an_endpoint_is_one_row_until_its_results(hooks: Hooks) -> None:
    hooks.endpoint(events=3)
    first, *others = hooks.claim()
    assert count(hooks) == {"webhook_leases": 1, "deliveries": 0, "attempts": 0}
    hooks.succeed(first)
    assert count(hooks) == {"webhook_leases": 1, "deliveries": 1, "attempts": 1}
    assert [len(lease.attempts) for lease in hooks.leases()] == [2]
    hooks.fail(*others)
    assert count(hooks) == {"webhook_leases": 0, "deliveries": 3, "attempts": 3}
    assert [row["status"] for row in hooks.rows()] == ["succeeded", "queued", "queued"]


def test_the_log_finds_a_delivery_in_flight_by_either_id(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=1)
    claimed = hooks.one()
    with hooks.database.reading() as tx:
        by_id, by_attempt = (
            log.get_event(tx, hooks.world.org, endpoint, each) for each in (claimed.delivery_id, claimed.attempt_id)
        )
    assert by_id == by_attempt
    assert by_id is not None
    assert (by_id.id, by_id.status, by_id.last_attempt_at) == (claimed.delivery_id, "queued", claimed.at)
    assert by_id.attempts == f'["{claimed.attempt_id}",1,"scheduled",{claimed.at},null,null,null,null]'


def test_a_result_after_its_lease_is_written_into_the_attempt_alone(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=2)
    late, other = hooks.claim(lease_s=30)
    clock.advance(30 * SECOND)
    hooks.rescue()
    hooks.succeed(late, other)
    assert {attempt["response_status"] for attempt in hooks.attempts()} == {200}
    assert {(row["status"], row["attempt_count"]) for row in hooks.rows()} == {("queued", 0)}


def test_an_event_waits_for_those_about_its_resource_that_are_in_flight(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.publish(CARD, times=3)
    worker = tokens.new_id()
    first, second = hooks.claim(worker=worker)
    assert (first.after, second.after) == (None, first.delivery_id)
    assert [row["lease_until"] for row in hooks.rows()] == [None]
    hooks.publish(CARD)
    assert hooks.claim(worker=worker) == []
    hooks.succeed(first)
    assert hooks.claim(worker=worker) == []
    hooks.succeed(second)
    third = hooks.one(worker=worker)
    assert hooks.claim(worker=tokens.new_id()) == []
    hooks.succeed(third)
    assert hooks.one(worker=worker).number == 1


@pytest.mark.usefixtures("postgresql_only")
def test_a_lease_that_another_transaction_holds_is_left_for_the_next_time(
    hooks: Hooks, queue_url: str, clock: FixedClock
) -> None:
    hooks.endpoint(events=2)
    hooks.claim(lease_s=30)
    clock.advance(HOUR)
    with databases.rows_held(queue_url, "SELECT 1 FROM webhook_leases FOR UPDATE"):
        assert hooks.rescue() == 0
    assert hooks.rescue() == 2


def test_an_unrescuable_lease_is_postponed_and_counts_as_lost(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=1)
    hooks.claim(lease_s=30)
    clock.advance(HOUR)
    (lease,) = hooks.leases()
    hooks.database.write(lambda tx: park(tx, (hooks.world.org, endpoint, lease.id)))
    (parked,) = hooks.leases()
    assert (parked.lease_until, parked.lost_leases) == (clock() + 600 * SECOND, 3)
    assert hooks.rescue() == 0


def test_events_in_flight_are_not_purged(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=2)
    hooks.succeed(hooks.claim(free=1)[0])
    hooks.claim(free=1)
    clock.advance(100 * 24 * HOUR)
    hooks.database.write(lambda tx: events.purge(tx, hooks.world.org, before=clock(), limit=10))
    assert [row["sequence"] for row in hooks.world.rows(tables.events)] == [2]
