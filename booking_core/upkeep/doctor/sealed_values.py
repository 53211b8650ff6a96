"""Sealed values that no live secret key opens.

The functions that open them are passed in (`CheckOptions.openers`); the doctor has no secret key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import text

from booking_core.base.tokens import DamagedValue, SecretKeys, missing_key_ids, sealing_key_id
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.upkeep.doctor.checks import (
    FINDINGS_MAX,
    PAGE,
    CheckContext,
    CheckOptions,
    Finding,
    FindingKind,
    FindingTemplate,
    Opener,
)


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
    remedy: str = "restore its row from a backup"
    """The remedy of a damaged value. May contain `{org}`, the slug, and the columns of `row`."""


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
        remedy="booking webhooks rotate-secret {endpoint_id}",
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
        remedy="booking webhooks update {id}, with its headers",
    ),
    SealedKind(
        "gift_card_code",
        "gift_card_code",
        "gift card codes",
        "gift_cards",
        "code_sealed",
        ("organization_id", "id"),
        "id",
        remedy="restore its row from a backup; its holder can still redeem the code, which cannot be shown",
    ),
    SealedKind(
        "stored_answer",
        "idempotency",
        "stored responses",
        "idempotency",
        "body_sealed",
        ("organization_id", "key"),
        "key",
        remedy="restore its row from a backup; else a repeated request gets 409, and its booking is found in the list",
    ),
    SealedKind(
        "mail",
        "mail",
        "mails",
        "mails",
        "message",
        ("organization_id", "id"),
        "id",
        "x.status = 'queued'",
        remedy="booking mails retry {id} --org {org}, once the worker has given it up",
    ),
    SealedKind(
        "stripe_account",
        "stripe_account",
        "Stripe accounts",
        "stripe_accounts",
        "credentials_sealed",
        ("organization_id",),
        "organization_id",
        remedy="booking stripe set --org {org}, with its keys",
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
        """Yield a finding for each organization with values of missing keys, and one for each damaged value."""
        opener = context.openers.get(self._sealed.name)
        for organization_id in context.organization_ids if opener else ():
            values, closed = 0, list[_Closed]()
            for key, *row, sealed in self._rows(tx, organization_id, context.parameters):
                values += 1
                if (found := _closed(opener, str(key), sealed, tuple(map(str, row)))) is not None:
                    closed.append(found)
            yield from self._of(context, organization_id, closed, values)

    def _of(
        self, context: CheckContext, organization_id: str, closed: "list[_Closed]", values: int
    ) -> Iterator[Finding]:
        named = (each.key_id for each in closed if not each.is_damaged)
        missing = missing_key_ids(named, neighbours_open=len(closed) < values)
        lost = [each.key for each in closed if not each.is_damaged and each.key_id in missing]
        if lost:
            message = f"{len(lost)} of {values} {self._sealed.plural} do not open"
            yield self._template.finding(context, organization_id, lost[-1], message)
        damaged = [each for each in closed if each.is_damaged or each.key_id not in missing]
        for each in damaged[:FINDINGS_MAX]:
            yield self._damage(context, organization_id, each)

    def _damage(self, context: CheckContext, organization_id: str, closed: "_Closed") -> Finding:
        row = dict(zip(self._sealed.row, closed.row, strict=True))
        template = FindingTemplate(
            self.invariant, self._sealed.remedy.format(org=context.slugs.get(organization_id), **row)
        )
        message = f"it is damaged: others of the {self._sealed.plural} open, or its secret key is live"
        return template.finding(context, organization_id, closed.key, message)

    def _rows(self, tx: Tx, organization_id: str, parameters: Mapping[str, int]) -> Iterator[Row]:
        after = "" if self._sealed.key == "key" else "00000000-0000-0000-0000-000000000000"
        while page := tx.all(self._page, **parameters, organization_id=organization_id, after=after):
            yield from page
            after = page[-1][0]


@dataclass(frozen=True, slots=True)
class _Closed:
    """A value that does not open."""

    key: str
    row: tuple[str, ...]
    key_id: str | None
    is_damaged: bool
    """True if it names a live key."""


def _closed(opener: Opener | None, key: str, sealed: Any, row: tuple[str, ...]) -> _Closed | None:
    """Return the value if it does not open. The text of a sent mail is not kept, so there is nothing to open."""
    if not sealed or opener is None:
        return None
    try:
        opener(sealed, row)
    except ValueError as error:
        return _Closed(key, row, sealing_key_id(sealed), isinstance(error, DamagedValue))
    return None


# Every value is read and opened; stored responses are kept for thirty days.
CHECKS = tuple(SealedValueScan(kind) for kind in KINDS)
