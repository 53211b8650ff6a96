"""`booking customers`: a customer is exported, and anonymized after a confirmation that shows the effect."""

import os
from typing import Any

import pytest
from support.databases import databases
from support.serving.commands import Booking

ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
COLUMNS = "organization_id, id, email, email_key, name, tags, email_subscription, created_at, updated_at"


@pytest.fixture
def ada(fjord: Booking) -> Booking:
    """The command line, with one customer in the database."""
    add = f"INSERT INTO customers ({COLUMNS}) SELECT id, '{ID}', 'a@b.example', 'a@b.example', 'Ada', '[]', 0, 1, 1"
    databases.run(os.environ["BOOKING_DATABASE_URL"], f"{add} FROM organizations")
    return fjord


def stored() -> tuple[Any, ...]:
    with databases.connect(os.environ["BOOKING_DATABASE_URL"]) as connection:
        return connection.execute("SELECT name, anonymized_at IS NULL FROM customers").fetchone()


def test_a_customer_is_exported_as_json_without_an_option(ada: Booking) -> None:
    exported = ada("customers", "export", ID)
    assert exported.code == 0, exported.err
    assert (exported.json["customer"]["email"], exported.json["bookings"]) == ("a@b.example", [])
    assert ada("customers", "export", ID.replace("0190", "0191")).code == 6
    assert ada("customers", "export", "no-id").code in (2, 6)


def test_a_dry_run_of_an_anonymization_changes_nothing(ada: Booking) -> None:
    result = ada("customers", "anonymize", ID, "--dry-run", "-o", "json")
    assert (result.code, result.json["status"], result.json["dry_run"]) == (0, "not_requested", True)
    assert stored() == ("Ada", 1)


def test_a_second_run_shows_the_state_and_asks_nothing(ada: Booking) -> None:
    first = ada("customers", "anonymize", ID, "--yes", "-o", "json")
    assert (first.code, first.json["status"], first.json["finished_at"]) == (0, "in_progress", None), first.err
    assert stored() == ("Anonymized", 0)
    assert ada("customers", "anonymize", ID, "-o", "json").json == first.json
    assert ada("customers", "anonymize", ID.replace("0190", "0191"), "--yes").code == 6
