"""Corrects timestamps that are further in the future than possible (decision 0019).

A clock that was ahead when a row was written, and was set back since, leaves that row due in a future that is the step
away. Each function finds such rows by how long the longest wait of their kind may be, and makes them due after that
wait, counted from now: never before its time, and never later than that. A lease is shortened to its length and stays
with whoever holds it. A second run finds nothing.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Table,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.engine import Dialect

from booking_core import checkouts, departure_touches, notifications, payments, webhooks
from booking_core.clock import END_OF_TIME, MINUTE, SECOND
from booking_core.context import Installation
from booking_core.db.due import clock_offset_of
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, now_us, rows_from_json
from booking_core.db.tables import (
    bookings,
    deliveries,
    effects,
    erasures,
    holds,
    mails,
    organizations,
    payment_intents,
    refunds,
    webhook_cursors,
    webhook_leases,
)
from booking_core.db.tables import departure_touches as touches
from booking_core.db.unit_of_work import Update
from booking_core.errors import is_outage

BATCH = 500
SLACK = 2 * SECOND
"""Clocks of two processes may differ by so much, and a statement may take as long."""
MAIL_LEASE = 15 * MINUTE
"""Longer than any lease of a mail or a refund."""
REFUND_WAIT = payments.RETRY_DELAY_MAX_S * SECOND
_LIMIT = bindparam("limit", type_=Integer)

log = logging.getLogger("booking.realign")

Realign = Callable[[Tx], int]
"""Brings back a batch of rows, and gives how many: none when all is done that can be done."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Rows of one kind that are too far ahead: organization, id, now, and the wait that they are given instead."""

    found: Statement
    change: Update
    key: str = "id"

    def realign(self, tx: Tx, **parameters: object) -> int:
        """Bring back a batch."""
        changes = [
            {"organization_id": organization_id, self.key: row_id} | dict.fromkeys(self.change.sets, now + wait)
            for organization_id, row_id, now, wait in tx.all(self.found, limit=BATCH, **parameters)
        ]
        return _change(tx, self.change, changes)


def _change(tx: Tx, target: Update, changes: Sequence[dict[str, Any]]) -> int:
    """Update the rows, and return how many could be. A row that fails, of whatever organization, keeps no other."""
    try:
        tx.in_savepoint(lambda tx: _update(tx, target, changes))
        return len(changes)
    except Exception as error:
        if is_outage(error):
            raise
    return sum(_is_changed(tx, target, each) for each in changes)


def _is_changed(tx: Tx, target: Update, change: dict[str, Any]) -> bool:
    try:
        tx.in_savepoint(lambda tx: _update(tx, target, [change]))
    except Exception as error:
        if is_outage(error):
            raise
        key = {name: change[name] for name in target.keys}
        log.exception("%s: the time of %s lies too far ahead, and cannot be corrected", target.table.name, key)
        return False
    return True


def _update(tx: Tx, target: Update, changes: Sequence[dict[str, Any]]) -> None:
    for each in changes:
        tx.update(target, **each)


def _now_of(dialect: Dialect, table: Table) -> ColumnElement[int]:
    """Return the present instant of a row's organization, whose clock is ahead if it is a sandbox."""
    offset = clock_offset_of(table.c.organization_id).correlate(table).scalar_subquery()
    return now_us(dialect) + func.coalesce(offset, literal_column("0"))


def _select(
    dialect: Dialect, table: Table, key: str, due: str, wait: ColumnElement[int], *, is_real: bool = False
) -> Select[Any]:
    """Select the rows whose timestamp is in the future by more than the delay.

    Args:
        is_real: the timestamp is of the real time for sandboxes too.
    """
    now = now_us(dialect) if is_real else _now_of(dialect, table)
    return (
        select(table.c.organization_id, table.c[key], now, wait)
        .where(table.c[due] > now + wait + SLACK)
        .limit(_LIMIT)
        .with_for_update(of=table, skip_locked=True)
    )


def _by_attempts(dialect: Dialect, table: Table, key: str, due: str) -> Select[Any]:
    """Return the condition by the delay for the number of attempts; the last delay counts for all further attempts."""
    waits = rows_from_json(dialect, "waits", {"attempts": Integer, "wait": BigInteger})
    last = bindparam("last", type_=Integer)
    number = case((table.c.attempt_count > last, last), else_=table.c.attempt_count)
    return (
        _select(dialect, table, key, due, waits.c.wait)
        .join_from(table, waits, waits.c.attempts == number)
        .where(table.c.status == literal_column("'queued'"), table.c[due] != literal_column(str(END_OF_TIME)))
    )


def _attempts(waits: Sequence[int], at_least: int = 0) -> dict[str, object]:
    """Return the parameters of `_by_attempts`: without an attempt there is no delay."""
    by_number = {0: 0, **{number: max(wait, at_least) for number, wait in enumerate(waits, start=1)}}
    return {
        "waits": as_json({"attempts": number, "wait": wait} for number, wait in by_number.items()),
        "last": len(waits),
    }


