"""The SQL of what became of mails: found by an operator, owed again, and forgotten.

Of mails that were sent there are as many as there were bookings. So a list of them is a walk along the primary key,
whose ids are made in the order of time; those that wait or have failed are found by indexes that hold no others.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    false,
    func,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.type_api import TypeEngine

from booking_core import organizations
from booking_core.context import Organization
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement, as_json, rows_parameter
from booking_core.db.tables import Id, effects, mails
from booking_core.db.tables import organizations as organization_table
from booking_core.notifications.rules import BOOKING_KINDS, Mail, MailStatus, status_of_effect
from booking_core.notifications.store import IS_MAIL, QUEUED

# Found --------------------------------------------------------------------------------------------------------------

_LIMIT = bindparam("limit", type_=Integer)
_OWNER = bindparam("organization_id", type_=Id)
_MAIL = (
    mails.c.organization_id,
    mails.c.id,
    *(mails.c[name] for name in ("effect_key", "kind", "booking_id", "recipient", "message_id", "status")),
    *(mails.c[name] for name in ("attempt_count", "last_error", "created_at", "sent_at", "next_attempt_at")),
)
_EFFECT_NAMES = ("key", "kind", "subject_id", "status", "attempt_count", "last_error", "created_at", "due_at")
_EFFECT = (effects.c.organization_id, *(effects.c[name] for name in _EFFECT_NAMES))


def _of_mail(row: Row) -> Mail:
    return Mail(*row[: len(_MAIL)])


def _of_effect(row: Row) -> Mail:
    """A mail that is not written."""
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


class _Few(NamedTuple):
    """The newest of what an index has to itself."""

    of_all: Statement
    of_one: Statement


def _few(table: Table, columns: Sequence[ColumnElement[Any]], *conditions: ColumnElement[bool]) -> _Few:
    query = select(*columns).where(*conditions).order_by(table.c.created_at.desc()).limit(_LIMIT)
    # Within coalesce() it is only looked at: it must not tempt the planner away from the index to the primary key.
    own = func.coalesce(table.c.organization_id == _OWNER, false())
    return _Few(Statement(query), Statement(query.where(own)))


_FAILED: ColumnElement[str] = literal_column("'failed'")
_FEW_MAILS = {
    MailStatus.QUEUED: _few(mails, _MAIL, mails.c.status == QUEUED),
    MailStatus.FAILED: _few(mails, _MAIL, mails.c.status == _FAILED, mails.c.completed_at.is_not(None)),
}
_UNMAILED = and_(effects.c.completed_at.is_not(None), effects.c.last_error.is_not(None))
"""In these words the partial index of effects that no mail came of is used."""
_FEW_EFFECTS = {
    MailStatus.QUEUED: _few(effects, _EFFECT, effects.c.status == QUEUED, IS_MAIL),
    MailStatus.UNWRITTEN: _few(effects, _EFFECT, effects.c.status == _FAILED, _UNMAILED, IS_MAIL),
}
_OF_ONE = select(*_MAIL).where(mails.c.organization_id == _OWNER).order_by(mails.c.id.desc()).limit(_LIMIT)
_MANY_MAILS = {
    None: Statement(_OF_ONE),
    MailStatus.SENT: Statement(_OF_ONE.where(mails.c.status == literal_column("'sent'"))),
}


def newest_written(tx: Tx, owners: Sequence[str], status: MailStatus | None, limit: int, *, every: bool) -> list[Mail]:
    """At least the newest mails of that status; `every`: the owners are all there are."""
    few = _FEW_MAILS.get(status) if status else None
    found = _newest(tx, few, owners, limit, every=every) if few else _of_each(tx, _MANY_MAILS[status], owners, limit)
    return [_of_mail(row) for row in found]


def newest_unwritten(tx: Tx, owners: Sequence[str], status: MailStatus, limit: int, *, every: bool) -> list[Mail]:
    """The same of mails that are only owed: queued, or unwritten."""
    return [_of_effect(row) for row in _newest(tx, _FEW_EFFECTS[status], owners, limit, every=every)]


def _newest(tx: Tx, few: _Few, owners: Sequence[str], limit: int, *, every: bool) -> list[Row]:
    return tx.all(few.of_all, limit=limit) if every else _of_each(tx, few.of_one, owners, limit)


def _of_each(tx: Tx, statement: Statement, owners: Sequence[str], limit: int) -> list[Row]:
    return [row for owner in owners for row in tx.all(statement, organization_id=owner, limit=limit)]


def _named(table: Table, columns: Sequence[ColumnElement[Any]], name: ColumnElement[Any]) -> Statement:
    """What has that name, in whichever organization: it is looked up in each."""
    owned = table.c.organization_id == organization_table.c.id
    wanted = name == bindparam("name", type_=name.type)
    return Statement(select(*columns, *organizations.COLUMNS).join_from(organization_table, table, owned).where(wanted))


_MAIL_BY_ID = _named(mails, _MAIL, mails.c.id)
_MAIL_BY_KEY = _named(mails, _MAIL, mails.c.effect_key)
_EFFECT_BY_KEY = _named(effects, _EFFECT, effects.c.key)


def by_id(tx: Tx, mail_id: str) -> tuple[Mail, Organization] | None:
    """The mail of that id, and whose it is."""
    row = tx.first(_MAIL_BY_ID, name=mail_id)
    return (_of_mail(row), organizations.from_row(row[len(_MAIL) :])) if row else None


def by_key(tx: Tx, key: str) -> tuple[Mail, Organization] | None:
    """The mail that the effect of that key became or will become, and whose it is."""
    row = tx.first(_MAIL_BY_KEY, name=key)
    if row:
        return _of_mail(row), organizations.from_row(row[len(_MAIL) :])
    row = tx.first(_EFFECT_BY_KEY, name=key)
    return (_of_effect(row), organizations.from_row(row[len(_EFFECT) :])) if row else None


# Owed again ------------------------------------------------------------------------------------------------------

Key = tuple[str, str]
"""(organization id, key of the effect)."""
_KEYS: dict[str, TypeEngine[Any] | type[TypeEngine[Any]]] = {"organization_id": Id, "key": Text}


def _lock_mails(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", _KEYS)
    same = and_(mails.c.organization_id == wanted.c.organization_id, mails.c.effect_key == wanted.c.key)
    chosen = select(*_MAIL).join_from(wanted, mails, same)
    return chosen.order_by(mails.c.organization_id, mails.c.id).with_for_update(of=mails)


def _lock_effects(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", _KEYS)
    same = and_(effects.c.organization_id == wanted.c.organization_id, effects.c.key == wanted.c.key)
    owned = organization_table.c.id == effects.c.organization_id
    chosen = select(*_EFFECT, *organizations.COLUMNS).join_from(wanted, effects, same).join(organization_table, owned)
    return chosen.order_by(effects.c.organization_id, effects.c.key).with_for_update(of=effects)


_LOCK_MAILS, _LOCK_EFFECTS = Statement(_lock_mails), Statement(_lock_effects)


class Held(NamedTuple):
    """A mail with its effect, which nobody else changes until the transaction ends."""

    mail: Mail
    effect: Mail
    """As if it were not written."""
    organization: Organization


def lock(tx: Tx, keys: Iterable[Key]) -> dict[Key, Held]:
    """Those of the keys that there are. Mails are locked before effects, as by who purges them."""
    wanted = _given(keys)
    written = {
        (mail.organization_id, mail.effect_key): mail for mail in map(_of_mail, tx.all(_LOCK_MAILS, wanted=wanted))
    }
    found = {}
    for row in tx.all(_LOCK_EFFECTS, wanted=wanted):
        effect, key = _of_effect(row), row[:2]
        found[key] = Held(written.get(key, effect), effect, organizations.from_row(row[len(_EFFECT) :]))
    return found


# What is past its retention --------------------------------------------------------------------------------------


def _given(keys: Iterable[Key]) -> str:
    return as_json({"organization_id": owner, "key": key} for owner, key in keys)


def _delete(table: Table, key: ColumnElement[Any]) -> Statement:
    """Removes the rows of these effects."""

    def build(dialect: Dialect) -> Any:
        doomed = rows_parameter(dialect, "doomed", _KEYS).c
        return delete(table).where(tuple_(table.c.organization_id, key).in_(select(doomed.organization_id, doomed.key)))

    return Statement(build)


_DELETE_MAILS, _DELETE_EFFECTS = _delete(mails, mails.c.effect_key), _delete(effects, effects.c.key)


def _old(table: Table, key: ColumnElement[Any], *conditions: ColumnElement[bool]) -> Select[Any]:
    return (
        select(table.c.organization_id, key)
        .where(
            table.c.status == bindparam("status", type_=Text),
            table.c.completed_at < bindparam("before", type_=BigInteger),
            *conditions,
        )
        .order_by(table.c.completed_at)
        .limit(_LIMIT)
        .with_for_update(skip_locked=True)
    )


_OLD_MAILS = Statement(_old(mails, mails.c.effect_key))
_OLD_UNMAILED = Statement(_old(effects, effects.c.key, _UNMAILED))


def delete_mails(tx: Tx, keys: Sequence[Key]) -> None:
    """Removes the mails of these effects."""
    tx.run(_DELETE_MAILS, doomed=_given(keys))


def purge_mails(tx: Tx, status: str, before: int, limit: int) -> int:
    found = tx.all(_OLD_MAILS, status=status, before=before, limit=limit)
    if found:
        doomed = _given((owner, key) for owner, key in found)
        tx.run(_DELETE_MAILS, doomed=doomed)
        tx.run(_DELETE_EFFECTS, doomed=doomed)
    return len(found)


def purge_unmailed(tx: Tx, status: str, before: int, limit: int) -> int:
    found = tx.all(_OLD_UNMAILED, status=status, before=before, limit=limit)
    if found:
        tx.run(_DELETE_EFFECTS, doomed=_given((owner, key) for owner, key in found))
    return len(found)
