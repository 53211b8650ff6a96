"""One organization in one database, made by plain inserts, with the few things that most tests need."""

import json
from dataclasses import dataclass, field
from typing import Any

from booking_core import tokens
from booking_core.caller import ApiKey, Caller, Installation, Organization
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.writes import Writes
from booking_core.wire.scopes import Scope

SECRET = "a secret key for tests"
NOON = 1_795_262_400_000_000
"""2026-11-21 12:00:00 UTC."""
HOUR = 3_600_000_000
DAY = 24 * HOUR

ADULT = {"id": "adult", "name": "Adult", "price": {"amount_minor": 89000, "currency": "NOK"}, "seats_per_unit": 1}
FAMILY = {"id": "family", "name": "Family", "price": {"amount_minor": 250000, "currency": "NOK"}, "seats_per_unit": 4}
DRYSUIT = {"id": "drysuit", "label": "Dry suit", "price": {"amount_minor": 15000, "currency": "NOK"}}


class FixedClock:
    """A clock that stands still until it is moved."""

    def __init__(self, at: int = NOON) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at

    def advance(self, micros: int) -> None:
        self.at += micros


@dataclass
class World:
    """An organization, and ways to put rows into it."""

    database: Database
    clock: FixedClock
    organization: Organization
    installation: Installation = field(default_factory=lambda: Installation(tokens.SecretKeys(SECRET)))

    @property
    def org(self) -> str:
        return self.organization.id

    def insert(self, table: Any, **row: Any) -> str:
        """One row; the id is made when the table has one and none is given."""
        if "id" in table.c and "id" not in row:
            row["id"] = tokens.new_id()
        pending = Writes()
        pending.insert(table, organization_id=self.org, **row)
        self.database.write(lambda tx: tx.write(pending))
        return str(row.get("id", ""))

    def key(self, *scopes: Scope, **columns: Any) -> str:
        """The plain text of a new key; every scope when none is named."""
        key = tokens.new_api_key()
        self.insert(
            tables.api_keys,
            name="test",
            prefix=tokens.api_key_prefix(key),
            key_hash=tokens.hash_api_key(key),
            scopes=json.dumps(sorted(scopes or Scope)),
            created_at=self.clock(),
            **columns,
        )
        return key

    def caller(self, *scopes: Scope) -> Caller:
        """A caller with these scopes, or with every scope."""
        key = ApiKey(
            tokens.new_id(), self.org, "test", "svc_00000000", frozenset(scopes or Scope), NOON, None, None, None
        )
        return Caller(self.installation, self.organization, key, self.clock())

    def experience(self, **columns: Any) -> str:
        """The id of an experience with an adult and a family tier and one add-on."""
        row: dict[str, Any] = {
            "slug": f"tour-{tokens.new_id()}",
            "title": "Fjord kayak",
            "is_published": True,
            "duration_minutes": 150,
            "languages": '["en","nb"]',
            "tags": "[]",
            "currency": "NOK",
            "price_from_minor": 89000,
            "price_tiers": json.dumps([ADULT, FAMILY]),
            "add_ons": json.dumps([DRYSUIT]),
            "created_at": self.clock(),
            "updated_at": self.clock(),
        }
        return self.insert(tables.experiences, **(row | columns))

    def departure(self, experience_id: str, *, seats: int = 12, **columns: Any) -> str:
        """The id of an open departure, two days from now unless said."""
        row: dict[str, Any] = {
            "experience_id": experience_id,
            "starts_at": self.clock() + 2 * DAY,
            "status": "open",
            "seats_total": seats,
            "seats_ceiling": seats,
            "created_at": self.clock(),
            "updated_at": self.clock(),
        }
        return self.insert(tables.departures, **(row | columns))


def make_world(database: Database, clock: FixedClock, **columns: Any) -> World:
    """A new organization in Oslo with its counters."""
    row: dict[str, Any] = {
        "id": tokens.new_id(),
        "slug": f"org-{tokens.new_id()}",
        "name": "Fjord Tours",
        "timezone": "Europe/Oslo",
        "default_currency": "NOK",
        "api_app": True,
        "plan_api": True,
        "add_ons_app": True,
        "hours_before_booking_closes": 0,
        "pending_minutes": None,
        "refund_full_until_hours": 24,
        "refund_late_percent": 0,
        "notify_staff": True,
        "staff_email": "staff@example.com",
        "on_site_fee_percent": 0.0,
        "cancel_under_minimum": False,
        "created_at": clock(),
        "updated_at": clock(),
    } | columns
    pending = Writes()
    pending.insert(tables.organizations, **row)
    pending.insert(tables.counters, organization_id=row["id"])
    database.write(lambda tx: tx.write(pending))
    return World(database, clock, Organization(**row))
