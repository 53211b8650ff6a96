"""Every kind of value that a secret key seals, the row that each value is bound to, and the SQL built from its kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Table,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)

from booking_core.base import gift_codes
from booking_core.base.tokens import SEALED_PREFIX
from booking_core.bookings import checkouts
from booking_core.db import sql_files, tables
from booking_core.db.engine import Tx
from booking_core.db.paging import Scan
from booking_core.db.statements import Statement, as_json, has_key, rows_parameter
from booking_core.db.unit_of_work import ColumnValues
from booking_core.notifications import SEALED_FOR as SEALED_FOR_MAIL
from booking_core.payments import stripe_accounts
from booking_core.records import idempotency
from booking_core.webhooks import HEADERS_PURPOSE, SECRET_PURPOSE

LINK_KEY_PURPOSE = "link_key"


@dataclass(frozen=True, slots=True)
class SealedKind:
    """A sealed column."""

    name: str
    plural: str
    """As messages call its values."""
    sealed: Column[str]
    purpose: str
    in_use: ColumnElement[bool] | None = None
    """The SQL condition of the values that may be opened again; by default all of them."""
    indexed: tuple[str, ...] = ()
    """The columns of an index that leads to the first and to the last value; by default the primary key."""
    bound_to: tuple[str, ...] = ()
    """The columns that say which row a value is sealed for; by default the primary key."""

    @property
    def table(self) -> Table:
        return self.sealed.table

    @property
    def column(self) -> str:
        return str(self.sealed.name)

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key."""
        return tuple(str(column.name) for column in self.table.primary_key)

    @property
    def row(self) -> tuple[str, ...]:
        return self.bound_to or self.key


_LIVE = or_(
    tables.webhook_secrets.c.expires_at.is_(None),
    tables.webhook_secrets.c.expires_at > bindparam("at", type_=BigInteger),
)
_HEADERS = tables.webhook_endpoints.c.headers_sealed
_IS_QUEUED = tables.mails.c.status == literal_column("'queued'")
"""In the words of its index: a queued mail is still to be sent."""
_CLIENT_SECRET = tables.payment_intents.c.client_secret_sealed
_CREDENTIALS = tables.stripe_accounts.c.credentials_sealed
_ANSWER = tables.idempotency.c.body_sealed

KINDS = (
    SealedKind(
        "webhook_secret",
        "webhook secrets",
        tables.webhook_secrets.c.secret_sealed,
        SECRET_PURPOSE,
        _LIVE,
        bound_to=("organization_id", "endpoint_id", "id"),
    ),
    SealedKind("webhook_headers", "webhook headers", _HEADERS, HEADERS_PURPOSE, _HEADERS.is_not(None)),
    SealedKind("gift_card_code", "gift card codes", tables.gift_cards.c.code_sealed, gift_codes.SEALED_FOR),
    SealedKind("stored_answer", "stored answers", _ANSWER, idempotency.SEALED_FOR, indexed=("created_at",)),
    SealedKind("mail", "mails", tables.mails.c.message, SEALED_FOR_MAIL, _IS_QUEUED, ("next_attempt_at",)),
    SealedKind("stripe_account", "Stripe accounts", _CREDENTIALS, stripe_accounts.SEALED_FOR),
    SealedKind("client_secret", "client secrets of payments", _CLIENT_SECRET, checkouts.SEALED_FOR),
    SealedKind("link_key", "link keys", tables.link_keys.c.key_sealed, LINK_KEY_PURPOSE),
)
GUEST_LINK = "guest_link"


# Statements ---------------------------------------------------------------------------------------------------------

_ID_AT = len(SEALED_PREFIX) + 1
_HEAD_LENGTH = len(SEALED_PREFIX) + 8

_SAMPLED = 3
"""Values at each end of a kind: the first one, and two neighbours that show whether it is damaged."""

RowPosition = tuple[Any, ...]


