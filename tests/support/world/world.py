"""An organization in a database, created by plain inserts, with the rows that most tests need."""

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import bindparam, select, update

from booking_core.base import gift_codes, tokens
from booking_core.base.context import Caller, CallerKey, Installation, Organization
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.statements import ROW_ID, Statement
from booking_core.models.scopes import Scope
from booking_core.upkeep import doctor

SECRET = "oYy2f2pVn0B7a5R8mXwQe4tLz1Kc9HjSdG3uT6vAiZE"
NEWER_SECRET = "yN7rW2kZ5pXq9Jv4Tb1Hd8Gf3Ls6MaCe0Uo-Ri_QwEY"
NOON = 1_795_262_400_000_000
"""2026-11-21 12:00:00 UTC."""
HOUR = 3_600_000_000
DAY = 24 * HOUR

ADULT = {"id": "adult", "name": "Adult", "price": {"amount_minor": 89000, "currency": "NOK"}, "seats_per_unit": 1}
FAMILY = {"id": "family", "name": "Family", "price": {"amount_minor": 250000, "currency": "NOK"}, "seats_per_unit": 4}
DRYSUIT = {"id": "drysuit", "label": "Dry suit", "price": {"amount_minor": 15000, "currency": "NOK"}}


class FixedClock:
    """A clock that only the test moves."""

    def __init__(self, at: int = NOON) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at

    def advance(self, micros: int) -> None:
        self.at += micros


@cache
def _rows_of(table: Any) -> Statement:
    return Statement(select(table).where(table.c.organization_id == bindparam("o")))


@cache
def _row_of(table: Any) -> Statement:
    return Statement(select(table).where(table.c.organization_id == bindparam("o"), table.c.id == bindparam("id")))


@dataclass
class World:
    """An organization, and methods to insert its rows."""

    database: Database
    clock: FixedClock
    organization: Organization
    installation: Installation = field(default_factory=lambda: Installation(tokens.SecretKeys(SECRET)))

    @property
    def org(self) -> str:
        return self.organization.id

    @property
    def url(self) -> str:
        """The URL of the database, with its password."""
        return self.database.url.render_as_string(hide_password=False)

    def insert(self, table: Any, **row: Any) -> str:
        """Insert a row, with a new id unless one is given, and return the id."""
        if "id" in table.c and "id" not in row:
            row["id"] = tokens.new_id()
        with self.database.writing() as tx:
            tx.insert(table, organization_id=self.org, **row)
        return str(row.get("id", ""))

    def code_columns(self, code: str) -> dict[str, str]:
        """Return the columns of a gift card's code, and the card's id, which the code is sealed for."""
        keys, card_id = self.installation.secret_keys, tokens.new_id()
        return {
            "id": card_id,
            "code_hash": gift_codes.hash_code(keys, self.org, code),
            "code_sealed": gift_codes.seal_code(keys, self.org, card_id, code),
            "code_last4": gift_codes.last4(code),
        }

    def rows(self, table: Any) -> list[dict[str, Any]]:
        """Return the organization's rows of a table."""
        rows = self.database.read(lambda tx: tx.all(_rows_of(table), o=self.org))
        return [dict(zip(table.c.keys(), row, strict=True)) for row in rows]

    def row(self, table: Any, row_id: str) -> dict[str, Any]:
        """Return a row by its id."""
        (values,) = self.database.read(lambda tx: tx.all(_row_of(table), o=self.org, id=row_id))
        return dict(zip(table.c.keys(), values, strict=True))

    def change(self, table: Any, row_id: str, **values: Any) -> None:
        """Change one row, or the organization itself."""
        columns = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in values}
        change = Statement(update(table).where(table.c.id == ROW_ID).values(columns))
        with self.database.writing() as tx:
            tx.run(change, id=row_id, **{f"new_{name}": value for name, value in values.items()})

    def examine(self) -> list[doctor.Finding]:
        """Return the doctor's findings in this organization."""
        return self.database.read(lambda tx: doctor.examine(tx, self.org))

    def key(self, *scopes: Scope, **columns: Any) -> str:
        """Insert a key, by default with every scope, and return its plain text."""
        key = tokens.new_api_key(self.installation.cell, is_test=self.organization.is_sandbox)
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
        """Return a caller with these scopes, or with every scope."""
        key = CallerKey(
            tokens.new_id(), self.org, "test", "svc_00000000", frozenset(scopes or Scope), NOON, None, None, None
        )
        return Caller(installation=self.installation, organization=self.organization, at=self.clock(), key=key)

    def experience(self, **columns: Any) -> str:
        """Insert an experience with an adult and a family tier and one add-on, and return its id."""
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

    def gift_card(self, code: str, *, amount_minor: int = 100) -> str:
        """Insert a gift card with this code and its whole amount, and return its id."""
        amounts = {"currency": "NOK", "initial_minor": amount_minor, "balance_minor": amount_minor}
        times = {"created_at": self.clock(), "updated_at": self.clock()}
        card_id = self.insert(tables.gift_cards, **self.code_columns(code), **amounts, **times)
        return self.entered(card_id, "issue", amount_minor, amount_minor)

    def entered(self, card_id: str, kind: str, amount_minor: int, balance_minor: int, **columns: Any) -> str:
        """Insert a line of the ledger of a gift card, and return the card's id."""
        amounts = {"amount_minor": amount_minor, "balance_minor": balance_minor, "created_at": self.clock()}
        self.insert(tables.gift_card_entries, gift_card_id=card_id, kind=kind, **amounts, **columns)
        return card_id

    def departure(self, experience_id: str, *, seats: int = 12, **columns: Any) -> str:
        """Insert an open departure, by default two days from now, and return its id."""
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


def organization_row(at: int, **columns: Any) -> dict[str, Any]:
    """Return the row of an organization in Oslo."""
    return {
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
        "created_at": at,
        "updated_at": at,
    } | columns


def make_world(database: Database, clock: FixedClock, **columns: Any) -> World:
    """Make an organization in Oslo with its counters."""
    row = organization_row(clock(), **columns)
    with database.writing() as tx:
        tx.insert(tables.organizations, **row)
        tx.insert(tables.counters, organization_id=row["id"])
    return World(database, clock, Organization(**row))
