"""Integrity checks of a live database.

A healthy database has no findings. A check is declared in the header of its query (`checks.load`). The checks only
read, and can run beside a serving process: each query sees one snapshot, and a row scan validates each row alone: a
booking that commits meanwhile is seen as a whole or not at all.

The comment of each query states its cost. No check joins more than a row with its few dependent rows; the most
expensive checks read a table once and sort it, or look up an index once for each of its rows. A million bookings with
their two million events took eight minutes on PostgreSQL, on two busy cores, half of it for the bodies of events. With
a hundred thousand bookings, two hundred thousand events and as many rows in the other tables, all checks took four
times as long as with a quarter of these rows on SQLite (21 s), and less on PostgreSQL (12 s).
"""

from collections.abc import Callable

from sqlalchemy import text

from booking_core.base.progress import Progress
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.upkeep.doctor import checks
from booking_core.upkeep.doctor.checks import Check, CheckContext, CheckOptions, Finding, FindingKind, Opener, RowScan
from booking_core.upkeep.doctor.sealed_values import SEALED_VALUES, SealedValueScan, openers

FILES = ("bookings", "money", "events", "deliveries", "records", "needs_person")
"""The `.sql` files that declare checks."""
CHECKS: tuple[Check | RowScan | SealedValueScan, ...] = (
    *(check for file in FILES for check in checks.load(file)),
    *SEALED_VALUES,
)


def examine(
    tx: Tx,
    organization_id: str | None = None,
    options: CheckOptions | None = None,
    *,
    advance: Progress = lambda count, total: None,
) -> list[Finding]:
    """Run the checks on one organization or on all, and return their findings: broken data first."""
    options, at = options or CheckOptions(), tx.now()
    owners = [(str(owner), str(slug), offset) for owner, slug, offset in tx.all(_ORGANIZATIONS)]
    slugs = {owner: slug for owner, slug, _ in owners}
    ahead = {owner: options.parameters(at + offset) for owner, _, offset in owners if offset}
    context = CheckContext(organization_id, options.parameters(at), slugs, options.openers or {}, ahead)
    checks = sorted((check for check in CHECKS if check.applies(options)), key=lambda check: check.kind)
    findings: list[Finding] = []
    with tx.without_statement_timeout():
        for count, check in enumerate(checks, start=1):
            findings.extend(check.findings(tx, context))
            advance(count, len(checks))
    return findings


_ORGANIZATIONS = Statement(text("SELECT id, slug, clock_offset FROM organizations ORDER BY id"))
