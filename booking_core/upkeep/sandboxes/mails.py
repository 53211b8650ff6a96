"""The mails that a sandbox has captured."""

import email
from email import policy
from typing import Any, NamedTuple

from sqlalchemy import Integer, bindparam, literal_column, select

from booking_core import organizations
from booking_core.base import cursors
from booking_core.base.context import Caller
from booking_core.base.cursors import Binding
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, PageRequest, envelope
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, mails
from booking_core.models.pages import Order
from booking_core.notifications import SEALED_FOR


class CapturedMail(NamedTuple):
    """A mail with its sealed text."""

    id: str
    created_at: int
    kind: str
    booking_id: str | None
    recipient: str
    message: str


_SHOWN = select(*(mails.c[name] for name in CapturedMail._fields)).where(
    mails.c.organization_id == bindparam("organization_id", type_=Id),
    mails.c.message != literal_column("''"),
    mails.c.sent_at.is_not(None),
)
_AFTER = bindparam("after", type_=Id)
_LIMIT = bindparam("limit", type_=Integer)
# Along the primary key, whose ids are in the order in which mails were written.
_PAGES = {
    Order.DESC: Statement(_SHOWN.where(mails.c.id < _AFTER).order_by(mails.c.id.desc()).limit(_LIMIT)),
    Order.ASC: Statement(_SHOWN.where(mails.c.id > _AFTER).order_by(mails.c.id).limit(_LIMIT)),
}
_FIRST = {Order.DESC: "ffffffff-ffff-ffff-ffff-ffffffffffff", Order.ASC: "00000000-0000-0000-0000-000000000000"}


def find_mails(tx: Tx, caller: Caller, page: PageRequest) -> Page:
    """Return a page of the mails that the caller's sandbox has captured, in the order in which they were written.

    Raises:
        Conflict: `not_a_sandbox`.
        Malformed: the cursor is not one of this list.
    """
    organizations.require_sandbox(caller.organization)
    owner, keys = caller.organization.id, caller.secret_keys
    binding, after = Binding(owner, "sandbox_mails", page.order), _FIRST[page.order]
    if page.starting_after is not None:
        _, after = cursors.decode_row(keys, binding, page.starting_after)
    found = tx.all(_PAGES[page.order], organization_id=owner, after=after, limit=page.limit + 1)
    rows = [CapturedMail._make(row) for row in found[: page.limit]]
    has_more = len(found) > page.limit
    cursor = cursors.encode_row(keys, binding, rows[-1].created_at, rows[-1].id) if has_more else None
    return envelope([_present(row, caller) for row in rows], cursor)


def _present(row: CapturedMail, caller: Caller) -> dict[str, Any]:
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
