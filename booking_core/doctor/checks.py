"""What a check is, and how it is carried out: one query that finds what breaks an invariant, or a walk that judges
every row of a table by itself."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from booking_core.clock import DAY, HOUR, SECOND
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.wire import limits

FINDINGS_MAX = 1000
"""Of one check: who has more is told so, and not drowned in the rest."""
PAGE = 2000
"""Rows of a walk that are read at once."""
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_OWN = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is off."""

    invariant: str
    organization_id: str
    subject: str
    message: str
    mend: str | None = None
    """How it is mended, where that is known."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an installation has promised, and how exactly it is taken at its word."""

    event_retention_days: int = limits.EVENT_RETENTION_DAYS
    delivery_retention_days: int = limits.DELIVERY_RETENTION_DAYS
    idempotency_retention_days: int = limits.IDEMPOTENCY_RETENTION_DAYS
    webhook_disable_after_s: int = limits.WEBHOOK_DISABLE_AFTER_S
    skew_s: int = 60
    """An event is dated when its request began and numbered when it commits, so two dates that lie no further apart
    than this say nothing of what came first."""
    overdue_s: int | None = None
    """What waits for a worker longer than this is found; none: whether one runs is not asked."""

    def parameters(self, at: int) -> dict[str, int]:
        """The instants that the queries compare with. What a purge may be taking just now is not asked for."""
        return {
            "at": at,
            "events_since": at - self.event_retention_days * DAY + HOUR,
            "deliveries_since": at - self.delivery_retention_days * DAY + HOUR,
            "answers_since": at - self.idempotency_retention_days * DAY + HOUR,
            "disable_after": self.webhook_disable_after_s * SECOND,
            "skew": self.skew_s * SECOND,
            "overdue": at - (self.overdue_s or 0) * SECOND,
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which organization, and by which terms."""

    organization_id: str | None
    parameters: Mapping[str, int]


class Check:
    """An invariant in words, and the query that gives (organization_id, subject, message) of what breaks it.

    In the query `[b]` stands for a condition on the table of that alias: that the row is of the organization that was
    asked about, or nothing when all of them were.
    """

    def __init__(self, invariant: str, query: str, *, mend: str | None = None, waits: bool = False) -> None:
        self.invariant = invariant
        self.mend = mend
        self.waits = waits
        """Whether it asks for what a worker should have done by now."""
        bounded = f"SELECT * FROM ({query}) found LIMIT {FINDINGS_MAX}"  # noqa: S608 - made of constants
        self._of_all = Statement(text(_OWN.sub("true", bounded)))
        self._of_one = Statement(text(_OWN.sub(r"\1.organization_id = :organization_id", bounded)))

    def findings(self, tx: Tx, asked: Asked) -> Iterator[Finding]:
        """What breaks the invariant, as one statement sees it: a transaction that commits meanwhile is wholly in its
        sight or not at all."""
        if asked.organization_id is None:
            found = tx.all(self._of_all, **asked.parameters)
        else:
            found = tx.all(self._of_one, **asked.parameters, organization_id=asked.organization_id)
        for organization_id, subject, message in found:
            yield Finding(self.invariant, str(organization_id), str(subject), str(message), self.mend)


Judge = Callable[[Any], str | None]
"""What is wrong with a row, or none."""


class Walk:
    """An invariant that is easier said in Python than in two dialects of SQL: every row is looked at by itself, read
    in bounded pages along the primary key, one organization after the other."""

    waits = False

    def __init__(self, invariant: str, page: str, key: str, judge: Judge, *, mend: str | None = None) -> None:
        """`page` selects the key, what a finding is about, and what `judge` takes; its WHERE names the organization as
        `:organization_id`."""
        self.invariant = invariant
        self.mend = mend
        self._judge = judge
        self._is_numbered = key.endswith("sequence")
        self._page = Statement(text(f"{page} AND {key} > :after ORDER BY {key} LIMIT {PAGE}"))

    def findings(self, tx: Tx, asked: Asked) -> Iterator[Finding]:
        owners = [asked.organization_id] if asked.organization_id else [row[0] for row in tx.all(_ORGANIZATIONS)]
        left = FINDINGS_MAX
        for owner in owners:
            for subject, *row in self._rows(tx, str(owner)):
                message = self._judge(row)
                if message is not None and left:
                    left -= 1
                    yield Finding(self.invariant, str(owner), str(subject), message, self.mend)

    def _rows(self, tx: Tx, organization_id: str) -> Iterator[Row]:
        after: Any = 0 if self._is_numbered else _FIRST_ID
        while page := tx.all(self._page, organization_id=organization_id, after=after):
            yield from (row[1:] for row in page)
            after = page[-1][0]


_ORGANIZATIONS = Statement(text("SELECT id FROM organizations ORDER BY id"))
