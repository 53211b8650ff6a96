"""The cost of the worker's statements depends on the rows found, not on the size of the tables."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Table
from support.databases import databases
from support.databases.plans import Plan, explaining, plan_of
from support.world.hooks import Hooks
from support.world.rows import ids
from support.world.world import DAY, NOON, FixedClock, make_world

from booking_core import webhooks
from booking_core.base.context import Organization
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement, as_json
from booking_core.db.unit_of_work import as_one_statement, as_row_statement, update_of
from booking_core.models.events import EventType
from booking_core.models.webhooks import DeliveryStatus, RecoverableStatus
from booking_core.records.events.publish import _LOCK_SEQUENCES
from booking_core.webhooks import claiming, filling, following, log, queue, recovering, store, upkeep
from booking_core.webhooks.recovering import Recovery
from booking_core.webhooks.rules import DeliveryState

ORGANIZATIONS, DUE, SUCCEEDED, MUCH = 1_200, 3, 10, 8_000
SERVED, WAITING, BEHIND = 1_000_000, 3, 40
"""The cursor of every endpoint, the events after it, and the organizations whose log has them."""
RECOVERY = "00000000-0000-7000-8000-0000000000ec"
"""Of every delivery of the backlog."""
QUEUED: dict[str, Any] = {"status": "queued", "attempt_count": 0, "next_attempt_at": NOON, "completed_at": None}
CLAIM: dict[str, Any] = {
    "free": 64,
    "in_flight": "[]",
    "slow_free": 32,
    "per_endpoint": 2,
    "claims_per_second": claiming.CLAIMS_PER_SECOND,
}
FOLLOWER_PARAMETERS = {"ahead": filling.AHEAD, "endpoints": filling.ENDPOINTS}


def delivery(organization_id: str, endpoint_id: str, row_id: str, sequence: int, **over: Any) -> dict[str, Any]:
    at = NOON - DAY + sequence
    return {
        "organization_id": organization_id,
        "id": row_id,
        "endpoint_id": endpoint_id,
        "event_id": row_id,
        "event_type": "gift_card.redeemed",
        "event_sequence": sequence,
        "resource_id": row_id,
        "status": "succeeded",
        "trigger": "event",
        "attempt_count": 1,
        "max_attempts": 6,
        "next_attempt_at": None,
        "completed_at": at,
        "created_at": at,
        "updated_at": at,
    } | over


def event(organization_id: str, row_id: str, sequence: int) -> dict[str, Any]:
    about = {"type": "gift_card.redeemed", "resource_type": "gift_card", "resource_id": row_id, "body": "{}"}
    keys = {"organization_id": organization_id, "id": row_id, "sequence": sequence}
    return keys | about | {"occurrence": 0, "created_at": NOON}


def fill_organizations(url: str, template: Organization, others: list[tuple[str, str]]) -> None:
    """Insert organizations and an endpoint of each, by their ids."""

    def fill_each(table: Table, *ids: str, **columns: object) -> None:
        """Insert a row of each organization, with the id of its endpoint in the named columns."""
        databases.fill(url, table, ({"organization_id": o} | dict.fromkeys(ids, e) | columns for o, e in others))

    settings = {name: getattr(template, name) for name in template.__slots__}
    databases.fill(url, tables.organizations, (settings | {"id": o, "slug": o} for o, _ in others))
    at = dict.fromkeys(("enabled_at", "created_at", "updated_at"), NOON)
    fill_each(tables.webhook_endpoints, "id", url="https://x.org", status="enabled", **at)
    fill_each(tables.webhook_subscriptions, "endpoint_id", event_type="gift_card.redeemed", from_sequence=0)
    fill_each(tables.webhook_cursors, "endpoint_id", served_sequence=SERVED)
    missed = {"event_type": "booking.created", "from_sequence": 0, "missed_at": NOON}
    fill_each(tables.webhook_subscriptions, "endpoint_id", **missed)
    fill_each(tables.webhook_recoveries, "endpoint_id", "id", request="{}", created_at=1)
    fill_each(
        tables.counters,
        last_event_sequence=SERVED,
    )
    fill_each(tables.webhook_secrets, "endpoint_id", "id", secret_sealed="x", created_at=1)


@pytest.fixture(scope="module")
def crowd(backend: str, new_database_url: Callable[[str], str]) -> Iterator[Hooks]:
    """An organization among a thousand, each with an endpoint, a log, and a few deliveries that are due."""
    url, clock, row_ids, sequences = new_database_url(backend), FixedClock(), ids(5), itertools.count(1)
    database = Database(url, clock=clock)
    hooks = Hooks(make_world(database, clock))
    first = hooks.endpoint()
    others = [(next(row_ids), next(row_ids)) for _ in range(ORGANIZATIONS)]
    fill_organizations(url, hooks.world.organization, others)
    every, log = [(hooks.world.org, first), *others], []
    for organization_id, endpoint_id in every:
        succeeded = SUCCEEDED if endpoint_id != first else MUCH
        log += [delivery(organization_id, endpoint_id, next(row_ids), next(sequences)) for _ in range(succeeded)]
        log += [delivery(organization_id, endpoint_id, next(row_ids), next(sequences), **QUEUED) for _ in range(DUE)]
    databases.fill(url, tables.deliveries, log)
    events = [event(row["organization_id"], row["id"], row["event_sequence"]) for row in log]
    events += [event(o, next(row_ids), SERVED + number) for o, _ in every for number in range(1, WAITING + 1)]
    databases.fill(url, tables.events, events)
    behind = ", ".join(f"'{organization_id}'" for organization_id, _ in every[: BEHIND + 1])
    databases.run(
        url,
        f"UPDATE counters SET last_event_sequence = {SERVED + WAITING} WHERE organization_id IN ({behind})",
        f"UPDATE webhook_cursors SET served_sequence = {SERVED}",
    )
    sent = {"number": 1, "trigger": "scheduled", "started_at": NOON}
    attempts = (
        sent | {"organization_id": row["organization_id"], "id": next(row_ids), "delivery_id": row["id"]}
        for row in log
        if row["status"] == "succeeded"
    )
    databases.fill(url, tables.attempts, attempts)
    databases.analyze(url)
    yield hooks
    database.close()


def check(tx: Tx, statement: Statement, **parameters: Any) -> None:
    """Check that no table is read whole: on SQLite a scan is one along an index, with a bound."""
    plan = plan_of(tx, statement, **parameters)
    assert "Seq Scan" not in plan, plan
    assert re.findall(r"SCAN \w+$", without_our_own(plan), re.MULTILINE) == [], plan


def without_our_own(plan: str) -> str:
    """Return the plan without scans of the statement's own intermediate results."""
    our_tables = (
        "clock|busy|waiting|behind|l|w|b|r|f|k|room|due|fair|in_lanes|picked|served|d|first_attempts"
        "|keys|delivered|scans|types|page|scan|purged|queued|settle|attempt_result|endpoint_health|lease|paced"
        "|move_cursor|value|json_each"
    )
    return re.sub(rf"SCAN (?:{our_tables})(?:\s.*)?$", "", plan, flags=re.MULTILINE)