# Deliveries ------------------------------------------------------------------------------------------------------


def _deliveries(dialect: Dialect) -> Select[Any]:
    """Return the condition by the delay after the last attempt. A first attempt and a manual retry have no delay."""
    waits = rows_from_json(dialect, "waits", {"left": Integer, "wait": BigInteger})
    d, most = deliveries.c, bindparam("most", type_=Integer)
    left = d.max_attempts - d.attempt_count
    asked_for = or_(d.attempt_count == 0, d.failure_reason.is_not(None))
    number = case((asked_for, literal_column("0")), (left > most, most), else_=left)
    return (
        _select(dialect, deliveries, "id", "next_attempt_at", waits.c.wait)
        .join_from(deliveries, waits, waits.c.left == number)
        .where(d.status == literal_column("'queued'"), d.lease_until.is_(None))
    )


_DELIVERIES = _Ahead(Statement(_deliveries), Update("realign_delivery", deliveries, sets=("next_attempt_at",)))
_LEASE = bindparam("lease", type_=BigInteger)
_LEASES = _Ahead(
    Statement(
        lambda dialect: _select(dialect, deliveries, "id", "lease_until", _LEASE, is_real=True).where(
            deliveries.c.lease_until.is_not(None)
        )
    ),
    Update("realign_lease", deliveries, sets=("lease_until",)),
)
_FIRST_ATTEMPTS = _Ahead(
    Statement(lambda dialect: _select(dialect, webhook_leases, "id", "lease_until", _LEASE, is_real=True)),
    Update("realign_first_attempts", webhook_leases, sets=("lease_until",)),
)


_PAUSES = _Ahead(
    Statement(
        lambda dialect: _select(
            dialect,
            webhook_cursors,
            "endpoint_id",
            "next_send_at",
            literal_column(str(webhooks.PAUSE_MAX), type_=BigInteger),
            is_real=True,
        )
    ),
    Update("realign_pause", webhook_cursors, sets=("next_send_at",), keys=("organization_id", "endpoint_id")),
    key="endpoint_id",
)


def delivery_waits(waits_s: Sequence[int]) -> dict[int, int]:
    """Return the longest wait by how many attempts are left, jitter included; 0 stands for no wait."""
    longest = [webhooks.longest_delay(wait_s) for wait_s in waits_s]
    return {0: 0, **{left: longest[-left] for left in range(1, len(longest) + 1)}}


def _realign_deliveries(tx: Tx, waits_s: Sequence[int]) -> int:
    waits = as_json({"left": left, "wait": wait} for left, wait in delivery_waits(waits_s).items())
    return _DELIVERIES.realign(tx, waits=waits, most=len(waits_s))


# Mails and refunds -----------------------------------------------------------------------------------------------

_MAILS = _Ahead(
    Statement(lambda dialect: _by_attempts(dialect, mails, "id", "next_attempt_at")),
    Update("realign_mail", mails, sets=("next_attempt_at",)),
)
_EFFECTS = _Ahead(
    Statement(lambda dialect: _by_attempts(dialect, effects, "key", "due_at")),
    Update("realign_effect", effects, sets=("due_at",), keys=("organization_id", "key")),
    key="key",
)
_REFUNDS = _Ahead(
    Statement(
        lambda dialect: _select(dialect, refunds, "id", "next_attempt_at", bindparam("wait", type_=BigInteger)).where(
            refunds.c.status.in_([literal_column("'requested'"), literal_column("'sending'")])
        )
    ),
    Update("realign_refund", refunds, sets=("next_attempt_at",)),
)

_ERASURES = _Ahead(
    Statement(
        lambda dialect: _select(
            dialect, erasures, "customer_id", "requested_at", literal_column("0", type_=BigInteger)
        ).where(erasures.c.finished_at.is_(None))
    ),
    Update("realign_erasure", erasures, sets=("requested_at",), keys=("organization_id", "customer_id")),
    key="customer_id",
)

# Seats -----------------------------------------------------------------------------------------------------------


def _pending(dialect: Dialect) -> Select[Any]:
    minutes = func.coalesce(organizations.c.pending_minutes, bindparam("minutes", type_=BigInteger))
    return (
        _select(dialect, bookings, "id", "expires_at", minutes * literal_column(str(MINUTE), type_=BigInteger))
        .join_from(bookings, organizations, organizations.c.id == bookings.c.organization_id)
        .where(bookings.c.status == literal_column("'pending'"))
    )


def _holds(dialect: Dialect) -> Select[Any]:
    """Holds that were made later than now; each has its own length."""
    now, length = _now_of(dialect, holds), holds.c.expires_at - holds.c.created_at
    return (
        select(holds.c.organization_id, holds.c.id, now, length)
        .where(and_(holds.c.created_at > now + SLACK, holds.c.ended_at.is_(None)))
        .limit(_LIMIT)
        .with_for_update(of=holds, skip_locked=True)
    )


