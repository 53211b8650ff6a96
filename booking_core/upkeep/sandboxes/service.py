"""Functions of a sandbox's clock."""

from dataclasses import replace
from typing import Any

from booking_core import bookings, notifications, organizations
from booking_core.base.context import Caller
from booking_core.db.due import DueWork
from booking_core.db.engine import Tx
from booking_core.models.limits import SANDBOX_DUE_MAX
from booking_core.models.sandbox import SandboxClockAdvance
from booking_core.upkeep.sandboxes import rules, store

count, read_clocks = store.count, store.read_clocks


def clock(tx: Tx, caller: Caller) -> dict[str, Any]:
    """Return the clock of the caller's sandbox, with what is due at its instant.

    Raises:
        Conflict: `not_a_sandbox`.
    """
    organizations.require_sandbox(caller.organization)
    real = caller.at - (caller.organization.clock_offset or 0)
    return rules.present(caller.organization, real, _due(tx, caller))


def advance(tx: Tx, caller: Caller, request: SandboxClockAdvance) -> dict[str, Any]:
    """Move the clock of the caller's sandbox ahead, and return it. The worker then does what has become due.

    Raises:
        Malformed: `to` is no timestamp.
        Conflict: `not_a_sandbox`.
        Unprocessable: `in_the_past`, or `too_far_ahead`.
    """
    organizations.require_sandbox(caller.organization)
    offset = store.lock_offset(tx, caller.organization.id)
    real = caller.at - (caller.organization.clock_offset or 0)
    assert offset is not None, "a sandbox never becomes live"
    moved = rules.new_offset(caller.organization, offset, real, request)
    store.set_offset(tx, caller.organization.id, moved)
    organization = replace(caller.organization, clock_offset=moved)
    organizations.follow(tx, organization, real)
    return clock(tx, replace(caller, organization=organization, at=organization.instant(real)))


def _due(tx: Tx, caller: Caller) -> dict[str, int]:
    """Return the numbers of what is due, by the fields of `SandboxDue`."""
    owner = caller.organization.id
    counted = store.count_due(tx, owner, caller.at)
    closed = _count(tx, owner, bookings.CLOSED) if caller.organization.cancel_under_minimum else 0
    return {
        "bookings": _count(tx, owner, bookings.EXPIRED),
        "departures": min(SANDBOX_DUE_MAX, _count(tx, owner, bookings.CANCELLING) + closed),
        "payments": counted["payments"],
        "refunds": counted["refunds"],
        "mails": min(SANDBOX_DUE_MAX, _count(tx, owner, notifications.OWED) + counted["mails"]),
        "deliveries": counted["deliveries"],
    }


def _count(tx: Tx, organization_id: str, work: DueWork) -> int:
    return len(work.find(tx, organization_id, after=None, limit=SANDBOX_DUE_MAX).rows)