KEYS = ("organization_id", "endpoint_id", "id")


def parts(endpoint: dict[str, Any]) -> str:
    """Return the parameter of the next events: the part of the log after the cursor of an endpoint."""
    keys = {name: endpoint[name] for name in KEYS[:2]}
    return as_json([keys | {"after": SERVED, "until": SERVED + filling.WINDOW}])


@pytest.mark.exhaustive(but="postgresql")
def test_no_statement_of_deliveries_reads_a_whole_table(crowd: Hooks) -> None:
    some = crowd.rows()[-1]
    keys, key = as_json([{name: some[name] for name in KEYS}]), {name: some[name] for name in KEYS[:2]}
    purged = as_json([{name: some[name] for name in ("organization_id", "id")}])
    with crowd.database.writing() as tx:
        check(tx, filling.NEXT_EVENTS, parts=parts(key))
        check(tx, claiming.CLAIM, **CLAIM, now=NOON)
        check(tx, claiming.SECRETS, endpoints=as_json([key]))
        check(tx, queue.EXPIRED, limit=500, now=NOON)
        check(tx, queue.PARK, **{name: some[name] for name in KEYS}, wait=1, lost_leases=3, now=NOON)
        for statement in (*queue.LOCK_ENDPOINTS, *queue.LOCK_DELIVERIES):
            check(tx, statement, keys=keys)
        check(tx, upkeep.OLD, before=NOON - DAY, limit=100)
        check(tx, upkeep._DELETE_ATTEMPTS, purged=purged)
        check(tx, upkeep._DELETE_DELIVERIES, purged=purged)
        check(tx, upkeep._DELETE_ENDPOINTS, before=NOON, limit=100)
        for statement in following.DISABLE:
            check(tx, statement, **key, at=NOON)
        check(tx, following.FAIL_QUEUED, **key, reason="endpoint_disabled", at=NOON, limit=10)
        for statement in following.END:
            check(tx, statement, **key, event_type="ping", last=1)
        for statement in following.FORGET[:3]:  # recoveries are few
            check(tx, statement, **key)
        check(tx, upkeep.GIVEN_UP, limit=100)
        check(tx, recovering.WAITING, **key, limit=100)
        check(tx, log.STRETCHES, **key)
        check(tx, store.GET_DELIVERY, **key, id=some["id"])
        check(tx, log.EVENTS_OF, organization_id=key["organization_id"], first_id=some["id"], last_id=some["id"])
        check(tx, store.LOCK_DELIVERY, **key, id=some["id"])
        numbers = {"organization_id": key["organization_id"], "last_booking_number": 1, "last_event_sequence": 2}
        check(tx, _LOCK_SEQUENCES, wanted=as_json([numbers]))


