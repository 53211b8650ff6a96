"""Sealed values that no live secret key opens.

The functions that open them are passed in (`CheckOptions.openers`); the doctor has no secret key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import text

from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.doctor.checks import PAGE, CheckContext, CheckOptions, Finding, FindingKind, FindingTemplate, Opener
from booking_core.tokens import SecretKeys


@dataclass(frozen=True, slots=True)
class SealedKind:
    """A sealed column, and the columns that identify the row of a value."""

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
        "webhook_headers",
        "webhook_headers",
        "webhook headers",
        "webhook_endpoints",
        "headers_sealed",
        ("organization_id", "id"),
        "id",
        "x.headers_sealed IS NOT NULL",
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
        "stored responses",
        "idempotency",
        "body_sealed",
        ("organization_id", "key"),
        "key",
    ),
    SealedKind("mail", "mail", "mails", "mails", "message", ("organization_id", "id"), "id", "x.status = 'queued'"),
    SealedKind(
        "stripe_account",
        "stripe_account",
        "Stripe accounts",
        "stripe_accounts",
        "credentials_sealed",
        ("organization_id",),
        "organization_id",
    ),
    SealedKind(
        "client_secret",
        "client_secret",
        "client secrets of payments",
        "payment_intents",
        "client_secret_sealed",
        ("organization_id", "booking_id"),
        "booking_id",
    ),
)


def openers(keys: SecretKeys) -> Mapping[str, Opener]:
    """Return the opener of each kind of value with these secret keys, for `CheckOptions.openers`."""
    return {kind.name: partial(_open, keys, kind.purpose) for kind in KINDS}


def _open(keys: SecretKeys, purpose: str, sealed: str, row: tuple[str, ...]) -> object:
    return keys.open(purpose, sealed, *row)


class SealedValueScan:
    """A check that opens every value of one kind, page by page along the primary key."""

    invariant = "every sealed value opens with a live secret key"
    kind = FindingKind.BROKEN
    remedy = (
        "set BOOKING_SECRET_KEY to NEW,OLD with the key that sealed them, then booking secrets status, then booking"
        " secrets reseal"
    )

    def __init__(self, sealed: SealedKind) -> None:
        self._sealed = sealed
        self._template = FindingTemplate(self.invariant, self.remedy)
        columns = ", ".join(f"x.{name}" for name in (sealed.key, *sealed.row, sealed.column))
        query = f"""SELECT {columns} FROM {sealed.table} x
                     WHERE x.organization_id = :organization_id AND {sealed.in_use} AND x.{sealed.key} > :after
                     ORDER BY x.{sealed.key} LIMIT {PAGE}"""  # noqa: S608 - made of constants
        self._page = Statement(text(query))

    def applies(self, options: CheckOptions) -> bool:
        """Return whether there are openers."""
        return options.openers is not None

    def findings(self, tx: Tx, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each organization with values that do not open."""
        opener = context.openers.get(self._sealed.name)
        for organization_id in context.organization_ids if opener else ():
            values, lost = 0, []
            for key, *row, sealed in self._rows(tx, organization_id, context.parameters):
                values += 1
                if not _is_open(opener, sealed, tuple(map(str, row))):
                    lost.append(str(key))
            if lost:
                message = f"{len(lost)} of {values} {self._sealed.plural} do not open"
                yield self._template.finding(context, organization_id, lost[-1], message)

    def _rows(self, tx: Tx, organization_id: str, parameters: Mapping[str, int]) -> Iterator[Row]:
        after = "" if self._sealed.key == "key" else "00000000-0000-0000-0000-000000000000"
        while page := tx.all(self._page, **parameters, organization_id=organization_id, after=after):
            yield from page
            after = page[-1][0]


def _is_open(opener: Opener | None, sealed: Any, row: tuple[str, ...]) -> bool:
    """Return whether the value opens. The text of a sent mail is not kept, so that there is nothing to open."""
    if not sealed or opener is None:
        return True
    try:
        opener(sealed, row)
    except ValueError:
        return False
    return True


# Every value is read and opened; stored responses are kept for thirty days.
CHECKS = tuple(SealedValueScan(kind) for kind in KINDS)
