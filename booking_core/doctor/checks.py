"""What a check is, and how it is carried out: one query that finds what breaks an invariant, or a walk that judges
every row of a table by itself."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import text

from booking_core.clock import DAY, HOUR, MINUTE, SECOND, to_datetime
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.models import limits

FINDINGS_MAX = 1000
"""Of one check: who has more is told so, and not drowned in the rest."""
PAGE = 2000
"""Rows of a walk that are read at once."""
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_OWN = re.compile(r"\[(\w+)\]")
_INSTANT = re.compile(r"\b(at|from|since|until) (\d{15,17})\b", re.ASCII)
"""An instant in a message, as a query gives it."""


Opener = Callable[[str, tuple[str, ...]], object]
"""Opens a sealed text for the row that it is kept in (its organization and ids); a ValueError says that no live key
does."""


def _utc(at: int) -> str:
    return to_datetime(at).strftime("%Y-%m-%dT%H:%M:%SZ")


class FindingKind(StrEnum):
    """How urgent a finding is, and so which exit code it leads to."""

    BROKEN = "broken"
    """Rows contradict each other, or wait for a worker that does not take them up."""
    NEEDS_PERSON = "needs_person"
    """Nothing is wrong with the rows, and only a person can go on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is off. It shows ids, and nothing that a guest has typed."""

    invariant: str
    organization_id: str | None
    """None: it is about the installation."""
    subject: str
    message: str
    remedy: str | None = None
    """The command to run, or what else to do, where that is known."""
    kind: FindingKind = FindingKind.BROKEN
    organization: str | None = None
    """The organization's slug."""


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
    include_waiting: bool = False
    """Whether to report what waits for a person, too."""
    openers: Mapping[str, Opener] | None = field(default=None, repr=False)
    """How each kind of sealed value is opened (see `sealed`); none: no secret key is at hand, and none is opened."""
    pending_minutes: int = 30
    webhook_waits_s: tuple[int, ...] = limits.WEBHOOK_WAITS_S
    webhook_deadline_s: float = limits.WEBHOOK_DEADLINE_S

    def parameters(self, at: int) -> dict[str, int]:
        """Return the instants that the queries compare with. What a purge may be taking just now is not asked for."""
        return self._horizons(at + self.skew_s * SECOND) | {
            "at": at,
            "events_since": at - self.event_retention_days * DAY + HOUR,
            "deliveries_since": at - self.delivery_retention_days * DAY + HOUR,
            "answers_since": at - self.idempotency_retention_days * DAY + HOUR,
            "disable_after": self.webhook_disable_after_s * SECOND,
            "skew": self.skew_s * SECOND,
            "overdue": at - (self.overdue_s or 0) * SECOND,
            "mail_news_since": at - MAIL_IS_NEWS,
        }

    def _horizons(self, at: int) -> dict[str, int]:
        """Return how far ahead each kind of instant may lie."""
        waits_s = max(*self.webhook_waits_s, *limits.WEBHOOK_WAITS_S)
        lease = LEASE_AHEAD + round(LEASE_DEADLINES * self.webhook_deadline_s * SECOND)
        return {
            "hold_until": at + HOLD_AHEAD,
            "pending_until": at + SETTING_CHANGED,
            "pending": self.pending_minutes * MINUTE,
            "lease_until": at + lease,
            "delivery_until": at + lease + round(waits_s * (1 + WEBHOOK_JITTER) * SECOND),
            "refund_until": at + REFUND_AHEAD,
            "effect_until": at + EFFECT_AHEAD,
            "mail_until": at + MAIL_AHEAD,
            "secret_until": at + limits.SECRET_OVERLAP_S_MAX * SECOND,
        }