WRITTEN = {
    "deliveries": (tables.deliveries, DeliveryState._fields),
    "attempts": (tables.attempts, ("duration_ms",)),
    "webhook_endpoints": (tables.webhook_endpoints, ("consecutive_failures",)),
    "webhook_cursors": (tables.webhook_cursors, ("served_sequence",)),
}


@pytest.mark.exhaustive(but="postgresql")
@pytest.mark.parametrize("written", WRITTEN)
def test_what_is_written_is_found_by_its_key(crowd: Hooks, written: str) -> None:
    change = update_of(*WRITTEN[written])
    row = dict.fromkeys(change.columns) | dict.fromkeys(change.keys, crowd.world.org)
    with crowd.database.writing() as tx:
        if crowd.database.is_sqlite:
            bound = {f"_{name}": value for name, value in row.items()}
            check(tx, as_row_statement(change, change.columns), **bound)
        else:
            check(tx, as_one_statement(((change, change.columns),)), **{change.name: as_json([row])})


@pytest.mark.exhaustive(but="postgresql")
def test_first_attempts_of_an_endpoint_are_counted_by_their_index(crowd: Hooks) -> None:
    (plan,) = explained(crowd, lambda tx: tx.all(filling.FOLLOWERS, **FOLLOWER_PARAMETERS, now=NOON))
    assert plan.rows == BEHIND + 1
    assert "ix_deliveries_first_attempts" in plan.indexes


BACKLOG = 20_000
READS: dict[str, Callable[[Tx, Hooks], Any]] = {
    "claim": lambda tx, hooks: tx.all(claiming.CLAIM, **CLAIM, now=NOON),
    "followers": lambda tx, hooks: tx.all(filling.FOLLOWERS, **FOLLOWER_PARAMETERS, now=NOON),
    "next events": lambda tx, hooks: tx.all(filling.NEXT_EVENTS, parts=parts(hooks.rows()[0])),
    "expired": lambda tx, hooks: tx.all(queue.EXPIRED, limit=500, now=NOON),
    "page": lambda tx, hooks: page(tx, hooks, the_endpoint(hooks), None),
    "page of a recovery": lambda tx, hooks: page(tx, hooks, the_endpoint(hooks), None, recovery_id=RECOVERY),
    "types": lambda tx, hooks: log.types(tx, hooks.world.org, the_endpoint(hooks)),
    "types to recover": lambda tx, hooks: types_to_recover(tx, hooks),
}


