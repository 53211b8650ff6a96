"""The kinds of checks: `Check`, a query that selects the rows that break an invariant, and `RowScan`, a function that
validates every row of a table alone. The `.sql` files of this package declare them in the headers of their
statements."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

from sqlalchemy import text

from booking_core.base.clock import DAY, END_OF_TIME, HOUR, MINUTE, SECOND, to_datetime
from booking_core.db import sql_files
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement
from booking_core.due_work import parked
from booking_core.models import limits, money
from booking_core.upkeep.doctor.rows import VALIDATORS

FINDINGS_MAX = 1000
"""The most findings that one check returns."""
PAGE = 2000
"""The rows of a scan that are read at once."""
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_ALIAS = re.compile(r"\[(\w+)\]")
_INSTANT = re.compile(r"\b(at|from|since|until) (\d{15,17})\b", re.ASCII)
"""A timestamp in a message, in microseconds."""
_AMOUNT = re.compile(r"(-?\d+) minor ([A-Z]{3})\b", re.ASCII)
"""An amount in a message, in the minor unit of its currency."""
_AHEAD = "SELECT id FROM organizations WHERE clock_offset IS NOT NULL AND clock_offset > 0"
"""The sandboxes whose clocks are ahead."""


Opener = Callable[[str, tuple[str, ...]], object]
"""Opens the sealed text of a row, which is named by its organization and ids. Raises ValueError if no live key does."""


def _utc(at: int) -> str:
    return to_datetime(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def _readable(message: str) -> str:
    """Return a message with its timestamps and amounts as people read them. A currency that does not exist stays."""
    message = _INSTANT.sub(lambda match: f"{match[1]} {_utc(int(match[2]))}", message)
    return _AMOUNT.sub(
        lambda match: money.formatted(int(match[1]), match[2]) if match[2] in money.CURRENCIES else match[0], message
    )


class FindingKind(StrEnum):
    """The urgency of a finding, which decides the exit code."""

    BROKEN = "broken"
    """Rows contradict each other, or wait for a worker that does not process them."""
    NEEDS_PERSON = "needs_person"
    """The rows are correct, and a person has to act on them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken invariant, or work for a person. It contains ids, and never the input of a guest."""

    invariant: str
    organization_id: str | None
    """None: the finding is about the installation."""
    subject: str
    message: str
    remedy: str | None = None
    """The command to run, or another action, if one is known."""
    kind: FindingKind = FindingKind.BROKEN
    organization: str | None = None
    """The organization's slug."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The settings of an installation that the checks compare with, and options of the checks."""

    event_retention_days: int = limits.EVENT_RETENTION_DAYS
    delivery_retention_days: int = limits.DELIVERY_RETENTION_DAYS
    idempotency_retention_days: int = limits.IDEMPOTENCY_RETENTION_DAYS
    webhook_disable_after_s: int = limits.WEBHOOK_DISABLE_AFTER_S
    skew_s: int = 60
    """Two timestamps closer than this have no order: an event is dated when its request began, and numbered when it
    commits."""
    overdue_s: int | None = None
    """Work that is due for longer than this is a finding. None: due work is not checked."""
    include_needs_person: bool = False
    """True to report work for a person, too."""
    openers: Mapping[str, Opener] | None = field(default=None, repr=False)
    """The opener of each kind of sealed value (see `sealed_values`). None: sealed values are not checked."""
    pending_minutes: int = 30
    webhook_retry_delays_s: tuple[int, ...] = limits.WEBHOOK_WAITS_S
    webhook_deadline_s: float = limits.WEBHOOK_DEADLINE_S

    def parameters(self, at: int) -> dict[str, int]:
        """Return the timestamps and limits that the queries compare with. Rows that a purge may delete just now are
        left out."""
        return self._time_limits(at + self.skew_s * SECOND) | {
            "active_keys_max": limits.ACTIVE_API_KEYS_PER_ORGANIZATION,
            "endpoints_max": limits.WEBHOOK_ENDPOINTS_PER_ORGANIZATION,
            "attempts_min": limits.WEBHOOK_ATTEMPTS,
            "failures_to_disable": FAILURES_TO_DISABLE,
            "expired_leases_max": EXPIRED_LEASES_MAX,
            "end_of_time": END_OF_TIME,
            "at": at,
            "events_since": at - self.event_retention_days * DAY + HOUR,
            "deliveries_since": at - self.delivery_retention_days * DAY + HOUR,
            "answers_since": at - self.idempotency_retention_days * DAY + HOUR,
            "disable_after": self.webhook_disable_after_s * SECOND,
            "skew": self.skew_s * SECOND,
            "overdue": at - (self.overdue_s or 0) * SECOND,
            "mail_retryable_since": at - MAIL_RETRYABLE,
            "parked_since": at - parked.DELAY_MAX,
        }

    def _time_limits(self, at: int) -> dict[str, int]:
        """Return the latest allowed value of each kind of timestamp."""
        delay_s = max(*self.webhook_retry_delays_s, *limits.WEBHOOK_WAITS_S)
        lease = LEASE_AHEAD + round(LEASE_DEADLINES * self.webhook_deadline_s * SECOND)
        return {
            "hold_until": at + HOLD_AHEAD,
            "pending_until": at + SETTING_CHANGED,
            "pending": self.pending_minutes * MINUTE,
            "lease_until": at + lease,
            "send_until": at + SEND_AHEAD,
            "delivery_until": at + lease + round(delay_s * (1 + WEBHOOK_JITTER) * SECOND),
            "refund_until": at + REFUND_AHEAD,
            "effect_until": at + EFFECT_AHEAD,
            "mail_until": at + MAIL_AHEAD,
            "secret_until": at + limits.SECRET_OVERLAP_S_MAX * SECOND,
        }


