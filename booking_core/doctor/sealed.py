"""Sealed values that no live secret key opens.

How each kind is opened is passed in (`Terms.openers`): the doctor itself holds no key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import text

from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.doctor.checks import PAGE, Asked, Finding, FindingKind, Opener, Rule, Terms
from booking_core.tokens import SecretKeys


@dataclass(frozen=True, slots=True)
class SealedKind:
    """One sealed column, and the columns that name the row of a value."""

    name: str
    purpose: str
    plural: str
    table: str
    column: str
    row: tuple[str, ...]
    key: str
    in_use: str = "true"


KINDS = (
    SealedKind(
        "webhook_secret",
        "webhook_secret",
        "webhook secrets",
        "webhook_secrets",
        "secret_sealed",
        ("organization_id", "endpoint_id", "id"),
        "id",
        "(x.expires_at IS NULL OR x.expires_at > :at)",
    ),
    SealedKind(
        "gift_card_code",
        "gift_card_code",
        "gift card codes",
        "gift_cards",
        "code_sealed",
        ("organization_id", "id"),
        "id",
    ),
    SealedKind(
        "stored_answer",
        "idempotency",
        "stored answers",
        "idempotency",
        "body_sealed",
        ("organization_id", "key"),
        "key",
    ),
    SealedKind("mail", "mail", "mails", "mails", "message", ("organization_id", "id"), "id", "x.status = 'queued'"),
)


def openers(keys: SecretKeys) -> Mapping[str, Opener]:
    """Return how each kind of value is opened with these secret keys, for `Terms.openers`."""
    return {kind.name: partial(_open, keys, kind.purpose) for kind in KINDS}


def _open(keys: SecretKeys, purpose: str, sealed: str, row: tuple[str, ...]) -> object:
    return keys.open(purpose, sealed, *row)


class Sealed:
    """Opens every value of one kind, page by page along the primary key; one finding for each organization."""

    invariant = "every sealed value opens with a live secret key"
    kind = FindingKind.BROKEN
    remedy = (
        "set BOOKING_SECRET_KEY to NEW,OLD with the key that sealed them, then booking secrets status, then booking"
        " secrets reseal"
    )

    def __init__(self, sealed: SealedKind) -> None:
        self._sealed = sealed
        self._rule = Rule(self.invariant, self.remedy)
        columns = ", ".join(f"x.{name}" for name in (sealed.key, *sealed.row, sealed.column))
        query = f"""SELECT {columns} FROM {sealed.table} x
                     WHERE x.organization_id = :organization_id AND {sealed.in_use} AND x.{sealed.key} > :after
                     ORDER BY x.{sealed.key} LIMIT {PAGE}"""  # noqa: S608 - made of constants
        self._page = Statement(text(query))

    def applies(self, terms: Terms) -> bool:
        """Return whether there are openers."""
        return terms.openers is not None

    def findings(self, tx: Tx, asked: Asked) -> Iterator[Finding]:
        """Yield one finding for each organization that has values which do not open."""
        opener = asked.openers.get(self._sealed.name)
        for owner in asked.organization_ids if opener else ():
            values, lost = 0, []
            for key, *row, sealed in self._rows(tx, owner, asked.parameters):
                values += 1
                if not _is_open(opener, sealed, tuple(map(str, row))):
                    lost.append(str(key))
            if lost:
                message = f"{len(lost)} of {values} {self._sealed.plural} do not open"
                yield self._rule.finding(asked, owner, lost[-1], message)

    def _rows(self, tx: Tx, organization_id: str, parameters: Mapping[str, int]) -> Iterator[Row]:
        after = "" if self._sealed.key == "key" else "00000000-0000-0000-0000-000000000000"
        while page := tx.all(self._page, **parameters, organization_id=organization_id, after=after):
            yield from page
            after = page[-1][0]


def _is_open(opener: Opener | None, sealed: Any, row: tuple[str, ...]) -> bool:
    """Return whether the value opens. Of a mail that was sent nothing is kept, and so nothing is to be opened."""
    if not sealed or opener is None:
        return True
    try:
        opener(sealed, row)
    except ValueError:
        return False
    return True


# Every value is read and opened: what is kept of stored answers is thirty days of them.
CHECKS = tuple(Sealed(kind) for kind in KINDS)
