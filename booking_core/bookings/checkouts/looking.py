"""Ask Stripe for the refunds and disputes of an account, whose webhooks may have been lost: claimed, asked, settled.

An account is one row, so what is asked for grows with the accounts and the refunds, and not with the payments. A claim
moves the instant of the next look: a worker that dies leaves it to the next one, and two that look record the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.base.context import Actor, Installation
from booking_core.bookings.checkouts.applying import Applied, apply
from booking_core.bookings.checkouts.rules import LOOK_INTERVAL, LOOK_LEASE, LOOK_OVERLAP, Update
from booking_core.db import tables
from booking_core.db.due import DueRows, Processed
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, now_us
from booking_core.db.tables import Id
from booking_core.db.unit_of_work import Update as ChangedRow
from booking_core.payments import stripe_accounts

_accounts = tables.stripe_accounts.c
LOOKS = DueRows(tables.stripe_accounts, _accounts.look_at, _accounts.organization_id, lambda _: ())
"""The accounts: each is the only row of its organization, so that the search goes along the primary key."""


class DueLook(NamedTuple):
    """An account that is due."""

    seen_until: int
    created_at: int
    at: int


def _lock_due(dialect: Dialect) -> Any:
    now = now_us(dialect)
    return (
        select(_accounts.seen_until, _accounts.created_at, now.label("at"))
        .where(
            _accounts.organization_id == bindparam("organization_id", type_=Id),
            _accounts.look_at <= select(now).scalar_subquery(),
        )
        .with_for_update(key_share=True, skip_locked=True)
    )


_LOCK_DUE = Statement(_lock_due)
_LEASE = ChangedRow("lease_look", tables.stripe_accounts, sets=("look_at",), keys=("organization_id",))
_LOCK = Statement(
    select(_accounts.seen_until)
    .where(_accounts.organization_id == bindparam("organization_id", type_=Id))
    .with_for_update(key_share=True)
)
_SETTLE = ChangedRow("settle_look", tables.stripe_accounts, sets=("look_at", "seen_until"), keys=("organization_id",))


@dataclass(frozen=True, slots=True)
class AccountLook:
    """An account that is leased for one look."""

    organization_id: str
    since: int
    """Refunds that Stripe made before it are known."""
    until: int
    api_key: str = field(repr=False)


def claim(
    tx: Tx, installation: Installation, organization_id: str, organization_ids: Sequence[str]
) -> Processed[AccountLook]:
    """Lease the account if it is due. One that no live secret key opens is left for the next look."""
    row = tx.first(_LOCK_DUE, organization_id=organization_id)
    if row is None:
        return Processed()
    due = DueLook._make(row)
    account = stripe_accounts.find(tx, installation.secret_keys, organization_id)
    wait = LOOK_INTERVAL if account is None else LOOK_LEASE
    tx.update(_LEASE, organization_id=organization_id, look_at=due.at + wait)
    if account is None:
        return Processed(organization_ids)
    since = max(due.seen_until, due.created_at) - LOOK_OVERLAP
    return Processed(organization_ids, results=[AccountLook(organization_id, since, due.at, account.api_key)])


def record(tx: Tx, installation: Installation, organization_id: str, update: Update) -> Applied:
    """Record the state of a payment that a look has found."""
    organization = organizations.by_id(tx, organization_id)
    return apply(tx, Actor(installation=installation, organization=organization, at=tx.now()), update)


def settle(tx: Tx, look: AccountLook, seen_until: int | None) -> None:
    """End a look.

    Args:
        seen_until: the instant up to which everything is recorded; None: Stripe has not answered.
    """
    row = tx.first(_LOCK, organization_id=look.organization_id)
    if row is None:
        return
    reached = look.until if seen_until is None else seen_until
    look_at = tx.now() + (LOOK_INTERVAL if reached >= look.until else 0)
    until = int(row[0]) if seen_until is None else max(int(row[0]), seen_until)
    tx.update(_SETTLE, organization_id=look.organization_id, look_at=look_at, seen_until=until)
