"""A migration keeps what it finds."""

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from support import databases

from booking_core import catalog, organizations
from booking_core.context import Installation
from booking_core.db import migrate
from booking_core.db.engine import Database
from booking_core.db.tables import metadata
from booking_core.tokens import SecretKeys

ORG = "018f0000-0000-7000-8000-000000000001"
BOOKING = "018f0000-0000-7000-8000-000000000002"
CUSTOMER = "018f0000-0000-7000-8000-000000000003"


@pytest.fixture
def empty_database_url(fresh_database_url: str) -> str:
    """A database without any table."""
    if databases.is_sqlite(fresh_database_url):
        Path(str(make_url(fresh_database_url).database)).unlink()
    else:
        databases.run(fresh_database_url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return fresh_database_url


def _rows(url: str, query: str) -> list[tuple[str, ...]]:
    with databases.connect(url) as connection:
        return [tuple(map(str, row)) for row in connection.execute(query).fetchall()]


def test_what_was_owed_and_noted_before_0002_is_still_there(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, "0001")
    databases.run(
        empty_database_url,
        "INSERT INTO effects (organization_id, id, key, kind, subject_id, payload, status, due_at, created_at)"
        f" VALUES ('{ORG}', '{BOOKING}', 'staff_booking_mail:{BOOKING}', 'staff_booking_mail', '{BOOKING}', '{{}}',"
        " 'queued', 5, 5)",
        "INSERT INTO timeline (organization_id, id, customer_id, booking_id, kind, data, created_at)"
        f" VALUES ('{ORG}', '{BOOKING}', '{CUSTOMER}', '{BOOKING}', 'booking_created', '{{}}', 7),"
        f" ('{ORG}', '{CUSTOMER}', NULL, '{BOOKING}', 'booking_created', '{{}}', 7)",
    )
    migrate.upgrade(empty_database_url)
    assert migrate.differences(empty_database_url) == []
    assert _rows(empty_database_url, "SELECT key, status, due_at FROM effects") == [
        (f"staff_booking_mail:{BOOKING}", "queued", "5")
    ]
    # An entry of nobody could be found by nobody.
    assert _rows(empty_database_url, "SELECT customer_id, booking_id, created_at FROM timeline") == [
        (CUSTOMER, BOOKING, "7")
    ]


def _mail(row_id: str, status: str, sent_at: str) -> str:
    return f"('{ORG}', '{row_id}', '{row_id}', 'x_mail', 'a@b.c', '{row_id}', '', '{status}', 5, {sent_at})"


def test_mails_that_had_ended_and_keys_that_were_announced_before_0004_are_known(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, "0003")
    settings = "timezone, default_currency, created_at, updated_at"
    databases.run(
        empty_database_url,
        f"INSERT INTO organizations (id, slug, name, {settings}) VALUES ('{ORG}', 'a', 'A', 'UTC', 'NOK', 1, 1)",
        "INSERT INTO api_keys (organization_id, id, name, prefix, key_hash, scopes, created_at) VALUES"
        f" ('{ORG}', '{BOOKING}', 'told', 'svc', 'a', '[]', 1), ('{ORG}', '{CUSTOMER}', 'untold', 'svc', 'b', '[]', 1)",
        "INSERT INTO effects (organization_id, key, kind, subject_id, payload, status, due_at, created_at) VALUES"
        f" ('{ORG}', 'staff_key_expiring_mail:{BOOKING}', 'x_mail', '{BOOKING}', '{{}}', 'queued', 7, 7)",
        "INSERT INTO mails (organization_id, id, effect_key, kind, recipient, message_id, message, status, created_at,"
        f" sent_at) VALUES {_mail(BOOKING, 'sent', '9')}, {_mail(CUSTOMER, 'failed', 'NULL')},"
        f" {_mail(ORG, 'queued', 'NULL')}",
    )
    migrate.upgrade(empty_database_url)
    assert migrate.differences(empty_database_url) == []
    assert _rows(empty_database_url, "SELECT name, warned_at FROM api_keys ORDER BY name") == [
        ("told", "7"),
        ("untold", "None"),
    ]
    assert _rows(empty_database_url, "SELECT status, completed_at FROM mails ORDER BY status") == [
        ("failed", "5"),
        ("queued", "None"),
        ("sent", "9"),
    ]


def test_single_prices_beside_tiers_from_before_0006_are_kept_and_no_longer_shown(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, "0004")
    tier = '{"id":"adult","name":"Adult","price":{"amount_minor":890,"currency":"NOK"},"seats_per_unit":1}'
    databases.run(
        empty_database_url,
        "INSERT INTO organizations (id, slug, name, timezone, default_currency, created_at, updated_at)"
        f" VALUES ('{ORG}', 'a', 'A', 'UTC', 'NOK', 1, 1)",
        "INSERT INTO experiences (organization_id, id, slug, title, is_published, languages, tags, currency,"
        " price_tiers, add_ons, created_at, updated_at)"
        f" VALUES ('{ORG}', '{BOOKING}', 'kayak', 'Kayak', true, '[]', '[]', 'NOK', '[{tier}]', '[]', 1, 1)",
        "INSERT INTO departures (organization_id, id, experience_id, starts_at, ends_at, seats_total, seats_ceiling,"
        f" price_minor, created_at, updated_at) VALUES ('{ORG}', '{CUSTOMER}', '{BOOKING}', 7, 8, 1, 1, 5, 1, 1)",
    )
    migrate.upgrade(empty_database_url)
    assert migrate.differences(empty_database_url) == []
    assert _rows(empty_database_url, "SELECT price_minor, prices FROM departures") == [("5", "None")]
    with closing(Database(empty_database_url)) as database:
        organization = database.read(lambda tx: organizations.get(tx, slug="a"))
        keys = Installation(SecretKeys("a secret key for tests"))
        (experience,) = database.read(lambda tx: catalog.export(tx, organization, keys))["experiences"]
    (departure,) = experience["departures"]
    assert (departure["price"], departure["prices"]) == (None, None)


def _refund(row_id: str, status: str, currency: str, amount: int, first_sent_at: str = "NULL") -> list[str]:
    """Return the statements that insert a cancelled booking with its payment and its refund, as before 0005."""
    booking = (
        f"('{ORG}', '{row_id}', 'cancelled', '{ORG}', '{ORG}', '[]', '[]', 1, '{currency}', {amount}, {amount}, 'card',"
        " 'stripe', 'paid', true, true, 1, 1, 1)"
    )
    return [
        "INSERT INTO bookings (organization_id, id, status, departure_id, experience_id, guests, add_ons, seats,"
        " currency, subtotal_minor, total_minor, payment_method, payment_source, payment_status,"
        f" send_confirmation_email, notify_staff, cancelled_at, created_at, updated_at) VALUES {booking}",
        "INSERT INTO payments (organization_id, id, booking_id, amount_minor, currency, status, created_at, updated_at)"
        f" VALUES ('{ORG}', '{row_id}', '{row_id}', {amount}, '{currency}', 'paid', 1, 1)",
        "INSERT INTO refunds (organization_id, id, booking_id, payment_id, amount_minor, currency, status,"
        " first_sent_at, created_at, updated_at)"
        f" VALUES ('{ORG}', '{row_id}', '{row_id}', '{row_id}', {amount}, '{currency}', '{status}', {first_sent_at},"
        " 1, 1)",
    ]


def test_refunds_from_before_0005_are_kept_and_can_be_sent(empty_database_url: str) -> None:
    """An amount that was never sent becomes one that the gateway takes; what was sent stays as it was sent."""
    migrate.upgrade(empty_database_url, "0004")
    settings = "timezone, default_currency, created_at, updated_at"
    own = "organization_id, id, created_at, updated_at"
    refunds = (
        _refund(ORG, "requested", "KWD", 12_345),
        _refund(BOOKING, "sending", "KWD", 12_345, "1"),
        _refund(CUSTOMER, "needs_review", "NOK", 12_345),
    )
    databases.run(
        empty_database_url,
        f"INSERT INTO organizations (id, slug, name, {settings}) VALUES ('{ORG}', 'a', 'A', 'UTC', 'NOK', 1, 1)",
        f"INSERT INTO experiences ({own}, slug, title, is_published, languages, tags, currency, price_tiers, add_ons)"
        f" VALUES ('{ORG}', '{ORG}', 1, 1, 'a', 'A', true, '[]', '[]', 'NOK', '[]', '[]')",
        f"INSERT INTO departures ({own}, experience_id, starts_at, seats_total, seats_ceiling)"
        f" VALUES ('{ORG}', '{ORG}', 1, 1, '{ORG}', 1, 1, 1)",
        *(statement for statements in refunds for statement in statements),
    )
    migrate.upgrade(empty_database_url)
    assert migrate.differences(empty_database_url) == []
    assert _rows(empty_database_url, "SELECT status, amount_minor, reopened_count FROM refunds ORDER BY status") == [
        ("needs_review", "12345", "0"),
        ("requested", "12340", "0"),
        ("sending", "12345", "0"),
    ]
    assert _rows(empty_database_url, "SELECT DISTINCT recorded_minor FROM bookings") == [("0",)]


def test_bookings_paid_by_one_payment_intent_before_0009_are_kept(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, "0008")
    databases.run(
        empty_database_url,
        "INSERT INTO organizations (id, slug, name, timezone, default_currency, created_at, updated_at)"
        f" VALUES ('{ORG}', 'a', 'A', 'UTC', 'NOK', 1, 1)",
        "INSERT INTO experiences (organization_id, id, slug, title, is_published, languages, tags, currency,"
        " price_tiers, add_ons, created_at, updated_at)"
        f" VALUES ('{ORG}', '{ORG}', 'a', 'A', true, '[]', '[]', 'NOK', '[]', '[]', 1, 1)",
        "INSERT INTO departures (organization_id, id, experience_id, starts_at, seats_total, seats_ceiling, created_at,"
        f" updated_at) VALUES ('{ORG}', '{ORG}', '{ORG}', 1, 1, 1, 1, 1)",
        *_refund(BOOKING, "requested", "NOK", 100),
        *_refund(CUSTOMER, "requested", "NOK", 100),
        "UPDATE payments SET payment_intent = 'pi_of_both'",
    )
    migrate.upgrade(empty_database_url)
    assert migrate.differences(empty_database_url) == []
    assert _rows(empty_database_url, "SELECT payment_intent FROM payments") == [("pi_of_both",)] * 2


def _keys_and_indexes(url: str) -> set[str]:
    """Return every index and every constraint from the database's catalogue."""
    if databases.is_sqlite(url):
        objects = _rows(url, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name <> 'alembic_version'")
        lines = (line.strip(" \t,") for (sql,) in objects for line in sql.splitlines())
        return {line for line in lines if line.startswith(("CONSTRAINT", "CREATE INDEX", "CREATE UNIQUE"))}
    of_tables = "conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid)"
    constraints = f"SELECT {of_tables} FROM pg_constraint WHERE conrelid <> 0 AND contype <> 'n'"
    found = _rows(url, f"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' UNION ALL {constraints}")
    return {sql for (sql,) in found if "alembic_version" not in sql}


def test_migrations_make_the_keys_checks_and_indexes_of_the_tables(empty_database_url: str) -> None:
    url = make_url(empty_database_url)
    engine = create_engine(url if databases.is_sqlite(empty_database_url) else url.set(drivername="postgresql+psycopg"))
    metadata.create_all(engine)
    wanted = _keys_and_indexes(empty_database_url)
    assert any("lease_until IS NOT NULL" in each for each in wanted)
    metadata.drop_all(engine)
    engine.dispose()
    migrate.upgrade(empty_database_url)
    assert _keys_and_indexes(empty_database_url) == wanted


ENDPOINT = "018f0000-0000-7000-8000-000000000004"
DISABLED = "018f0000-0000-7000-8000-000000000005"


def test_deliveries_queued_before_0011_stay_queued_and_endpoints_follow_the_log_from_there(
    empty_database_url: str,
) -> None:
    migrate.upgrade(empty_database_url, "0009")
    own = "organization_id, id, created_at, updated_at"
    settings = "timezone, default_currency, created_at, updated_at"
    delivery = (
        "INSERT INTO deliveries (organization_id, id, created_at, updated_at, endpoint_id, event_id, event_type,"
        ' event_sequence, status, "trigger", max_attempts, next_attempt_at, completed_at) VALUES'
    )
    databases.run(
        empty_database_url,
        f"INSERT INTO organizations (id, slug, name, {settings}) VALUES ('{ORG}', 'a', 'A', 'UTC', 'NOK', 1, 1)",
        f"INSERT INTO counters (organization_id, last_booking_number, last_event_sequence) VALUES ('{ORG}', 1, 7)",
        f"INSERT INTO webhook_endpoints ({own}, url, status, enabled_at, disabled_at, last_claimed_at) VALUES"
        f" ('{ORG}', '{ENDPOINT}', 1, 1, 'https://a', 'enabled', 1, NULL, 5),"
        f" ('{ORG}', '{DISABLED}', 1, 1, 'https://b', 'disabled', 1, 9, NULL)",
        "INSERT INTO webhook_subscriptions (organization_id, endpoint_id, event_type) VALUES"
        f" ('{ORG}', '{ENDPOINT}', 'booking.created'), ('{ORG}', '{DISABLED}', 'booking.created')",
        f"{delivery} ('{ORG}', '{BOOKING}', 3, 3, '{ENDPOINT}', '{BOOKING}', 'booking.created', 7, 'queued', 'event',"
        " 6, 3, NULL)",
        f"{delivery} ('{ORG}', '{CUSTOMER}', 3, 3, '{DISABLED}', '{BOOKING}', 'booking.created', 7, 'failed', 'event',"
        " 6, NULL, 3)",
    )
    migrate.upgrade(empty_database_url)
    assert migrate.differences(empty_database_url) == []
    assert _rows(empty_database_url, "SELECT id, status, generation FROM deliveries ORDER BY id") == [
        (BOOKING, "queued", "0"),
        (CUSTOMER, "failed", "0"),
    ]
    assert _rows(empty_database_url, "SELECT served_sequence, last_claimed_at FROM webhook_cursors ORDER BY 2") in (
        [("7", "5"), ("7", "None")],
        [("7", "None"), ("7", "5")],  # SQLite sorts what is missing first
    )
    assert _rows(empty_database_url, "SELECT from_sequence, until_sequence FROM webhook_subscriptions") == [
        ("7", "None"),
        ("7", "None"),
    ]
    missed = "SELECT endpoint_id, from_sequence, until_sequence, missed_at FROM webhook_ranges"
    assert _rows(empty_database_url, missed) == [(DISABLED, "7", "None", "9")]
    flags = "SELECT 1 FROM counters WHERE has_webhooks AND NOT has_undelivered"
    assert _rows(empty_database_url, flags) == [("1",)]