def _head(kind: SealedKind) -> ColumnElement[str]:
    """Return SQL for the version and the key id at the beginning of a sealed text, without reading all of it."""
    return func.substr(kind.sealed, literal_column("1"), literal_column(str(_HEAD_LENGTH)))


def _is_kept(kind: SealedKind) -> ColumnElement[bool]:
    """Return the SQL condition that there is a value: the text of a sent mail is deleted."""
    return kind.sealed != literal_column("''")


def _has_other_key(kind: SealedKind) -> ColumnElement[bool]:
    return and_(_is_kept(kind), _head(kind) != bindparam("head", type_=Text))


def head(key_id: str) -> str:
    """Return the beginning of the texts that the key of this id sealed."""
    return SEALED_PREFIX + key_id


# Counting --------------------------------------------------------------------------------------------------------


@lru_cache
def _counts(kind: SealedKind) -> Statement:
    key_id = case(
        (
            kind.sealed.like(literal_column(f"'{SEALED_PREFIX}%'")),
            func.substr(kind.sealed, literal_column(str(_ID_AT)), literal_column("8")),
        ),
        else_=literal_column("''"),
    ).label("key_id")
    return Statement(select(key_id, func.count()).where(_is_kept(kind)).group_by(literal_column("1")))


def counts(tx: Tx, kind: SealedKind) -> dict[str, int]:
    """Return the number of values by key id; an empty id for texts that name none."""
    return {key_id: int(count) for key_id, count in tx.all(_counts(kind))}


_LINKS = sql_files.load(__name__).statement("open_links")


def open_links(tx: Tx, at: int) -> dict[str, int]:
    """Return how many guests' links each key made that have not expired, by its id."""
    return {key_id: int(count) for key_id, count in tx.all(_LINKS, at=at)}


# Samples ---------------------------------------------------------------------------------------------------------


@lru_cache
def _edge(kind: SealedKind, *, last: bool) -> Statement:
    order = [kind.table.c[name] for name in kind.indexed or kind.key]
    query = select(*(kind.table.c[name] for name in kind.row), kind.sealed).where(_is_kept(kind))
    if kind.in_use is not None:
        query = query.where(kind.in_use)
    return Statement(
        query.order_by(*(column.desc() if last else column for column in order)).limit(literal_column(str(_SAMPLED)))
    )


def samples(tx: Tx, kind: SealedKind, at: int) -> dict[tuple[str, ...], str]:
    """Return the first and the last values in use, by the row that each is sealed for: two look-ups."""
    rows = [row for last in (False, True) for row in tx.all(_edge(kind, last=last), at=at)]
    return {tuple(row[:-1]): row[-1] for row in rows}


_NEWEST_LINK = Statement(
    select(tables.bookings.c.manage_key_id)
    .where(
        tables.bookings.c.manage_key_id.is_not(None),
        tables.bookings.c.manage_expires_at > bindparam("at", type_=BigInteger),
    )
    .order_by(tables.bookings.c.organization_id.desc(), tables.bookings.c.id.desc())
    .limit(literal_column("1"))
)


def newest_link_key(tx: Tx, at: int) -> str | None:
    """Return the id of the key that made a link which has not expired."""
    row = tx.first(_NEWEST_LINK, at=at)
    return row[0] if row else None


# Resealing -------------------------------------------------------------------------------------------------------


@lru_cache
def _names(kind: SealedKind) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*kind.key, *kind.row, kind.column)))


@lru_cache
def _others(kind: SealedKind) -> Scan:
    return Scan(select(*(kind.table.c[name] for name in _names(kind))).where(_has_other_key(kind)), len(kind.key))


def others(
    tx: Tx, kind: SealedKind, key_id: str, after: RowPosition, limit: int
) -> tuple[list[ColumnValues], RowPosition | None]:
    """Return values that the key of that id did not seal, in the order of their primary key, and the last position."""
    with tx.without_statement_timeout():
        rows, last = _others(kind).page(tx, after, limit, head=head(key_id))
    return [dict(zip(_names(kind), row, strict=True)) for row in rows], last


