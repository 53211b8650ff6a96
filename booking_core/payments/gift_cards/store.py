"""The SQL of gift cards."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    union_all,
)

from booking_core.db.engine import Tx
from booking_core.db.paging import KeysetList
from booking_core.db.statements import OWNER, ROW_ID, Statement, as_json, columns_of, has_key, in_rows, is_of
from booking_core.db.tables import gift_card_entries, gift_cards
from booking_core.db.unit_of_work import Update
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.payments.gift_cards.rules import GiftCardRow, LockedCard, TransactionRow

# Status ----------------------------------------------------------------------------------------------------------


_NOW = bindparam("now", type_=BigInteger)
"""The actor's instant; the same everywhere in the statement: the filtered status and the shown status never differ."""


def _status(of: Any) -> ColumnElement[str]:
    """Return SQL for the status, which is computed, never stored, also in filters (decision B15)."""
    return case(
        (of["deactivated_at"].is_not(None), literal_column(f"'{GiftCardStatus.INACTIVE}'", Text)),
        (
            or_(of["expires_at"] <= _NOW, of["valid_from"] > _NOW, of["balance_minor"] == 0),
            literal_column(f"'{GiftCardStatus.EXPIRED}'", Text),
        ),
        else_=literal_column(f"'{GiftCardStatus.ACTIVE}'", Text),
    )


_STATUS = _status(gift_cards.c)
_DECIDING = ("deactivated_at", "expires_at", "valid_from", "balance_minor")
_STATUS_OF = Statement(select(_status({name: cast(bindparam(name), BigInteger) for name in _DECIDING})))


def with_status(tx: Tx, card: LockedCard, at: int) -> LockedCard:
    """Return the card with the status that it has after the write."""
    (row,) = tx.all(
        _STATUS_OF,
        deactivated_at=card.deactivated_at,
        expires_at=card.row.expires_at,
        valid_from=card.valid_from,
        balance_minor=card.row.balance_minor,
        now=at,
    )
    return card._replace(row=card.row._replace(status=row[0]))


# Reading ---------------------------------------------------------------------------------------------------------

_CARDS = select(*columns_of(GiftCardRow._fields, gift_cards, status=_STATUS.label("status"))).where(
    gift_cards.c.organization_id == OWNER
)

_KEY = (gift_cards.c.organization_id, gift_cards.c.id)
_ZERO: ColumnElement[int] = literal_column("0")
_ALL: ColumnElement[int] = literal_column("1000000000")
"""A limit that is never reached; without one the order of a subquery is dropped."""
_OF_OWNER = gift_cards.c.organization_id == OWNER
_IS_ON = gift_cards.c.deactivated_at.is_(None)
_HAS_BALANCE = and_(_OF_OWNER, _IS_ON, gift_cards.c.balance_minor > _ZERO)
_HAS_BEGUN = or_(gift_cards.c.valid_from.is_(None), gift_cards.c.valid_from <= _NOW)
_UPDATED_SINCE = gift_cards.c.updated_at >= bindparam("updated_since")


def _any_of(*conditions: tuple[ColumnElement[bool], ColumnElement[Any]]) -> Select[Any]:
    """Select the keys of the cards that meet one of the conditions, which do not overlap.

    Each has an index, and is sorted as in it: otherwise PostgreSQL searches the first cards in the table itself.
    """
    arms = (select(*_KEY).where(condition).order_by(column).limit(_ALL) for condition, column in conditions)
    keys = union_all(*(select(arm.subquery()) for arm in arms)).subquery("found")
    return select(keys.c.organization_id, keys.c.id)


_ACTIVE = _any_of(
    (and_(_HAS_BALANCE, gift_cards.c.expires_at > _NOW, _HAS_BEGUN), gift_cards.c.expires_at),
    (and_(_HAS_BALANCE, gift_cards.c.expires_at.is_(None), _HAS_BEGUN), gift_cards.c.expires_at),
)
_EXPIRED = _any_of(
    (and_(_HAS_BALANCE, gift_cards.c.expires_at <= _NOW), gift_cards.c.expires_at),
    (and_(_OF_OWNER, _IS_ON, gift_cards.c.balance_minor == _ZERO), gift_cards.c.id),
    (
        and_(
            _HAS_BALANCE,
            gift_cards.c.valid_from.is_not(None),
            gift_cards.c.valid_from > _NOW,
            or_(gift_cards.c.expires_at.is_(None), gift_cards.c.expires_at > _NOW),
        ),
        gift_cards.c.valid_from,
    ),
)


def _has(status: GiftCardStatus) -> ColumnElement[bool]:
    return literal_column(f"'{status}'", Text) == _STATUS


LIST = KeysetList(
    "gift_cards",
    gift_cards,
    _CARDS,
    {
        "active": _has(GiftCardStatus.ACTIVE),
        "expired": _has(GiftCardStatus.EXPIRED),
        "inactive": gift_cards.c.deactivated_at.is_not(None),
        "updated_since": _UPDATED_SINCE,
    },
    scattered={
        "active": _ACTIVE,
        "expired": _EXPIRED,
        "updated_since": select(*_KEY).where(_OF_OWNER, _UPDATED_SINCE).order_by(gift_cards.c.updated_at),
    },
)

