"""Endpoints follow the log: an event costs nothing for them, and changes cost the same for any number of waiting
events."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from support.databases import databases
from support.world.hooks import ISSUED, REDEEMED, Hooks, queue_rows
from support.world.operations import paged_rows
from support.world.world import HOUR, FixedClock

from booking_core import webhooks
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.paging import PageRequest
from booking_core.models.events import EventType
from booking_core.models.pages import Order
from booking_core.models.webhooks import DeliveryRecover, DeliveryRedeliver, DeliveryStatus, RecoverableStatus
from booking_core.records import events
from booking_core.webhooks import filling, recovering, upkeep

SECOND = 1_000_000
MANY = 10_000


def recover(hooks: Hooks, endpoint: str, **fields: object) -> dict[str, object]:
    """Recover, and return the answer without its id."""
    return {name: value for name, value in recovery(hooks, endpoint, **fields).items() if name != "id"}


def recovery(hooks: Hooks, endpoint: str, **fields: object) -> dict[str, Any]:
    request = DeliveryRecover(**({"since": "2026-01-01"} | fields))
    return hooks.database.write(lambda tx: webhooks.recover(tx, hooks.world.caller(), endpoint, request))


def keep_up(hooks: Hooks) -> None:
    for step in webhooks.upkeep_steps(hooks.database):
        hooks.database.write(step)


def statuses(hooks: Hooks, endpoint: str) -> list[str]:
    return [row["status"] for row in hooks.deliveries(endpoint)]


# Publishing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoints", [0, 1, 10])
def test_an_event_is_one_row_whatever_the_number_of_endpoints(hooks: Hooks, counted: list[str], endpoints: int) -> None:
    for _ in range(endpoints):
        hooks.endpoint()
    counted.clear()
    hooks.publish()
    assert len(counted) == 2
    assert hooks.world.rows(tables.deliveries) == []
    assert len(hooks.deliveries()) == endpoints


@pytest.mark.parametrize("events", [1, 3 * filling.WINDOW])
def test_an_endpoint_passes_events_that_it_does_not_want_in_one_claim(hooks: Hooks, events: int) -> None:
    endpoint = hooks.endpoint(ISSUED)
    hooks.publish(times=events)
    (issued,) = hooks.publish(kind=ISSUED)
    assert hooks.one().event_id == issued
    assert hooks.cursor(endpoint)["served_sequence"] == events + 1


# Subscriptions ---------------------------------------------------------------------------------------------------


def test_only_events_within_a_subscription_are_delivered(hooks: Hooks) -> None:
    hooks.publish()
    endpoint = hooks.endpoint()
    (first,) = hooks.publish()
    hooks.change(endpoint, event_types=[ISSUED])
    hooks.publish()
    (issued,) = hooks.publish(kind=ISSUED)
    hooks.change(endpoint, event_types=[ISSUED, REDEEMED])
    (again,) = hooks.publish()
    assert [row["event_id"] for row in hooks.deliveries(endpoint)] == [first, issued, again]
    assert [delivery.event_id for delivery in hooks.claim()] == [first, issued, again]
    hooks.database.write(lambda tx: webhooks.purge_endpoints(tx, before=0, limit=1))
    types = [row["event_type"] for row in hooks.world.rows(tables.webhook_subscriptions)]
    assert sorted(types) == [ISSUED, REDEEMED], "the ended subscription was passed"


def test_a_type_may_be_left_and_taken_again_without_an_event_between(hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    for _ in range(3):
        hooks.change(endpoint, event_types=[ISSUED])
        hooks.change(endpoint, event_types=[REDEEMED])
    hooks.disable(endpoint)
    for _ in range(3):
        hooks.change(endpoint, event_types=[ISSUED])
        hooks.change(endpoint, event_types=[REDEEMED])
        hooks.enable(endpoint)
        hooks.disable(endpoint)
    hooks.publish()
    assert statuses(hooks, endpoint) == ["failed"]
    assert hooks.world.examine() == []


def test_a_disabled_endpoint_misses_the_types_of_its_subscription(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(ISSUED)
    hooks.disable(endpoint)
    (before,) = hooks.publish(kind=ISSUED)
    hooks.publish(kind=REDEEMED)
    hooks.change(endpoint, event_types=[REDEEMED])
    hooks.publish(kind=ISSUED)
    (after,) = hooks.publish(kind=REDEEMED)
    hooks.enable(endpoint)
    assert {row["event_id"]: row["status"] for row in hooks.deliveries(endpoint)} == {before: "failed", after: "failed"}
    assert recover(hooks, endpoint) == {"matched": 2}
    keep_up(hooks)
    assert [delivery.event_id for delivery in hooks.claim()] == [before, after]


def test_a_delivery_that_failed_in_flight_is_redelivered_at_once(hooks: Hooks) -> None:
    endpoint, caller = hooks.endpoint(), hooks.world.caller()
    (event,) = hooks.publish()
    in_flight, request = hooks.one(), DeliveryRedeliver(event_id=event)
    hooks.disable(endpoint)
    hooks.enable(endpoint)
    delivery = hooks.database.write(lambda tx: webhooks.redeliver(tx, caller, endpoint, request))
    assert delivery["status"] == "queued"
    hooks.fail(in_flight)
    assert [(row["status"], row["attempt_count"]) for row in hooks.rows()] == [("queued", 0)]
    assert hooks.one().number == 2


def test_events_of_the_disabled_time_get_no_rows(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=1)
    hooks.disable(endpoint)
    hooks.publish(times=2)
    hooks.enable(endpoint)
    (later,) = hooks.publish()
    assert [delivery.event_id for delivery in hooks.claim()] == [later]
    assert len(hooks.rows()) == 1
    assert statuses(hooks, endpoint) == ["failed"] * 3 + ["queued"]
    assert hooks.world.examine() == []


# Many events -----------------------------------------------------------------------------------------------------


def fill(hooks: Hooks, count: int) -> None:
    """Append so many events of redeemed gift cards to the log."""
    (counter,) = hooks.world.rows(tables.counters)
    last, at = counter["last_event_sequence"], hooks.world.clock()
    if hooks.database.is_sqlite:
        number = "('018f0000-0000-7000-8000-' || printf('%012x', n))"
        series = f"WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count})"
    else:
        number = "('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
        series = f"WITH s AS (SELECT generate_series(1, {count}) AS n)"
    databases.run(
        hooks.world.url,
        f"{series} INSERT INTO events (organization_id, sequence, id, type, resource_type, resource_id, occurrence,"
        f" body, created_at) SELECT '{hooks.world.org}', {last} + n, {number}, 'gift_card.redeemed', 'gift_card',"
        f" {number}, {last} + n, '{{}}', {at} FROM s",
        f"UPDATE counters SET last_event_sequence = last_event_sequence + {count}"
        f" WHERE organization_id = '{hooks.world.org}'",
    )


def redeliver(tx: Tx, hooks: Hooks, endpoint: str, event_id: str) -> None:
    webhooks.redeliver(tx, hooks.world.caller(), endpoint, DeliveryRedeliver(event_id=event_id))


def find(tx: Tx, hooks: Hooks, endpoint: str, event_id: str) -> None:
    page = webhooks.find_deliveries(tx, hooks.world.caller(), PageRequest(), endpoint, event_id=event_id)
    assert [delivery["event_id"] for delivery in page["data"]] == [event_id]


@pytest.mark.parametrize("act", [redeliver, find])
def test_a_delivery_is_found_without_other_events_of_its_instant(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, act: Callable[[Tx, Hooks, str, str], None]
) -> None:
    endpoint, read, all_rows = hooks.endpoint(), Counter(), Tx.all
    fill(hooks, 100)
    event_id = hooks.world.rows(tables.events)[50]["id"]

    def counted(tx: Tx, *args: Any, **parameters: Any) -> list[Any]:
        rows = all_rows(tx, *args, **parameters)
        read["rows"] += len(rows)
        return rows

    monkeypatch.setattr(Tx, "all", counted)
    hooks.database.write(lambda tx: act(tx, hooks, endpoint, event_id))
    assert 0 < read["rows"] < 10


def rows_touched(hooks: Hooks) -> int:
    names = (tables.deliveries, tables.webhook_recoveries, tables.attempts)
    return sum(len(hooks.world.rows(table)) for table in names)


@pytest.mark.parametrize("act", [Hooks.disable, Hooks.delete])
def test_disabling_and_deleting_cost_the_same_whatever_waits(
    new_hooks: Callable[..., Hooks], counted: list[str], act: Callable[[Hooks, str], None]
) -> None:
    costs = []
    for count in (1, MANY):
        hooks = new_hooks()
        endpoint = hooks.endpoint()
        fill(hooks, count)
        counted.clear()
        act(hooks, endpoint)
        costs.append((len(counted), rows_touched(hooks)))
        assert hooks.claim() == []
    assert costs[0] == costs[1]
    assert costs[0][1] == 0


@pytest.mark.exhaustive(but="sqlite")
def test_what_a_long_outage_missed_is_shown_recovered_and_delivered(hooks: Hooks, counted: list[str]) -> None:
    endpoint = hooks.endpoint()
    fill(hooks, MANY)
    hooks.disable(endpoint)
    caller = hooks.world.caller()

    def page(status: DeliveryStatus | None) -> list[dict[str, object]]:
        page = hooks.database.read(
            lambda tx: webhooks.find_deliveries(tx, caller, PageRequest(order=Order.ASC), endpoint, status=status)
        )
        data: list[dict[str, object]] = page["data"]
        return data

    assert page(DeliveryStatus.QUEUED) == []
    missed = page(DeliveryStatus.FAILED)
    assert page(None) == missed
    assert {row["failure_reason"] for row in missed} == {"endpoint_disabled"}
    hooks.enable(endpoint)
    counted.clear()
    assert recover(hooks, endpoint) == {"matched": MANY}
    assert len(counted) < 20
    assert [(row["id"], row["trigger"]) for row in page(DeliveryStatus.QUEUED)] == [
        (row["id"], "recover") for row in missed
    ]
    queued = [row["id"] for row in hooks.rows(endpoint)]
    assert len(queued) == recovering.QUEUED_MAX
    assert recover(hooks, endpoint) == {"matched": MANY - len(queued)}
    keep_up(hooks)
    assert len(hooks.rows(endpoint)) == recovering.QUEUED_MAX, "no more while these are queued"
    claimed = hooks.claim(free=50)
    assert {delivery.delivery_id for delivery in claimed} <= set(queued)
    hooks.succeed(*claimed)
    keep_up(hooks)
    assert len(hooks.rows(endpoint)) == recovering.QUEUED_MAX + 50


@pytest.mark.exhaustive(but="postgresql")
def test_more_than_fifty_thousand_matches_are_not_counted_to_the_end(hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    fill(hooks, recovering.MATCHED_MAX + 1)
    hooks.disable(endpoint)
    hooks.enable(endpoint)
    assert recover(hooks, endpoint) == {"matched": recovering.MATCHED_MAX, "has_more": True}


def test_failed_rows_beyond_a_transaction_are_recovered_by_the_worker(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovering, "ROWS_AT_ONCE", 3)
    endpoint = hooks.endpoint(events=8)
    queue_rows(hooks.world)
    hooks.disable(endpoint)
    assert statuses(hooks, endpoint) == ["failed"] * 8
    hooks.enable(endpoint)
    assert hooks.claim() == [], "deliveries queued before it was disabled have failed"
    request = recovery(hooks, endpoint)
    assert request["matched"] == 8
    assert sorted(statuses(hooks, endpoint)) == ["failed"] * 5 + ["queued"] * 3
    for _ in range(3):
        keep_up(hooks)
    assert statuses(hooks, endpoint) == ["queued"] * 8
    assert ids_of(hooks, endpoint, request["id"]) == [row["id"] for row in hooks.deliveries(endpoint)]
    assert hooks.world.rows(tables.webhook_recoveries) == []
    assert len(hooks.claim()) == 8


def test_a_recovery_queues_a_delivery_once(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovering, "ROWS_AT_ONCE", 3)
    endpoint = hooks.endpoint(events=8)
    queue_rows(hooks.world)
    hooks.disable(endpoint)
    hooks.enable(endpoint)
    recover(hooks, endpoint)
    dead = f"status = 'dead', next_attempt_at = NULL, completed_at = {hooks.world.clock()}"
    databases.run(hooks.world.url, f"UPDATE deliveries SET {dead} WHERE status = 'queued'")
    for _ in range(3):
        keep_up(hooks)
    assert sorted(statuses(hooks, endpoint)) == ["dead"] * 3 + ["queued"] * 5
    assert hooks.world.rows(tables.webhook_recoveries) == []


def ids_of(hooks: Hooks, endpoint: str, recovery_id: str, **filters: Any) -> list[str]:
    """Return the ids that the list of a recovery's deliveries has, the oldest first, from pages of two."""
    caller, chosen = hooks.world.caller(), {"recovery_id": recovery_id} | filters
    with hooks.database.reading() as tx:
        rows = paged_rows(lambda page: webhooks.find_deliveries(tx, caller, page, endpoint, **chosen), 2, Order.ASC)
    return [row["id"] for row in rows]