@lru_cache
def _count_others(kind: SealedKind) -> Statement:
    return Statement(select(func.count()).select_from(kind.table).where(_has_other_key(kind)))


def count_others(tx: Tx, kind: SealedKind, key_id: str) -> int:
    """Return how many values the key of that id did not seal."""
    with tx.without_statement_timeout():
        ((count,),) = tx.all(_count_others(kind), head=head(key_id))
    return int(count)


@lru_cache
def _replace(kind: SealedKind) -> Statement:
    """Replaces a value only if it has not changed since it was read."""
    table = kind.table
    kinds: dict[str, Any] = {name: table.c[name].type for name in kind.key}
    kinds |= {"former": Text, "sealed_anew": Text}
    if table is tables.gift_cards:
        kinds["hashed_anew"] = Text
    new = rows_parameter("anew", kinds).c
    values = {kind.column: new.sealed_anew}
    if table is tables.gift_cards:
        values["code_hash"] = new.hashed_anew
    is_row = and_(*(table.c[name] == new[name] for name in kind.key), kind.sealed == new.former)
    return Statement(update(table).where(is_row).values(values))


def replace(tx: Tx, kind: SealedKind, anew: Sequence[Mapping[str, object]]) -> int:
    """Write resealed values, and return how many: none that another transaction has changed since."""
    return tx.run(_replace(kind), anew=as_json(anew))


# Keys of links --------------------------------------------------------------------------------------------------

_LINK_KEYS = Statement(select(tables.link_keys.c.key_id, tables.link_keys.c.key_sealed))
_MADE_LINKS = Statement(
    select(literal_column("1"))
    .where(tables.bookings.c.manage_key_id == bindparam("key_id", type_=Text))
    .limit(literal_column("1"))
)
_FORGET = Statement(delete(tables.link_keys))


def link_keys(tx: Tx) -> dict[str, str]:
    """Return the sealed link keys by the id of their former secret key."""
    return dict(tx.all(_LINK_KEYS))


def made_links(tx: Tx, key_id: str) -> bool:
    """Tell whether the key of that id made the link of any booking."""
    with tx.without_statement_timeout():
        return tx.first(_MADE_LINKS, key_id=key_id) is not None


def retain(tx: Tx, key_id: str, key_sealed: str, at: int) -> None:
    """Keep a link key."""
    tx.insert(tables.link_keys, key_id=key_id, key_sealed=key_sealed, created_at=at)


def forget_link_keys(tx: Tx) -> None:
    """Forget every link key: links of former secret keys end."""
    tx.run(_FORGET)


_ID = {name: tables.bookings.c[name].type for name in ("organization_id", "id")}
_HAS_FORMER_LINK = and_(
    tables.bookings.c.manage_key_id.is_not(None), tables.bookings.c.manage_key_id != bindparam("key_id", type_=Text)
)


_FORMER_LINKS = Scan(select(*(tables.bookings.c[name] for name in _ID)).where(_HAS_FORMER_LINK), len(_ID))


def former_links(tx: Tx, key_id: str, after: RowPosition, limit: int) -> tuple[list[ColumnValues], RowPosition | None]:
    """Return the bookings with a link of another key, and the last position."""
    with tx.without_statement_timeout():
        rows, last = _FORMER_LINKS.page(tx, after, limit, key_id=key_id)
    return [dict(zip(_ID, row, strict=True)) for row in rows], last


_NEW_LINKS = Statement(
    update(tables.bookings)
    .where(has_key(tables.bookings, rows_parameter("wanted", _ID)), _HAS_FORMER_LINK)
    .values(manage_key_id=bindparam("key_id", type_=Text))
)


def make_new_links(tx: Tx, key_id: str, bookings: Sequence[ColumnValues]) -> int:
    """Give the bookings links of this key. Their guests' former links become invalid."""
    return tx.run(_NEW_LINKS, key_id=key_id, wanted=as_json(bookings))
