"""Sandboxes: organizations that never mail or charge for real, with a clock that their own keys move (decision 0016).

Otherwise a sandbox is like any organization. Its rows hold instants by the sandbox's clock; the present instant is
`Organization.instant` of the real time.
"""

import email
from dataclasses import replace
from email import policy
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, bindparam, func, literal_column, select

from booking_core import bookings, notifications, organizations
from booking_core.base import cursors
from booking_core.base.clock import SECOND
from booking_core.base.context import Caller, Organization
from booking_core.base.cursors import Binding
from booking_core.base.errors import Unprocessable
from booking_core.bookings import checkouts
from booking_core.db import sql_files, tables
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, PageRequest, page_of
from booking_core.db.statements import LIMIT, NOW, OWNER, ROW_ID, Statement, columns_of
from booking_core.db.tables import Id
from booking_core.due_work.rows import DueWork
from booking_core.models.limits import SANDBOX_CLOCK_AHEAD_S_MAX, SANDBOX_DUE_MAX
from booking_core.models.pages import Order
from booking_core.models.sandbox import SandboxClockAdvance, SandboxStatus
from booking_core.notifications import SEALED_FOR

# The clock ------------------------------------------------------------------------------------------------------------


def clock(tx: Tx, caller: Caller) -> dict[str, Any]:
    """Return the clock of the caller's sandbox, with the work that is due.

    Raises:
        Conflict: `not_a_sandbox`.
    """
    organization = caller.organization
    organizations.require_sandbox(organization)
    due = _due(tx, caller)
    return {
        "now": organization.zone.iso(caller.at),
        "offset_seconds": (organization.clock_offset or 0) // SECOND,
        "status": (SandboxStatus.ADVANCING if any(due.values()) else SandboxStatus.READY).value,
        "due": due,
    }


def advance(tx: Tx, caller: Caller, request: SandboxClockAdvance) -> dict[str, Any]:
    """Move the clock of the caller's sandbox ahead, and return it. The worker then does the due work.

    Raises:
        Conflict: `not_a_sandbox`.
        Unprocessable: `in_the_past`, or `too_far_ahead`.
    """
    organizations.require_sandbox(caller.organization)
    ((offset,),) = tx.all(_LOCK, id=caller.organization.id)  # a sandbox never becomes live
    real = caller.at - (caller.organization.clock_offset or 0)
    moved = _new_offset(caller.organization, int(offset), real, request)
    tx.update(tables.organizations, id=caller.organization.id, clock_offset=moved)
    organization = replace(caller.organization, clock_offset=moved)
    organizations.follow(tx, organization, real)
    return clock(tx, replace(caller, organization=organization, at=organization.instant(real)))


def _due(tx: Tx, caller: Caller) -> dict[str, int]:
    """Return the numbers of due rows, by the fields of `SandboxDue`."""
    owner = caller.organization.id
    counted = _count_due(tx, owner, caller.at)
    closed = _count(tx, owner, bookings.CLOSED) if caller.organization.cancel_under_minimum else 0
    return {
        "bookings": _count(tx, owner, bookings.EXPIRED),
        "departures": min(SANDBOX_DUE_MAX, _count(tx, owner, bookings.CANCELLING) + closed),
        "payments": _count(tx, owner, checkouts.DUE),
        "refunds": counted["refunds"],
        "mails": min(SANDBOX_DUE_MAX, _count(tx, owner, notifications.OWED) + counted["mails"]),
        "deliveries": counted["deliveries"],
    }


def _count(tx: Tx, organization_id: str, work: DueWork) -> int:
    return len(work.find(tx, organization_id, after=None, limit=SANDBOX_DUE_MAX).rows)


def _new_offset(organization: Organization, offset: int, real: int, request: SandboxClockAdvance) -> int:
    """Return the offset of the clock after an advance.

    Args:
        offset: the present one.
        real: the present instant by the database's clock.

    Raises:
        Unprocessable: `in_the_past`, or `too_far_ahead`.
    """
    if request.to is None:
        assert request.seconds is not None
        moved = offset + request.seconds * SECOND
    else:
        moved = organization.zone.parse(request.to) - real
    if moved < offset:
        raise Unprocessable.at("to", "The clock of a sandbox never goes back.", "in_the_past")
    if moved > SANDBOX_CLOCK_AHEAD_S_MAX * SECOND:
        field = "seconds" if request.to is None else "to"
        message = "The clock of a sandbox is never more than 731 days ahead of the real time."
        raise Unprocessable.at(field, message, "too_far_ahead")
    return moved


# Statements ---------------------------------------------------------------------------------------------------------