def test_the_log_is_filtered_by_the_last_recovery(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=2)
    queue_rows(hooks.world)
    hooks.disable(endpoint)
    hooks.publish(times=2)
    hooks.enable(endpoint)
    hooks.publish()
    first = recovery(hooks, endpoint)["id"]
    every = [row["id"] for row in hooks.deliveries(endpoint)]
    assert ids_of(hooks, endpoint, first) == every[:4]
    for filters in ({}, {"status": DeliveryStatus.QUEUED}, {"event_type": REDEEMED}):
        assert ids_of(hooks, endpoint, first, **filters) == every[:4]
    assert ids_of(hooks, endpoint, first, event_type=ISSUED) == []
    assert ids_of(hooks, endpoint, first, event_id=hooks.deliveries(endpoint)[3]["event_id"]) == every[3:4]
    assert ids_of(hooks, endpoint, first, event_id=hooks.deliveries(endpoint)[4]["event_id"]) == []
    hooks.disable(endpoint)
    hooks.enable(endpoint)
    assert ids_of(hooks, endpoint, first, status=DeliveryStatus.FAILED) == every[:4]
    second = recovery(hooks, endpoint)["id"]
    assert (ids_of(hooks, endpoint, first), ids_of(hooks, endpoint, second)) == ([], every)


