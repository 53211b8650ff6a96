"""Sealed values that no live secret key opens.

The functions that open them are passed in (`CheckOptions.openers`); the doctor has no secret key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from sqlalchemy import select, true

from booking_core.base.tokens import DamagedValue, SecretKeys, missing_key_ids, sealing_key_id
from booking_core.db.engine import Row, Tx
from booking_core.db.paging import Scan
from booking_core.db.statements import OWNER
from booking_core.upkeep.doctor.checks import FINDINGS_MAX, PAGE, BaseCheck, CheckContext, CheckOptions, Finding, Opener
from booking_core.upkeep.secret_keys import KINDS, SealedKind

_RESTORE = "restore its row from a backup"
REMEDIES = {
    "webhook_secret": "booking webhooks rotate-secret {endpoint_id}",
    "webhook_headers": "booking webhooks update {id}, with its headers",
    "gift_card_code": f"{_RESTORE}; its holder can still redeem the code, which cannot be shown",
    "stored_answer": f"{_RESTORE}; else a repeated request gets 409, and its booking is found in the list",
    "mail": "booking mails retry {id} --org {org}, once the worker has given it up",
    "stripe_account": "booking stripe set --org {org}, with its keys",
    "client_secret": _RESTORE,
}
"""The remedy of a damaged value of each kind. May contain `{org}`, the slug, and the columns of the value's row."""


def openers(keys: SecretKeys) -> Mapping[str, Opener]:
    """Return the opener of each kind of value with these secret keys, for `CheckOptions.openers`."""
    return {kind.name: partial(_open, keys, kind.purpose) for kind in KINDS if kind.name in REMEDIES}


def _open(keys: SecretKeys, purpose: str, sealed: str, row: tuple[str, ...]) -> object:
    return keys.open(purpose, sealed, *row)


@dataclass(frozen=True, kw_only=True)
class SealedValueScan(BaseCheck):
    """A check that opens every value of one kind, page by page along the primary key."""

    invariant: str = "every sealed value opens with a live secret key"
    remedy: str | None = (
        "set BOOKING_SECRET_KEY to NEW,OLD with the key that sealed them, then booking secrets status, then booking"
        " secrets reseal"
    )
    name: str = "sealed_values"
    sealed: SealedKind

    def applies(self, options: CheckOptions) -> bool:
        """Return whether there are openers."""
        return options.openers is not None

    def findings(self, tx: Tx, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each organization with values of missing keys, and one for each damaged value."""
        opener = context.openers.get(self.sealed.name)
        for organization_id in context.organization_ids if opener else ():
            values, closed = 0, list[_Closed]()
            for key, *row, sealed in self._rows(tx, organization_id, context.parameters["at"]):
                values += 1
                if (closed_value := _closed(opener, str(key), sealed, tuple(map(str, row)))) is not None:
                    closed.append(closed_value)
            yield from self._of(context, organization_id, closed, values)

    def _of(
        self, context: CheckContext, organization_id: str, closed: "list[_Closed]", values: int
    ) -> Iterator[Finding]:
        key_ids = (value.key_id for value in closed if not value.is_damaged)
        missing = missing_key_ids(key_ids, neighbours_open=len(closed) < values)
        lost = [value.key for value in closed if not value.is_damaged and value.key_id in missing]
        if lost:
            message = f"{len(lost)} of {values} {self.sealed.plural} do not open"
            yield self.finding(context, organization_id, lost[-1], message)
        damaged = [value for value in closed if value.is_damaged or value.key_id not in missing]
        for value in damaged[:FINDINGS_MAX]:
            yield self._damage(context, organization_id, value)

    def _damage(self, context: CheckContext, organization_id: str, closed: "_Closed") -> Finding:
        row = dict(zip(self.sealed.row, closed.row, strict=True))
        remedy = REMEDIES[self.sealed.name].format(org=context.slugs.get(organization_id), **row)
        message = f"it is damaged: others of the {self.sealed.plural} open, or its secret key is live"
        return replace(self.finding(context, organization_id, closed.key, message), remedy=remedy)

    @cached_property
    def _scan(self) -> Scan:
        table, is_used = self.sealed.table, true() if self.sealed.in_use is None else self.sealed.in_use
        columns = (table.c[name] for name in (self.sealed.key[-1], *self.sealed.row, self.sealed.column))
        owner = table.c.organization_id == OWNER
        return Scan(select(*columns).where(owner, is_used))

    def _rows(self, tx: Tx, organization_id: str, at: int) -> Iterator[Row]:
        after: tuple[Any, ...] | None = ()
        while after is not None:
            page, after = self._scan.page(tx, after, PAGE, organization_id=organization_id, at=at)
            yield from page


@dataclass(frozen=True, slots=True)
class _Closed:
    """A value that does not open."""

    key: str
    row: tuple[str, ...]
    key_id: str | None
    is_damaged: bool
    """True if it names a live key."""


def _closed(opener: Opener | None, key: str, sealed: Any, row: tuple[str, ...]) -> _Closed | None:
    """Return the value if it does not open. A column may have none."""
    if sealed is None or opener is None:
        return None
    try:
        opener(sealed, row)
    except ValueError as error:
        return _Closed(key, row, sealing_key_id(sealed), isinstance(error, DamagedValue))
    return None


# Every value is read and opened; stored responses are kept for thirty days.
SEALED_VALUES = tuple(SealedValueScan(sealed=kind) for kind in KINDS if kind.name in REMEDIES)
