"""The SQL of lists, retries and the purge of mails.

There are as many sent mails as bookings. A list of them is a scan along the primary key, whose ids are in the order of
time; queued and failed mails have partial indexes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, Text, and_, bindparam, delete, func, literal_column, select, true, tuple_
from sqlalchemy.sql.type_api import TypeEngine

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import (
    LIMIT,
    OWNER,
    Statement,
    as_rows,
    columns_of,
    has_key,
    is_of,
    rows_before,
    rows_parameter,
)
from booking_core.db.tables import Id, effects, mails
from booking_core.db.tables import organizations as organization_table
from booking_core.due_work.rows import DueRows
from booking_core.notifications.rules import BOOKING_KINDS, Mail, MailStatus, status_of_effect
from booking_core.notifications.store import IS_MAIL, QUEUED

# Lists ------------------------------------------------------------------------------------------------------------

_MAIL = columns_of(Mail._fields, mails)
_EFFECT_NAMES = ("key", "kind", "subject_id", "status", "attempt_count", "last_error", "created_at", "due_at")
_EFFECT = columns_of(("organization_id", *_EFFECT_NAMES), effects)


def _mail_from_row(row: Row) -> Mail:
    return Mail(*row[: len(_MAIL)])


def _mail_from_effect(row: Row) -> Mail:
    """Return a mail that is not written."""
    owner, key, kind, subject_id, status, attempts, last_error, created_at, due_at = row[: len(_EFFECT)]
    return Mail(
        organization_id=owner,
        id=None,
        effect_key=key,
        kind=kind,
        booking_id=subject_id if kind in BOOKING_KINDS else None,
        recipient=None,
        message_id=None,
        status=status_of_effect(status, last_error),
        attempt_count=attempts,
        last_error=last_error,
        created_at=created_at,
        sent_at=None,
        next_attempt_at=due_at if status == "queued" else None,
    )


def _indexed(table: Table, columns: Sequence[ColumnElement[Any]], *conditions: ColumnElement[bool]) -> Statement:
    """Return the statement for the newest rows of a partial index, of one organization; with null, of all."""
    # Within coalesce() it is only a filter: the planner does not prefer the primary key to the index.
    is_own = func.coalesce(table.c.organization_id == OWNER, true())
    return Statement(select(*columns).where(*conditions, is_own).order_by(table.c.created_at.desc()).limit(LIMIT))


_FAILED: ColumnElement[str] = literal_column("'failed'")
_INDEXED_MAILS = {
    MailStatus.QUEUED: _indexed(mails, _MAIL, mails.c.status == QUEUED),
    MailStatus.FAILED: _indexed(mails, _MAIL, mails.c.status == _FAILED, mails.c.completed_at.is_not(None)),
}
_UNMAILED = and_(effects.c.completed_at.is_not(None), effects.c.last_error.is_not(None))
"""Written as in the partial index of outbox rows without a mail: else the planner would not use it."""
_INDEXED_EFFECTS = {
    MailStatus.QUEUED: _indexed(effects, _EFFECT, effects.c.status == QUEUED, IS_MAIL),
    MailStatus.UNWRITTEN: _indexed(effects, _EFFECT, effects.c.status == _FAILED, _UNMAILED, IS_MAIL),
}
_OF_ONE = select(*_MAIL).where(mails.c.organization_id == OWNER).order_by(mails.c.id.desc()).limit(LIMIT)
_MAILS_BY_KEY = {
    None: Statement(_OF_ONE),
    MailStatus.SENT: Statement(_OF_ONE.where(mails.c.status == literal_column("'sent'"))),
}


def newest(tx: Tx, owners: Sequence[str], status: MailStatus | None, limit: int, *, every: bool) -> list[Mail]:
    """Return at least the newest mails of that status, written or not; `every`: the owners are all organizations."""
    of_index: Sequence[str | None] = [None] if every else owners
    rows: list[Row] = []
    if status in _INDEXED_MAILS:
        rows = _of_each(tx, _INDEXED_MAILS[status], of_index, limit)
    elif status in _MAILS_BY_KEY:
        rows = _of_each(tx, _MAILS_BY_KEY[status], owners, limit)
    effect_rows = [
        row
        for of_status, statement in _INDEXED_EFFECTS.items()
        if status in (None, of_status)
        for row in _of_each(tx, statement, of_index, limit)
    ]
    return [*map(_mail_from_row, rows), *map(_mail_from_effect, effect_rows)]


def _of_each(tx: Tx, statement: Statement, owners: Sequence[str | None], limit: int) -> list[Row]:
    return [row for owner in owners for row in tx.all(statement, organization_id=owner, limit=limit)]


def _named(table: Table, columns: Sequence[ColumnElement[Any]], name: ColumnElement[Any]) -> Statement:
    """Return the statement that finds a row by its name in any organization, with a look-up in each."""
    owned = table.c.organization_id == organization_table.c.id
    is_named = name == bindparam("name")
    return Statement(
        select(*columns, *organizations.COLUMNS).join_from(organization_table, table, owned).where(is_named)
    )


_MAIL_BY_ID = _named(mails, _MAIL, mails.c.id)
_MAIL_BY_KEY = _named(mails, _MAIL, mails.c.effect_key)
_EFFECT_BY_KEY = _named(effects, _EFFECT, effects.c.key)


def by_id(tx: Tx, mail_id: str) -> tuple[Mail, Organization] | None:
    """Return the mail with that id, and its organization."""
    row = tx.first(_MAIL_BY_ID, name=mail_id)
    return (_mail_from_row(row), organizations.from_row(row[len(_MAIL) :])) if row else None


def by_key(tx: Tx, key: str) -> tuple[Mail, Organization] | None:
    """Return the mail of the outbox row with that key, written or not, and its organization."""
    row = tx.first(_MAIL_BY_KEY, name=key)
    if row:
        return _mail_from_row(row), organizations.from_row(row[len(_MAIL) :])
    row = tx.first(_EFFECT_BY_KEY, name=key)
    return (_mail_from_effect(row), organizations.from_row(row[len(_EFFECT) :])) if row else None


# Locks -----------------------------------------------------------------------------------------------------------

MailKey = tuple[str, str]
"""(organization id, key of the effect)."""
_KEYS: dict[str, TypeEngine[Any] | type[TypeEngine[Any]]] = {"organization_id": Id, "key": Text}


_keys = rows_parameter("wanted", _KEYS)
_LOCK_MAILS = Statement(
    select(*_MAIL)
    .join_from(_keys, mails, is_of(mails.c, _keys.c, effect_key="key"))
    .order_by(mails.c.organization_id, mails.c.id)
    .with_for_update(of=mails)
)
_LOCK_EFFECTS = Statement(
    select(*_EFFECT, *organizations.COLUMNS)
    .join_from(_keys, effects, has_key(effects, _keys))
    .join(organization_table, organization_table.c.id == effects.c.organization_id)
    .order_by(effects.c.organization_id, effects.c.key)
    .with_for_update(of=effects)
)


class LockedMail(NamedTuple):
    """A mail with its outbox row, both locked until the transaction ends."""

    mail: Mail
    effect: Mail
    """The outbox row, as a mail that is not written."""
    organization: Organization


def lock(tx: Tx, keys: Iterable[MailKey]) -> dict[MailKey, LockedMail]:
    """Lock the mails and outbox rows that still exist, by key. Mails are locked first, as by the purge."""
    parameter = as_rows(_KEYS, keys)
    written = {
        (mail.organization_id, mail.effect_key): mail
        for mail in map(_mail_from_row, tx.all(_LOCK_MAILS, wanted=parameter))
    }
    locked = {}
    for row in tx.all(_LOCK_EFFECTS, wanted=parameter):
        effect, key = _mail_from_effect(row), row[:2]
        locked[key] = LockedMail(written.get(key, effect), effect, organizations.from_row(row[len(_EFFECT) :]))
    return locked


_WAITING = Statement(
    select(mails.c.effect_key, mails.c.kind).where(
        mails.c.organization_id == OWNER, mails.c.status == QUEUED, mails.c.booking_id == bindparam("booking_id")
    )
)


def waiting(tx: Tx, organization_id: str, booking_id: str) -> list[tuple[str, str]]:
    """Return the keys of the effects and the kinds of the queued mails about a booking."""
    rows = tx.all(_WAITING, organization_id=organization_id, booking_id=booking_id)
    return [(str(key), str(kind)) for key, kind in rows]


# Purging ---------------------------------------------------------------------------------------------------------


def _delete(table: Table, key: ColumnElement[Any]) -> Statement:
    """Return the statement that deletes the rows of the outbox rows."""
    purged = rows_parameter("purged", _KEYS).c
    is_purged = tuple_(table.c.organization_id, key).in_(select(purged.organization_id, purged.key))
    return Statement(delete(table).where(is_purged))


_DELETE_MAILS, _DELETE_EFFECTS = _delete(mails, mails.c.effect_key), _delete(effects, effects.c.key)


def _ended(table: Table, key: ColumnElement[Any], status: str, *conditions: ColumnElement[bool]) -> DueRows:
    """Return the rows of a status, due when they ended: a purge deletes those of an earlier instant."""
    of_status = table.c.status == literal_column(f"'{status}'")
    has_ended = (of_status, table.c.completed_at.is_not(None), *conditions)
    return DueRows(table, table.c.completed_at, key, has_ended)


ENDED_MAILS = {status: _ended(mails, mails.c.effect_key, status) for status in ("sent", "failed")}
ENDED_UNMAILED = {status: _ended(effects, effects.c.key, status, _UNMAILED) for status in ("done", "failed")}


_OF_STATUS = and_(mails.c.organization_id == OWNER, mails.c.status == bindparam("status"))
_OLD_MAILS = Statement(
    rows_before(mails, mails.c.completed_at, _OF_STATUS).with_only_columns(*mails.c["organization_id", "effect_key"])
)


def delete_mails(tx: Tx, keys: Sequence[MailKey]) -> None:
    """Delete the mails of the outbox rows."""
    tx.run(_DELETE_MAILS, purged=as_rows(_KEYS, keys))


def purge_mails(tx: Tx, organization_id: str, status: str, before: int, limit: int) -> int:
    keys = tx.all(_OLD_MAILS, organization_id=organization_id, status=status, before=before, limit=limit)
    if keys:
        purged = as_rows(_KEYS, keys)
        tx.run(_DELETE_MAILS, purged=purged)
        tx.run(_DELETE_EFFECTS, purged=purged)
    return len(keys)
