"""The SQL of gift cards."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Text, bindparam, case, cast, func, literal_column, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from booking_core.db.engine import Tx
from booking_core.db.paging import Walk
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, gift_cards
from booking_core.gift_cards.rules import GiftCardRow
from booking_core.wire.gift_cards import GiftCardStatus


class _Now(ColumnElement[int]):
    """The instant the statement began; the same wherever the statement names it, so that the status that is filtered
    by and the status that is shown never part."""

    inherit_cache = True
    type = BigInteger()


_GIVEN = cast(bindparam("now", type_=BigInteger), BigInteger)
_CLOCK = cast(func.extract("epoch", func.statement_timestamp()) * literal_column("1000000"), BigInteger)


@compiles(_Now)
def _given_instant(element: _Now, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(_GIVEN, **options)


@compiles(_Now, "postgresql")
def _instant_of_the_database(element: _Now, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(func.coalesce(_GIVEN, _CLOCK), **options)


_STATUS = case(
    (gift_cards.c.deactivated_at.is_not(None), literal_column(f"'{GiftCardStatus.INACTIVE}'")),
    (
        or_(gift_cards.c.expires_at <= _Now(), gift_cards.c.valid_from > _Now(), gift_cards.c.balance_minor == 0),
        literal_column(f"'{GiftCardStatus.EXPIRED}'"),
    ),
    else_=literal_column(f"'{GiftCardStatus.ACTIVE}'"),
)
"""Computed, never stored: what is shown, and what is filtered by (decision B15)."""

_SHOWN = select(
    *(_STATUS.label(name) if name == "status" else gift_cards.c[name] for name in GiftCardRow._fields)
).where(gift_cards.c.organization_id == bindparam("organization_id", type_=Id))

WALK = Walk(
    "gift_cards",
    gift_cards,
    _SHOWN,
    {
        "status": bindparam("status", type_=Text) == _STATUS,
        "updated_since": gift_cards.c.updated_at >= bindparam("updated_since", type_=BigInteger),
    },
)

_GET = Statement(_SHOWN.add_columns(gift_cards.c.code_sealed).where(gift_cards.c.id == bindparam("id", type_=Id)))


def get(tx: Tx, organization_id: str, gift_card_id: str) -> tuple[GiftCardRow, str] | None:
    """The card, and its sealed code."""
    row = tx.first(_GET, organization_id=organization_id, id=gift_card_id)
    return (GiftCardRow._make(row[:-1]), row[-1]) if row else None
