"""The worker's statements cost what is due, not what was ever sent."""

from collections.abc import Callable

import pytest
from support import databases
from support.plans import Plan, explaining
from support.rows import ids
from support.world import NOON, FixedClock, World, make_world

from booking_core import notifications
from booking_core.db import tables
from booking_core.db.engine import Database

BOOKED, DUE = 10_000, 3


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


def booking(world: World, row_id: str, departure_id: str, experience_id: str) -> dict[str, object]:
    amounts = dict.fromkeys(("subtotal_minor", "total_minor"), 89000)
    payment = {"payment_method": "pay_on_site", "payment_source": "on_site", "payment_status": "unpaid"}
    return (
        {
            "organization_id": world.org,
            "id": row_id,
            "status": "confirmed",
            "departure_id": departure_id,
            "experience_id": experience_id,
            "guest_email": "ada@example.com",
            "guests": "[]",
            "add_ons": "[]",
            "seats": 1,
            "currency": "NOK",
            "send_confirmation_email": True,
            "notify_staff": True,
            "created_at": NOON,
            "updated_at": NOON,
        }
        | amounts
        | payment
    )


def mail(organization_id: str, row_id: str, status: str) -> dict[str, object]:
    return {
        "organization_id": organization_id,
        "id": row_id,
        "effect_key": f"staff_booking_mail:{row_id}",
        "kind": "booking_confirmation_mail",
        "booking_id": row_id,
        "recipient": "ada@example.com",
        "message_id": f"{row_id}@book.example",
        "message": "",
        "status": status,
        "next_attempt_at": NOON if status == "queued" else None,
        "created_at": NOON,
        "sent_at": None if status == "queued" else NOON,
    }


@pytest.fixture(scope="module")
def busy_url(backend: str, new_database_url: Callable[[str], str]) -> str:
    """One organization with years of mails behind it, and a few that are due."""
    url, made = new_database_url(backend), ids(11)
    database = Database(url, clock=FixedClock())
    world: World = make_world(database, FixedClock())
    rows = [(next(made), "done" if number < BOOKED else "queued") for number in range(BOOKED + DUE)]
    experience = world.experience()
    departure = world.departure(experience)
    databases.fill(url, tables.bookings, (booking(world, row_id, departure, experience) for row_id, _ in rows))
    databases.fill(url, tables.effects, (effect(world.org, row_id, status) for row_id, status in rows))
    sent = [(row_id, "sent" if status == "done" else status) for row_id, status in rows]
    databases.fill(url, tables.mails, (mail(world.org, row_id, status) for row_id, status in sent))
    databases.analyze(url)
    database.close()
    return url


def cheap(plans: list[Plan]) -> None:
    assert plans
    assert sum(plan.rows for plan in plans) > 0
    for plan in plans:
        assert not plan.scanned & {"effects", "mails", "bookings"}, plan


def test_whether_anything_is_due_is_seen_in_the_index_of_what_is(busy_url: str) -> None:
    with explaining(busy_url) as explained:
        (plan,) = explained(notifications.pending)
    cheap([plan])
    assert {"ix_effects_due", "ix_mails_due"} <= plan.indexes


def test_writing_looks_only_at_what_is_due(busy_url: str, world: World) -> None:
    with explaining(busy_url) as explained:
        plans = explained(lambda tx: notifications.write_due(tx, world.installation, limit=20))
    cheap(plans)
    assert "ix_effects_due" in plans[0].indexes


def test_claiming_looks_only_at_what_is_due(busy_url: str, world: World) -> None:
    with explaining(busy_url) as explained:
        plans = explained(lambda tx: notifications.claim(tx, world.installation, limit=32, lease_s=60))
    cheap(plans)
    assert "ix_mails_due" in plans[0].indexes