# How far ahead of now an instant may lie at most. The numbers are those of the packages that write the instants; a test
# holds these to be no smaller.
HOLD_AHEAD = DAY
SETTING_CHANGED = 31 * DAY
"""A pending booking keeps its end when the organization, or the installation, shortens the time to pay afterwards."""
LEASE_AHEAD = HOUR
LEASE_DEADLINES = 4
"""A delivery is leased for some of its deadlines."""
WEBHOOK_JITTER = 0.05
REFUND_AHEAD = HOUR
EFFECT_AHEAD = 2 * HOUR
MAIL_AHEAD = 12 * HOUR
MAIL_IS_NEWS = 72 * HOUR
"""A mail that could not be sent is no news after so long: `booking mails retry` refuses it, and nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which organization, and by which terms."""

    organization_id: str | None
    parameters: Mapping[str, int]
    slugs: Mapping[str, str] = field(default_factory=dict)
    """Of each organization, by its id."""
    openers: Mapping[str, Opener] = field(default_factory=dict)

    @property
    def organization_ids(self) -> list[str]:
        """Return the organizations that are asked about."""
        return [self.organization_id] if self.organization_id else list(self.slugs)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is said of whatever breaks an invariant."""

    invariant: str
    remedy: str | None = None
    """May name `{org}`, the slug, `{subject}`, and `{since}`, an instant that the query gives."""
    kind: FindingKind = FindingKind.BROKEN

    def finding(self, asked: Asked, organization_id: str, subject: str, message: str, since: int = 0) -> Finding:
        """Return the finding about one subject."""
        slug = asked.slugs.get(organization_id)
        message = _INSTANT.sub(lambda match: f"{match[1]} {_utc(int(match[2]))}", message)
        named = {"org": slug, "subject": subject, "since": _utc(since)}
        remedy = self.remedy and self.remedy.format_map(named)
        return Finding(self.invariant, organization_id, subject, message, remedy, self.kind, slug)


class Check:
    """An invariant in words, and the query that gives (organization_id, subject, message) of what breaks it, and
    where the remedy names it a fourth column `since`.

    In the query `[b]` stands for a condition on the table of that alias: that the row is of the organization that was
    asked about, or nothing when all of them were.
    """

    def __init__(
        self,
        invariant: str,
        query: str,
        *,
        remedy: str | None = None,
        waits: bool = False,
        kind: FindingKind = FindingKind.BROKEN,
    ) -> None:
        self.invariant = invariant
        self.kind = kind
        self.remedy = remedy
        self.waits = waits
        """Whether it asks for what a worker should have done by now."""
        self._rule = Rule(invariant, remedy, kind)
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
        for organization_id, subject, message, *since in found:
            yield self._rule.finding(asked, str(organization_id), str(subject), str(message), *map(int, since))

    def applies(self, terms: Terms) -> bool:
        """Return whether the terms ask for it."""
        is_wanted = self.kind is FindingKind.BROKEN or terms.include_waiting
        return is_wanted and not (self.waits and terms.overdue_s is None)


Judge = Callable[[Any], str | None]
"""What is wrong with a row, or none."""


class Walk:
    """An invariant that is easier said in Python than in two dialects of SQL: every row is looked at by itself, read
    in bounded pages along the primary key, one organization after the other."""

    kind = FindingKind.BROKEN

    def __init__(self, invariant: str, page: str, key: str, judge: Judge, *, remedy: str | None = None) -> None:
        """`page` selects the key, what a finding is about, and what `judge` takes; its WHERE names the organization as
        `:organization_id`."""
        self.invariant = invariant
        self.remedy = remedy
        self._rule = Rule(invariant, remedy)
        self._judge = judge
        self._is_numbered = key.endswith("sequence")
        self._page = Statement(text(f"{page} AND {key} > :after ORDER BY {key} LIMIT {PAGE}"))

    def findings(self, tx: Tx, asked: Asked) -> Iterator[Finding]:
        """Yield what breaks the invariant, at most FINDINGS_MAX of it."""
        left = FINDINGS_MAX
        for owner in asked.organization_ids:
            for subject, *row in self._rows(tx, owner, asked.parameters):
                message = self._judge(row)
                if message is not None and left:
                    left -= 1
                    yield self._rule.finding(asked, owner, str(subject), message)

    def applies(self, terms: Terms) -> bool:
        """Return whether the terms ask for it: they always do."""
        return True

    def _rows(self, tx: Tx, organization_id: str, parameters: Mapping[str, int]) -> Iterator[Row]:
        after: Any = 0 if self._is_numbered else _FIRST_ID
        while page := tx.all(self._page, **parameters, organization_id=organization_id, after=after):
            yield from (row[1:] for row in page)
            after = page[-1][0]
