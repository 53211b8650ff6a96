"""Warnings about expiring keys: staff gets one mail for each key, in time to replace it."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select
from sqlalchemy.engine import Dialect

from booking_core.base.clock import DAY
from booking_core.db.due import DueRows, Processed
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, now_us
from booking_core.db.tables import Id, api_keys, organizations
from booking_core.db.unit_of_work import Update
from booking_core.records import outbox
from booking_core.records.outbox import OutboxKind

WARNED_AHEAD = 7 * DAY
_WARNED = Update("warned", api_keys, sets=("warned_at",))


_UNWARNED = (api_keys.c.expires_at.is_not(None), api_keys.c.revoked_at.is_(None), api_keys.c.warned_at.is_(None))


def _unexpired(dialect: Dialect) -> tuple[ColumnElement[bool], ...]:
    return (api_keys.c.expires_at > select(now_us(dialect)).scalar_subquery(),)


EXPIRING = DueRows(
    api_keys, api_keys.c.expires_at, api_keys.c.id, lambda _: _UNWARNED, ahead=WARNED_AHEAD, bounds=_unexpired
)


def _lock(dialect: Dialect) -> Any:
    mine = api_keys.c.organization_id == bindparam("organization_id", type_=Id)
    wanted = in_rows(dialect, api_keys.c.id, "wanted", "id")
    return (
        select(api_keys.c.id, api_keys.c.name, api_keys.c.prefix, api_keys.c.expires_at, now_us(dialect))
        .join_from(api_keys, organizations, organizations.c.id == api_keys.c.organization_id)
        .where(mine, wanted, organizations.c.notify_staff, *_UNWARNED, *_unexpired(dialect))
        .with_for_update(of=api_keys, skip_locked=True)
    )


_LOCK = Statement(_lock)


def warn_expiring(tx: Tx, organization_id: str, key_ids: Sequence[str]) -> Processed[None]:
    """Enqueue a mail to staff for each of the keys that expires within a week, if the organization enabled such mails.

    Each key gets one mail, also if its expiry is changed later or the mail fails.
    """
    wanted = as_json({"id": each} for each in key_ids)
    found = tx.all(_LOCK, organization_id=organization_id, wanted=wanted)
    for key_id, name, prefix, expires_at, at in found:
        payload = {"name": name, "prefix": prefix, "expires_at": expires_at}
        outbox.enqueue(tx, organization_id, OutboxKind.STAFF_KEY_EXPIRING_MAIL, key_id, at=at, payload=payload)
        tx.update(_WARNED, organization_id=organization_id, id=key_id, warned_at=at)
    return Processed([row[0] for row in found])
