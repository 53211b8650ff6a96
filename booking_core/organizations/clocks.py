"""The clock of an organization: the database's, or for a sandbox one that may be ahead of it (decision 0016)."""

from booking_core.base.context import Organization
from booking_core.db.engine import Tx


def now(tx: Tx, organization: Organization) -> int:
    """Return the present instant of the organization, and let the statements that follow take it for the present."""
    tx.instant = None
    at = tx.now()
    follow(tx, organization, at)
    return organization.instant(at)


def follow(tx: Tx, organization: Organization, real: int) -> None:
    """Let the statements that follow take the organization's instant for the present, where its clock is ahead.

    Args:
        real: the present instant by the database's clock.
    """
    tx.instant = organization.instant(real) if organization.clock_offset else None
