"""What must always be true, checked on a live database.

A healthy database gives no finding. Reads only, and safe to run beside a serving process: each query sees one snapshot,
and a walk judges each row by itself, so that a booking which commits meanwhile is seen whole or not at all.

What each costs is said where it stands. None joins more than a row with its own few others; the dearest read a table
once and sort it, or look up an index once for each of its rows. A million bookings with their two million events took
eight minutes on PostgreSQL, on two cores that did much else, and half of that went into the bodies of events. With a
hundred thousand bookings, two hundred thousand events and as many rows in the other tables, all checks took four times
as long as with a quarter of that on SQLite (21 s), and less on PostgreSQL (12 s).
"""

from collections.abc import Callable

from sqlalchemy import text

from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.doctor.checks import Asked, Check, Finding, FindingKind, Opener, Terms, Walk
from booking_core.doctor.delivering import CHECKS as DELIVERING
from booking_core.doctor.guests import CHECKS as GUESTS
from booking_core.doctor.horizons import CHECKS as HORIZONS
from booking_core.doctor.keeping import CHECKS as KEEPING
from booking_core.doctor.money import CHECKS as MONEY
from booking_core.doctor.paying import CHECKS as PAYING
from booking_core.doctor.sealed import CHECKS as SEALED
from booking_core.doctor.sealed import Sealed, openers
from booking_core.doctor.selling import CHECKS as SELLING
from booking_core.doctor.telling import CHECKS as TELLING
from booking_core.doctor.waiting import CHECKS as WAITING

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "FindingKind",
    "Opener",
    "Sealed",
    "Terms",
    "Walk",
    "examine",
    "openers",
]

CHECKS: tuple[Check | Walk | Sealed, ...] = (
    *SELLING,
    *GUESTS,
    *MONEY,
    *PAYING,
    *TELLING,
    *DELIVERING,
    *KEEPING,
    *HORIZONS,
    *SEALED,
    *WAITING,
)

Advance = Callable[[int, int], None]
"""Told how many checks are done, and of how many."""


def examine(
    tx: Tx,
    organization_id: str | None = None,
    terms: Terms | None = None,
    *,
    advance: Advance = lambda done, total: None,
) -> list[Finding]:
    """Return everything that is off, in one organization or in all, what is broken before what needs a person."""
    terms = terms or Terms()
    slugs = {str(row[0]): str(row[1]) for row in tx.all(_SLUGS)}
    asked = Asked(organization_id, terms.parameters(tx.now()), slugs, terms.openers or {})
    checks = sorted((check for check in CHECKS if check.applies(terms)), key=lambda check: check.kind)
    found: list[Finding] = []
    with tx.without_statement_timeout():
        for done, check in enumerate(checks, start=1):
            found.extend(check.findings(tx, asked))
            advance(done, len(checks))
    return found


_SLUGS = Statement(text("SELECT id, slug FROM organizations ORDER BY id"))
