"""What must always be true, checked on a live database.

A healthy database gives no finding. Reads only, and safe to run beside a serving process: each query sees one snapshot,
and a walk judges each row by itself, so that a booking which commits meanwhile is seen whole or not at all.

What each costs is said where it stands. None joins more than a row with its own few others; the dearest read a table
once and sort it, or look up an index once for each of its rows. A million bookings with their two million events took
eight minutes on PostgreSQL, on two cores that did much else, and half of that went into the bodies of events.
"""

from collections.abc import Callable

from booking_core.db.engine import Tx
from booking_core.doctor.checks import Asked, Check, Finding, Terms, Walk
from booking_core.doctor.delivering import CHECKS as DELIVERING
from booking_core.doctor.keeping import CHECKS as KEEPING
from booking_core.doctor.money import CHECKS as MONEY
from booking_core.doctor.selling import CHECKS as SELLING
from booking_core.doctor.telling import CHECKS as TELLING

__all__ = ["CHECKS", "Check", "Finding", "Terms", "Walk", "examine"]

CHECKS: tuple[Check | Walk, ...] = (*SELLING, *MONEY, *TELLING, *DELIVERING, *KEEPING)

Advance = Callable[[int, int], None]
"""Told how many checks are done, and of how many."""


def examine(
    tx: Tx,
    organization_id: str | None = None,
    terms: Terms | None = None,
    *,
    advance: Advance = lambda done, total: None,
) -> list[Finding]:
    """Everything that is off, in one organization or in all."""
    terms = terms or Terms()
    asked = Asked(organization_id, terms.parameters(tx.now()))
    checks = [check for check in CHECKS if terms.overdue_s is not None or not check.waits]
    found: list[Finding] = []
    with tx.unhurried():
        for done, check in enumerate(checks, start=1):
            found.extend(check.findings(tx, asked))
            advance(done, len(checks))
    return found
