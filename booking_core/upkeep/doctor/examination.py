"""Run the checks, and return their findings."""

from sqlalchemy import text

from booking_core.base.progress import Progress
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.upkeep.doctor import checks
from booking_core.upkeep.doctor.checks import Check, CheckContext, CheckOptions, Finding, RowScan
from booking_core.upkeep.doctor.sealed_values import SEALED_VALUES, SealedValueScan

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