# How far in the future a timestamp may be at most. A test compares them with the limits of the packages that write the
# timestamps.
HOLD_AHEAD = DAY
SETTING_CHANGED = 31 * DAY
"""A pending booking keeps its expiry when the organization, or the installation, shortens the time to pay later."""
LEASE_AHEAD = HOUR
SEND_AHEAD = MINUTE
LEASE_DEADLINES = 4
"""A delivery is leased for this many times its deadline."""
WEBHOOK_JITTER = 0.05
REFUND_AHEAD = HOUR
EFFECT_AHEAD = 2 * HOUR
MAIL_AHEAD = 12 * HOUR
EXPIRED_LEASES_MAX = 3
FAILURES_TO_DISABLE = 6
"""The failures in a row after which an endpoint may be disabled."""
MAIL_RETRYABLE = 72 * HOUR
"""After this time `booking mails retry` refuses a failed mail, and it is no longer a finding."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The organization and the options of a check."""

    organization_id: str | None
    parameters: Mapping[str, int]
    slugs: Mapping[str, str] = field(default_factory=dict)
    """The slug of each organization, by its id."""
    openers: Mapping[str, Opener] = field(default_factory=dict)
    ahead: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The parameters for each sandbox whose clock is ahead."""

    @property
    def organization_ids(self) -> list[str]:
        """The organizations to check."""
        return [self.organization_id] if self.organization_id else list(self.slugs)


@dataclass(frozen=True, kw_only=True)
class BaseCheck:
    """An invariant, and the next step for a row that breaks it."""

    invariant: str
    remedy: str | None = None
    """May contain `{org}`, the slug, `{subject}`, and `{since}`, a timestamp that the query selects."""
    kind: FindingKind = FindingKind.BROKEN
    needs_worker: bool = False
    """True for work that a worker should have done by now."""

    def finding(
        self, context: CheckContext, organization_id: str, subject: str, message: str, since: int = 0
    ) -> Finding:
        """Return the finding about one subject."""
        slug = context.slugs.get(organization_id)
        values = {"org": slug, "subject": subject, "since": _utc(since)}
        remedy = self.remedy and self.remedy.format_map(values)
        return Finding(self.invariant, organization_id, subject, _readable(message), remedy, self.kind, slug)

    def applies(self, options: CheckOptions) -> bool:
        """Return whether the options include this check."""
        is_wanted = self.kind is FindingKind.BROKEN or options.include_needs_person
        return is_wanted and not (self.needs_worker and options.overdue_s is None)


@dataclass(frozen=True, kw_only=True)
class Check(BaseCheck):
    """A query that selects (organization_id, subject, message) of the rows that break the invariant. A fourth column
    `since` is selected if the remedy contains it.

    In the query `[b]` is replaced by the condition that the row of the alias `b` belongs to the organization that is
    checked, or by `true` if all of them are.
    """

    name: str = ""
    query: str

    def findings(self, tx: Tx, context: CheckContext) -> Iterator[Finding]:
        """Yield the rows that break the invariant, read by one statement and so in one snapshot.

        The rows of each sandbox whose clock is ahead are read by a separate statement, at the sandbox's instant; not
        for work that a worker should have done: a clock that was just moved makes nothing late.
        """
        for organization_id, subject, message, *since in self._rows(tx, context):
            yield self.finding(context, str(organization_id), str(subject), str(message), *map(int, since))

    def _rows(self, tx: Tx, context: CheckContext) -> Iterator[Row]:
        ahead = {} if self.needs_worker else context.ahead
        owners: list[str] = list(ahead)
        if context.organization_id is not None:
            owners = [context.organization_id]
        else:
            bounds = rf"\1.organization_id NOT IN ({_AHEAD})" if ahead else "true"
            yield from tx.all(_bounded(self.query, bounds), **context.parameters)
        of_one = _bounded(self.query, r"\1.organization_id = :organization_id")
        for owner in owners:
            yield from tx.all(of_one, **ahead.get(owner, context.parameters), organization_id=owner)


@cache
def _bounded(query: str, condition: str) -> Statement:
    bounded = f"SELECT * FROM ({query}) found LIMIT {FINDINGS_MAX}"  # noqa: S608 - made of constants
    return Statement(text(_ALIAS.sub(condition, bounded)))


@dataclass(frozen=True, kw_only=True)
class RowScan(BaseCheck):
    """A function that validates each row alone. The rows are read in pages along the primary key, one organization
    after the other.

    The query selects the key, the subject of a finding, and the row that `validate` gets. Its WHERE clause compares the
    organization with `:organization_id`.
    """

    name: str = ""
    query: str
    key: str
    validate: Callable[[Any], str | None]
    """Returns the message of a row that breaks the invariant, or None."""

    def findings(self, tx: Tx, context: CheckContext) -> Iterator[Finding]:
        """Yield the rows that break the invariant, at most FINDINGS_MAX."""
        room = FINDINGS_MAX
        for organization_id in context.organization_ids:
            for subject, *row in self._rows(tx, organization_id, context.parameters):
                message = self.validate(row)
                if message is not None and room:
                    room -= 1
                    yield self.finding(context, organization_id, str(subject), message)

    @cached_property
    def _page(self) -> Statement:
        return Statement(text(f"{self.query} AND {self.key} > :after ORDER BY {self.key} LIMIT {PAGE}"))

    def _rows(self, tx: Tx, organization_id: str, parameters: Mapping[str, int]) -> Iterator[Row]:
        after: Any = 0 if self.key.endswith("sequence") else _FIRST_ID
        while rows := tx.all(self._page, **parameters, organization_id=organization_id, after=after):
            yield from (row[1:] for row in rows)
            after = rows[-1][0]


_WAITS_FOR: Mapping[str | None, dict[str, Any]] = {
    None: {},
    "worker": {"needs_worker": True},
    "person": {"kind": FindingKind.NEEDS_PERSON},
}


def load(file: str) -> Iterator[Check | RowScan]:
    """Yield the checks of a `.sql` file of this package. The header of a statement declares its check:

    -- check: the invariant, which may name a constant of `models.limits` in braces
    -- rows: the primary key, for a statement whose rows a function of `rows` validates
    -- waits for: worker, or person
    -- remedy: the next step
    """
    statements = sql_files.load(f"{__package__}.{file}")
    for name, labels in statements.labels.items():
        if invariant := labels.get("check"):
            common: dict[str, Any] = {
                "name": name,
                "invariant": invariant.format_map(vars(limits)),
                "query": statements.text(name),
                "remedy": labels.get("remedy"),
                **_WAITS_FOR[labels.get("waits for")],
            }
            key = labels.get("rows")
            yield RowScan(**common, key=key, validate=VALIDATORS[name]) if key else Check(**common)