def types_to_recover(tx: Tx, hooks: Hooks) -> set[str]:
    lost, types = [status.value for status in RecoverableStatus], [kind.value for kind in EventType]
    recovery = Recovery(RECOVERY, 0, log.END, lost, types, NOON)
    return recovering._Matching(tx, hooks.world.org, the_endpoint(hooks), recovery).types()


def explained(hooks: Hooks, work: Callable[[Tx], Any]) -> list[Plan]:
    with explaining(hooks.world.url) as explain:
        return explain(work)


def page(tx: Tx, hooks: Hooks, endpoint_id: str, status: DeliveryStatus | None, **filters: Any) -> Any:
    return webhooks.find_deliveries(tx, hooks.world.caller(), PageRequest(), endpoint_id, status=status, **filters)


def the_endpoint(hooks: Hooks) -> str:
    return str(hooks.world.rows(tables.webhook_endpoints)[0]["id"])


@pytest.fixture(scope="module", params=["analyzed", "unanalyzed"])
def backlog(request: pytest.FixtureRequest, backend: str, new_database_url: Callable[[str], str]) -> Iterator[Hooks]:
    """An endpoint with tens of thousands of deliveries that are due, and as many that are done. The planner has their
    statistics, or has not, as after a sudden rush."""
    url, clock, row_ids = new_database_url(backend), FixedClock(), ids(6)
    database = Database(url, clock=clock)
    hooks = Hooks(make_world(database, clock))
    endpoint = hooks.endpoint()
    states: list[dict[str, Any]] = [{}, QUEUED]
    log = (
        delivery(hooks.world.org, endpoint, next(row_ids), sequence, **states[sequence % 2], recovery_id=RECOVERY)
        for sequence in range(1, 2 * BACKLOG)
    )
    databases.fill(url, tables.deliveries, log)
    if request.param == "analyzed":
        databases.analyze(url)
    yield hooks
    database.close()


@pytest.mark.exhaustive(but=("sqlite-analyzed", "postgresql-unanalyzed"))
@pytest.mark.parametrize("name", READS)
def test_a_long_queue_costs_no_more_than_what_is_taken_from_it(backlog: Hooks, name: str) -> None:
    for plan in explained(backlog, lambda tx: READS[name](tx, backlog)):
        assert plan.cost < (8_000 if backlog.database.is_sqlite else 400), str(plan)
        if not backlog.database.is_sqlite:
            assert "deliveries" not in plan.scanned, str(plan)


def check_pages_by_status(hooks: Hooks, endpoint_id: str) -> None:
    """Check that a page costs no more than to gather and sort a few hundred rows, for each status."""
    for plan in explained(hooks, lambda tx: [page(tx, hooks, endpoint_id, status) for status in DeliveryStatus]):
        assert plan.cost < (15_000 if hooks.database.is_sqlite else 400), str(plan)


@pytest.mark.exhaustive(but="postgresql")
def test_a_rare_status_is_found_without_reading_the_log(crowd: Hooks) -> None:
    check_pages_by_status(crowd, crowd.rows()[0]["endpoint_id"])


@pytest.mark.exhaustive(but=("sqlite-analyzed", "postgresql-unanalyzed"))
def test_a_frequent_status_is_found_without_reading_the_log(backlog: Hooks) -> None:
    check_pages_by_status(backlog, the_endpoint(backlog))


@pytest.mark.usefixtures("postgresql_only")
def test_settling_keeps_to_its_rows_once_the_plan_has_settled(crowd: Hooks) -> None:
    keys = [(row["organization_id"], row["endpoint_id"], row["id"]) for row in crowd.rows()[:5]]
    for plan in explained(crowd, lambda tx: queue.lock(tx, keys)):
        assert plan.scanned <= {"organizations"}, str(plan)
        assert plan.cost < 200, str(plan)


@pytest.mark.usefixtures("postgresql_only")
def test_settled_deliveries_are_written_by_their_keys(crowd: Hooks) -> None:
    rows = crowd.rows()[:5]

    def settle(tx: Tx) -> None:
        for row in rows:
            key = {name: row[name] for name in ("organization_id", "id")}
            tx.update(tables.deliveries, **key, **{name: row[name] for name in DeliveryState._fields})

    (plan,) = explained(crowd, settle)
    assert plan.cost < 2_000, str(plan)