def test_a_dry_run_counts_what_would_be_queued_and_changes_nothing(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(REDEEMED, ISSUED, events=2)
    queue_rows(hooks.world)
    hooks.disable(endpoint)
    hooks.publish(times=3, kind=ISSUED)
    hooks.enable(endpoint)
    before = hooks.deliveries(endpoint)
    for types, matched in (([REDEEMED], 2), ([ISSUED], 3), (None, 5)):
        assert recovery(hooks, endpoint, event_types=types, dry_run=True) == {"id": None, "matched": matched}
        assert hooks.deliveries(endpoint) == before
        assert hooks.world.rows(tables.webhook_recoveries) == []
    assert recover(hooks, endpoint) == {"matched": 5}


def test_queued_deliveries_of_a_disabled_endpoint_fail_in_turns(hooks: Hooks) -> None:
    endpoint, other = hooks.endpoint(), hooks.endpoint()
    hooks.publish(times=5)
    queue_rows(hooks.world)
    off = {"status": "disabled", "disabled_at": hooks.world.clock(), "disabled_reason": "manual"}
    hooks.world.change(tables.webhook_endpoints, endpoint, **off)
    fail = lambda tx: upkeep.fail_given_up(tx, per_endpoint=2, limit=100)  # noqa: E731
    assert [hooks.database.write(fail) for _ in range(4)] == [2, 2, 1, 0]
    written = [(row["status"], row["failure_reason"], row["completed_at"]) for row in hooks.rows(endpoint)]
    assert written == [("failed", "endpoint_disabled", hooks.world.clock())] * 5
    assert {row["status"] for row in hooks.rows(other)} == {"queued"}


@pytest.fixture
def mixed(hooks: Hooks, clock: FixedClock) -> str:
    """An endpoint whose log has deliveries of every kind, each made in its own way, all mixed."""
    endpoint = hooks.endpoint(REDEEMED, ISSUED)

    def publish() -> None:
        for kind in (REDEEMED, ISSUED, REDEEMED):
            hooks.publish(kind=kind)
            clock.advance(SECOND)

    publish()
    hooks.succeed(*hooks.claim(free=2))
    hooks.fail_until_dead(6)
    publish()
    queue_rows(hooks.world)
    publish()
    hooks.disable(endpoint)
    publish()
    hooks.enable(endpoint)
    publish()
    recover(hooks, endpoint, event_types=[ISSUED], statuses=[RecoverableStatus.FAILED])
    keep_up(hooks)
    publish()
    hooks.claim(free=2)
    publish()
    return endpoint


@pytest.mark.exhaustive(but=("sqlite", "postgresql-None"))
@pytest.mark.parametrize("status", [None, *DeliveryStatus])
def test_pages_of_the_log_have_each_event_once_in_order(
    hooks: Hooks, mixed: str, status: DeliveryStatus | None
) -> None:
    everything, caller = hooks.deliveries(mixed), hooks.world.caller()
    assert {row["status"] for row in everything} == set(DeliveryStatus)
    with hooks.database.reading() as tx:
        for kind, order in product([None, ISSUED, REDEEMED, EventType.BOOKING_CREATED], Order):
            filters = {"status": status, "event_type": kind}
            find = partial(webhooks.find_deliveries, tx, caller, endpoint_id=mixed, **filters)
            walked = [row["event_id"] for row in paged_rows(find, 2, order)]
            rows = [row for row in everything if status in (None, row["status"]) and kind in (None, row["event_type"])]
            assert walked == [row["event_id"] for row in (rows if order is Order.ASC else rows[::-1])], (kind, order)


def test_a_delivery_has_one_id_before_and_after_it_has_a_row(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=3)
    caller = hooks.world.caller()
    before = {row["id"]: row["event_id"] for row in hooks.deliveries()}
    for delivery_id in before:
        body = hooks.database.read(lambda tx, one=delivery_id: webhooks.get_delivery(tx, caller, endpoint, one))
        assert (body["id"], body["event_id"], body["status"]) == (delivery_id, before[delivery_id], "queued")
    assert {delivery.delivery_id: delivery.event_id for delivery in hooks.claim()} == before


def test_events_that_an_endpoint_waits_for_are_not_purged(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(EventType.GIFT_CARD_ISSUED)
    hooks.publish(times=2)
    hooks.publish(kind=ISSUED)
    purge = lambda tx: events.purge(tx, hooks.world.org, before=clock() + HOUR, limit=100)  # noqa: E731
    assert hooks.database.write(purge) == 0
    claimed = hooks.claim()
    assert hooks.database.write(purge) == 2, "the third is in flight"
    hooks.succeed(*claimed)
    assert hooks.database.write(purge) == 1
