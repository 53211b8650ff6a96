"""Warnings about expiring keys: staff gets one mail for each key, in time to replace it."""

from sqlalchemy import BigInteger, ClauseElement, Integer, bindparam, select
from sqlalchemy.engine import Dialect

from booking_core import outbox
from booking_core.clock import DAY
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, now_us
from booking_core.db.tables import api_keys, organizations
from booking_core.db.unit_of_work import Update
from booking_core.outbox import OutboxKind

WARNED_AHEAD = 7 * DAY
_WARNED = Update("warned", api_keys, sets=("warned_at",))


def _expiring(dialect: Dialect) -> ClauseElement:
    now = now_us(dialect)
    return (
        select(
            api_keys.c.organization_id, api_keys.c.id, api_keys.c.name, api_keys.c.prefix, api_keys.c.expires_at, now
        )
        .join_from(api_keys, organizations, organizations.c.id == api_keys.c.organization_id)
        .where(
            organizations.c.notify_staff,
            api_keys.c.revoked_at.is_(None),
            api_keys.c.expires_at > now,
            api_keys.c.expires_at <= now + bindparam("ahead", type_=BigInteger),
            api_keys.c.warned_at.is_(None),
        )
        .order_by(api_keys.c.expires_at)
        .limit(bindparam("limit", type_=Integer))
    )


_EXPIRING = Statement(_expiring)


def warn_expiring(tx: Tx, *, limit: int) -> int:
    """Enqueue a mail to staff for each key that expires within a week, if the organization enabled such mails.

    Each key gets one mail, also if its expiry is changed later or the mail fails. Returns the number of keys.
    """
    found = tx.all(_EXPIRING, ahead=WARNED_AHEAD, limit=limit)
    for organization_id, key_id, name, prefix, expires_at, at in found:
        payload = {"name": name, "prefix": prefix, "expires_at": expires_at}
        outbox.enqueue(tx, organization_id, OutboxKind.STAFF_KEY_EXPIRING_MAIL, key_id, at=at, payload=payload)
        tx.update(_WARNED, organization_id=organization_id, id=key_id, warned_at=at)
    return len(found)