_PENDING = _Ahead(Statement(_pending), Update("realign_booking", bookings, sets=("expires_at",)))
_HOLDS = Statement(_holds)
_HOLD = Update("realign_hold", holds, sets=("created_at", "expires_at"))


def _realign_holds(tx: Tx) -> int:
    found = tx.all(_HOLDS, limit=BATCH)
    return _change(
        tx,
        _HOLD,
        [
            {"organization_id": owner, "id": hold_id, "created_at": now, "expires_at": now + max(0, length)}
            for owner, hold_id, now, length in found
        ],
    )


# Payments at Stripe ----------------------------------------------------------------------------------------------


def _checks(dialect: Dialect) -> Select[Any]:
    """Checks that are further ahead than the end of their checkout, or now, and the longest delay behind it."""
    delays = rows_from_json(dialect, "delays", {"checks": Integer, "delay": BigInteger})
    c, now, last = payment_intents.c, _now_of(dialect, payment_intents), bindparam("last", type_=Integer)
    ends_at = case((bookings.c.status == literal_column("'pending'"), bookings.c.expires_at))
    is_booking = and_(bookings.c.organization_id == c.organization_id, bookings.c.id == c.booking_id)
    return (
        select(c.organization_id, c.booking_id, now, ends_at, delays.c.delay)
        .join_from(payment_intents, bookings, is_booking)
        .join(delays, delays.c.checks == case((c.check_count > last, last), else_=c.check_count))
        .where(c.check_at > case((ends_at > now, ends_at), else_=now) + delays.c.delay + SLACK)
        .limit(_LIMIT)
        .with_for_update(of=payment_intents, skip_locked=True)
    )


_CHECKS = Statement(_checks)
_CHECK = Update("realign_check", payment_intents, sets=("check_at",), keys=("organization_id", "booking_id"))


def _realign_checks(tx: Tx) -> int:
    """Bring back a batch of checks. One of a checkout that still waits is made before its end, as the first one is."""
    delays = as_json({"checks": count, "delay": delay} for count, delay in enumerate(checkouts.CHECK_DELAYS))
    found = tx.all(_CHECKS, limit=BATCH, delays=delays, last=len(checkouts.CHECK_DELAYS) - 1)
    return _change(
        tx,
        _CHECK,
        [
            {"organization_id": owner, "booking_id": booking_id}
            | {"check_at": checkouts.first_check(now, ends_at) if (ends_at or 0) > now else now + delay}
            for owner, booking_id, now, ends_at, delay in found
        ],
    )


# Announcements ---------------------------------------------------------------------------------------------------


def _touches(dialect: Dialect) -> Select[Any]:
    """Departures that are noted for later than the window, and for no end of a hold. They are looked at now."""
    h, of = holds.c, touches.c
    ends_then = (
        select(literal_column("1"))
        .where(h.organization_id == of.organization_id, h.departure_id == of.departure_id)
        .where(h.ended_at.is_(None), h.expires_at >= of.due_at)
        .correlate(touches)
        .exists()
    )
    now = _now_of(dialect, touches)
    return (
        select(of.organization_id, of.id, now, literal_column("0", type_=BigInteger))
        .where(of.due_at > now + departure_touches.WINDOW + SLACK, ~ends_then)
        .limit(_LIMIT)
        .with_for_update(of=touches, skip_locked=True)
    )


_TOUCHES = _Ahead(Statement(_touches), Update("realign_touch", touches, sets=("due_at",)))

# All of it -------------------------------------------------------------------------------------------------------


def all_kinds(installation: Installation, *, waits_s: Sequence[int], lease_s: int) -> list[Realign]:
    """Return what is to be run, each again and again until it finds nothing, after a clock was set back.

    Args:
        waits_s: seconds between the attempts of a delivery.
        lease_s: seconds of a delivery's lease.
    """
    return [
        lambda tx: _realign_deliveries(tx, waits_s),
        lambda tx: _LEASES.realign(tx, lease=lease_s * SECOND),
        lambda tx: _FIRST_ATTEMPTS.realign(tx, lease=lease_s * SECOND),
        lambda tx: _REFUNDS.realign(tx, wait=REFUND_WAIT),
        lambda tx: _MAILS.realign(tx, **_attempts(notifications.SEND_RETRY_DELAYS, MAIL_LEASE)),
        lambda tx: _EFFECTS.realign(tx, **_attempts(notifications.WRITE_RETRY_DELAYS)),
        lambda tx: _PENDING.realign(tx, minutes=installation.pending_minutes),
        _realign_holds,
        _realign_checks,
        lambda tx: _TOUCHES.realign(tx),
        lambda tx: _PAUSES.realign(tx),
        lambda tx: _ERASURES.realign(tx),
    ]