_SQL = sql_files.load(__name__)
_COUNT = _SQL.statement("count")
_DUE = {
    "refunds": _SQL.statement("due_refunds"),
    "mails": _SQL.statement("due_mails"),
    "deliveries": _SQL.statement("due_deliveries"),
}
_LOCK = Statement(
    select(tables.organizations.c.clock_offset)
    .where(tables.organizations.c.id == ROW_ID, tables.organizations.c.clock_offset.is_not(None))
    .with_for_update(key_share=True)
)


_TOTAL = select(
    func.coalesce(func.sum(tables.organizations.c.clock_offset), literal_column("0"), type_=BigInteger)
).where(tables.organizations.c.clock_offset.is_not(None))
_CLOCKS = Statement(select(NOW, select(tables.retention_clock.c.at).scalar_subquery(), _TOTAL.scalar_subquery()))


class Clocks(NamedTuple):
    """The clocks of an installation, read at one moment."""

    now: int
    """The database's."""
    retention: int | None
    """The retention clock; None before the first purge."""
    total_offset: int
    """The offsets of all sandboxes together, which grows with every advance."""


def read_clocks(tx: Tx) -> Clocks:
    """Return the clocks of the installation."""
    (row,) = tx.all(_CLOCKS)
    return Clocks(int(row[0]), None if row[1] is None else int(row[1]), int(row[2]))


def _count_due(tx: Tx, organization_id: str, at: int) -> dict[str, int]:
    """Count the payments, refunds, mails and deliveries that are due or in flight, each up to the limit."""
    parameters = {"organization_id": organization_id, "at": at, "limit": SANDBOX_DUE_MAX}
    return {name: int(tx.all(statement, **parameters)[0][0]) for name, statement in _DUE.items()}


def count(tx: Tx) -> int:
    """Return the number of sandboxes."""
    return int(tx.all(_COUNT)[0][0])


# Captured mails -----------------------------------------------------------------------------------------------------


class CapturedMail(NamedTuple):
    """A mail with its sealed text."""

    id: str
    created_at: int
    kind: str
    booking_id: str | None
    recipient: str
    message: str


_CAPTURED = select(*columns_of(CapturedMail._fields, tables.mails)).where(
    tables.mails.c.organization_id == OWNER,
    tables.mails.c.message != literal_column("''"),
    tables.mails.c.sent_at.is_not(None),
)
_AFTER = bindparam("after", type_=Id)
# Along the primary key, whose ids are in the order of the mails' creation.
_PAGES = {
    Order.DESC: Statement(_CAPTURED.where(tables.mails.c.id < _AFTER).order_by(tables.mails.c.id.desc()).limit(LIMIT)),
    Order.ASC: Statement(_CAPTURED.where(tables.mails.c.id > _AFTER).order_by(tables.mails.c.id).limit(LIMIT)),
}
_FIRST = {Order.DESC: "ffffffff-ffff-ffff-ffff-ffffffffffff", Order.ASC: "00000000-0000-0000-0000-000000000000"}


def find_mails(tx: Tx, caller: Caller, page: PageRequest) -> JsonPage:
    """Return a page of the mails that the caller's sandbox has captured, in the order of their creation.

    Raises:
        Conflict: `not_a_sandbox`.
        Malformed: the cursor is not one of this list.
    """
    organizations.require_sandbox(caller.organization)
    owner, keys = caller.organization.id, caller.secret_keys
    binding, after = Binding(owner, "sandbox_mails", page.order), _FIRST[page.order]
    if page.starting_after is not None:
        _, after = cursors.decode_row(keys, binding, page.starting_after)
    rows = tx.all(_PAGES[page.order], organization_id=owner, after=after, limit=page.limit + 1)
    return page_of(
        [CapturedMail._make(row) for row in rows],
        page,
        lambda mail: _present_mail(mail, caller),
        lambda mail: cursors.encode_row(keys, binding, mail.created_at, mail.id),
    )


def _present_mail(row: CapturedMail, caller: Caller) -> dict[str, Any]:
    """Return the API's SandboxMail, ready for JSON."""
    sealed_for = (caller.organization.id, row.id)
    message = email.message_from_bytes(
        caller.secret_keys.open(SEALED_FOR, row.message, *sealed_for), policy=policy.default
    )
    return {
        "id": row.id,
        "kind": row.kind,
        "booking_id": row.booking_id,
        "recipient": row.recipient,
        "subject": str(message["Subject"]),
        "text": _part(message, "plain") or "",
        "html": _part(message, "html"),
        "created_at": caller.organization.zone.iso(row.created_at),
    }


def _part(message: Any, kind: str) -> str | None:
    part = message.get_body(preferencelist=(kind,))
    return None if part is None else str(part.get_content())
