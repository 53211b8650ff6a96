"""The cost of the worker's statements depends on the due mails, not on all mails."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.databases import databases, due
from support.databases.plans import explaining, plan_of
from support.world.rows import booking, ids
from support.world.world import NOON, FixedClock, World, make_world

from booking_core import notifications
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import OWNER, Statement, as_json, rows_before
from booking_core.due_work.rows import NIL_ID, DueWork
from booking_core.notifications import MailStatus, history

pytestmark = pytest.mark.exhaustive(but="postgresql")
"""Two databases of this size take seconds to fill."""
SHOPS, MAILS = 3, 12_000
OLD_UNMAILED = Statement(
    rows_before(
        tables.effects,
        tables.effects.c.completed_at,
        tables.effects.c.organization_id == OWNER,
        *history.ENDED_UNMAILED["done"]._conditions,
    )
)
"""The rows that a purge deletes."""


def effect(organization_id: str, subject_id: str, status: str) -> dict[str, object]:
    return {
        "organization_id": organization_id,
        "key": f"booking_confirmation_mail:{subject_id}",
        "kind": "booking_confirmation_mail",
        "subject_id": subject_id,
        "payload": "{}",
        "status": status,
        "due_at": NOON,
        "created_at": NOON,
        "completed_at": None if status == "queued" else NOON,
    }


def mail(organization_id: str, row_id: str, status: str) -> dict[str, object]:
    return {
        "organization_id": organization_id,
        "id": row_id,
        "effect_key": f"staff_booking_mail:{row_id}",
        "kind": "booking_confirmation_mail",
        "booking_id": row_id,
        "recipient": "ada@example.com",
        "message_id": f"{row_id}@book.example",
        "message": "sealed",
        "status": status,
        "next_attempt_at": NOON if status == "queued" else None,
        "created_at": NOON,
        "sent_at": NOON if status == "sent" else None,
        "completed_at": None if status == "queued" else NOON,
    }


@pytest.fixture(scope="module")
def kept_url(backend: str, new_database_url: Callable[[str], str]) -> str:
    """Three organizations with the mails of a month, and effects without a mail. Of each thousand, one has failed and
    one is due."""
    url, row_ids, clock = new_database_url(backend), ids(12), FixedClock()
    database = Database(url, clock=clock)
    shops = [make_world(database, clock) for _ in range(SHOPS)]
    leaving = [(shop.org, tour := shop.experience(), shop.departure(tour)) for shop in shops]
    database.close()
    booked, mailed, unmailed = [], [], []
    for number in range(MAILS):
        owner, tour, departure = leaving[number % SHOPS]
        row_id, at = next(row_ids), {"created_at": NOON + number}
        booked.append(booking(owner, row_id, departure, tour, NOON))
        status = {7: "failed", 8: "queued"}.get(number % 1000, "sent")
        ended = {"completed_at": None if status == "queued" else NOON + number}
        written = mail(owner, row_id, status) | at | ended | {"effect_key": f"booking_confirmation_mail:{row_id}"}
        mailed.append((written, effect(owner, row_id, "done") | at | {"completed_at": NOON + number}))
        booked.append(booking(owner, row_id := next(row_ids), departure, tour, NOON))
        status = {9: "failed", 8: "queued"}.get(number % 1000, "done")
        ended = {"completed_at": None if status == "queued" else NOON + number}
        ended |= {"last_error": None if status == "queued" else "suppressed"}
        unmailed.append(effect(owner, row_id, status) | at | ended)
    databases.fill(url, tables.bookings, booked)
    databases.fill(url, tables.mails, (written for written, _ in mailed))
    databases.fill(url, tables.effects, (row | {"last_error": None} for _, row in mailed))
    databases.fill(url, tables.effects, unmailed)
    databases.analyze(url)
    return url


def explained_owner(url: str) -> str:
    """Return the organization of the database."""
    with databases.connect(url) as connection:
        return str(connection.execute("SELECT organization_id FROM mails LIMIT 1").fetchone()[0])


@pytest.mark.parametrize(
    ("work", "process", "index"),
    [
        pytest.param(notifications.OWED, notifications.write, "ix_effects_due", id="written"),
        pytest.param(notifications.DUE, partial(notifications.claim, lease_s=60), "ix_mails_due", id="claimed"),
    ],
)
def test_due_mails_are_found_by_the_index_of_due_rows_alone(
    kept_url: str, world: World, work: DueWork, process: Callable[..., Any], index: str
) -> None:
    owner = explained_owner(kept_url)
    with explaining(kept_url) as explained:
        of_all = explained(lambda tx: due.organizations(tx, work))
        of_one = explained(
            lambda tx: due.process(tx, owner, work, lambda tx, *keys: process(tx, world.installation, *keys), 20)
        )
    for plans in (of_all, of_one):
        assert index in plans[0].indexes
        assert sum(plan.rows for plan in plans) > 0
        for plan in plans:
            assert not plan.scanned & {"effects", "mails", "bookings"}, plan
    assert len(of_all) == 1


def checked_plan(tx: Tx, statement: Statement, **parameters: object) -> str:
    """Return the plan, and check that it reads neither table as a whole."""
    plan = plan_of(tx, statement, **parameters)
    for table in ("mails", "effects"):
        assert f"Seq Scan on {table}" not in plan, plan
        assert f"SCAN {table}\n" not in f"{plan}\n", plan
    return plan


def test_old_mails_are_found_by_an_index_of_ended_ones(kept_url: str) -> None:
    database = Database(kept_url)
    bounds = {"organization_id": explained_owner(kept_url), "before": NOON + 3, "limit": 2_000}
    purged = as_json([{"organization_id": "00000000-0000-4000-8000-000000000000", "key": "x"}])
    with database.writing() as tx:
        for status in ("sent", "failed"):
            assert "ix_mails_ended" in checked_plan(tx, history._OLD_MAILS, status=status, **bounds)
        for status in ("done", "failed"):
            assert "ix_effects_unmailed" in checked_plan(tx, history.ENDED_UNMAILED[status]._purge, **bounds)
        checked_plan(tx, history._DELETE_MAILS, purged=purged)
        checked_plan(tx, history._DELETE_EFFECTS, purged=purged)
    database.close()


def test_the_cost_of_the_purge_follows_the_rows_that_it_finds(kept_url: str, backend: str) -> None:
    for before, count in ((NOON, 0), (NOON + 5, 5)):
        with explaining(kept_url) as explained:
            plans = explained(
                lambda tx, before=before: [
                    work.organizations(tx, after=NIL_ID, limit=500, until=before - 1)
                    for work in (history.ENDED_MAILS["sent"], history.ENDED_UNMAILED["done"])
                ]
            )
            bounds = {"organization_id": explained_owner(kept_url), "before": before, "limit": 2_000}
            purge_plans = explained(
                lambda tx, bounds=bounds: [
                    tx.all(history._OLD_MAILS, status="sent", **bounds),
                    tx.all(OLD_UNMAILED, **bounds),
                ]
            )
        assert all(plan.rows <= count for plan in purge_plans)
        for plan in [*plans, *purge_plans]:
            assert plan.cost < (2_000 if backend == "sqlite" else 200), str(plan)


@pytest.mark.parametrize("status", [None, *MailStatus])
@pytest.mark.parametrize("is_one_shop", [True, False])
def test_a_list_of_mails_costs_what_it_shows(kept_url: str, status: MailStatus | None, is_one_shop: bool) -> None:
    database = Database(kept_url)
    organization = database.read(lambda tx: notifications.find(tx, limit=1))[0][1] if is_one_shop else None
    database.close()
    with explaining(kept_url) as explained:
        plans = explained(lambda tx: notifications.find(tx, organization, status=status, limit=25))
    for plan in plans:
        assert plan.cost < (2_000 if database.is_sqlite else 200), str(plan)


def test_a_mail_is_found_and_locked_by_its_keys(kept_url: str) -> None:
    database = Database(kept_url)
    (mail,) = database.read(lambda tx: notifications.find(tx, status=MailStatus.FAILED, limit=1))
    key = mail[0].organization_id, mail[0].effect_key
    database.close()
    with explaining(kept_url) as explained:
        plans = explained(
            lambda tx: [
                history.by_id(tx, str(mail[0].id)),
                history.by_key(tx, mail[0].effect_key),
                tx.first(history._EFFECT_BY_KEY, name=mail[0].effect_key),
                history.lock(tx, [key]),
            ]
        )
    for plan in plans:
        assert plan.rows == 1
        assert not plan.scanned & {"effects", "mails"}, str(plan)
        assert plan.cost < (2_000 if database.is_sqlite else 200), str(plan)