_GET = Statement(_CARDS.add_columns(gift_cards.c.code_sealed).where(gift_cards.c.id == ROW_ID))


def get(tx: Tx, organization_id: str, gift_card_id: str, at: int) -> tuple[GiftCardRow, str] | None:
    """Return the card with its status at this time, and its sealed code."""
    row = tx.first(_GET, organization_id=organization_id, id=gift_card_id, now=at)
    return (GiftCardRow._make(row[:-1]), row[-1]) if row else None


# Changing --------------------------------------------------------------------------------------------------------

_EXTRA_NAMES = ("valid_from", "deactivated_at", "updated_at")
_LOCKED = _CARDS.add_columns(*columns_of(_EXTRA_NAMES, gift_cards)).with_for_update(key_share=True, of=gift_cards)


_HAS_CODE = in_rows(gift_cards.c.code_hash, "wanted", "code_hash")
_LOCK, _LOCK_BY_CODE = Statement(_LOCKED.where(gift_cards.c.id == ROW_ID)), Statement(_LOCKED.where(_HAS_CODE))
_FIND_BY_CODE = Statement(select(gift_cards.c.id).where(gift_cards.c.organization_id == OWNER, _HAS_CODE))


def _hashes(hashes: Iterable[str]) -> str:
    return as_json({"code_hash": code_hash} for code_hash in hashes)


def _locked(row: tuple[Any, ...] | None) -> LockedCard | None:
    return LockedCard(GiftCardRow._make(row[: -len(_EXTRA_NAMES)]), *row[-len(_EXTRA_NAMES) :]) if row else None


def lock(tx: Tx, organization_id: str, gift_card_id: str, at: int) -> LockedCard | None:
    """Lock the card until the transaction ends, and return it with its status at this time."""
    return _locked(tx.first(_LOCK, organization_id=organization_id, id=gift_card_id, now=at))


def lock_by_code(tx: Tx, organization_id: str, hashes: Iterable[str], at: int) -> LockedCard | None:
    """Lock the card by the possible hashes of its code."""
    return _locked(tx.first(_LOCK_BY_CODE, organization_id=organization_id, wanted=_hashes(hashes), now=at))


def by_code(tx: Tx, organization_id: str, hashes: Iterable[str]) -> str | None:
    """Return the id of the card by the possible hashes of its code."""
    row = tx.first(_FIND_BY_CODE, organization_id=organization_id, wanted=_hashes(hashes))
    return row[0] if row else None


MOVE = Update("move_gift_card", gift_cards, sets=("updated_at",), adds=("balance_minor",))
"""The table's own check refuses a balance below zero, or above the face value."""

# The ledger ------------------------------------------------------------------------------------------------------


def _transactions(page: FromClause) -> Select[Any]:
    """Select `TransactionRow`s: entries joined with the currency of their card."""
    columns = columns_of(TransactionRow._fields, page, gift_cards)
    return select(*columns).join_from(page, gift_cards, has_key(gift_cards, page, id="gift_card_id"))


TRANSACTIONS = KeysetList(
    "gift_card_transactions",
    gift_card_entries,
    select(gift_card_entries).where(gift_card_entries.c.organization_id == OWNER),
    {"gift_card_id": gift_card_entries.c.gift_card_id == bindparam("gift_card_id")},
    _transactions,
)
"""A page sorts the entries of its card, which are as many as the bookings that it paid for."""

_EXISTS = Statement(select(gift_cards.c.id).where(_OF_OWNER, gift_cards.c.id == ROW_ID))


def has_card(tx: Tx, organization_id: str, gift_card_id: str) -> bool:
    """Return whether the organization has a card with that id."""
    return tx.first(_EXISTS, organization_id=organization_id, id=gift_card_id) is not None


class RedeemedEntry(NamedTuple):
    """The amount that a booking redeemed from a card."""

    gift_card_id: str
    amount_minor: int
    """Less the amounts that changes of the party have restored."""
    restored_count: int
    """The number of these."""


def _redeemed() -> Select[Any]:
    entry, restored = gift_card_entries.c, gift_card_entries.alias("restored").c
    same = and_(is_of(restored, entry, booking_id="booking_id"), restored.kind == "restore")
    again = exists().where(same, restored.number == 0)
    total = cast(func.coalesce(func.sum(restored.amount_minor), literal_column("0")), BigInteger)
    parts = select(total).where(same).scalar_subquery()
    count = select(func.count()).select_from(restored.amount_minor.table).where(same).scalar_subquery()
    return select(entry.gift_card_id, -entry.amount_minor - parts, count).where(
        entry.organization_id == OWNER, entry.booking_id == bindparam("booking_id"), entry.kind == "redeem", ~again
    )


_REDEEMED = Statement(_redeemed())


def redeemed(tx: Tx, organization_id: str, booking_id: str) -> RedeemedEntry | None:
    """Return the amount that the booking redeemed and that was not restored. The caller has locked the booking."""
    return tx.first_as(RedeemedEntry._make, _REDEEMED, organization_id=organization_id, booking_id=booking_id)
