"""Process due rows as a job of the worker does, in the test's own thread."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from booking_core import notifications, payments
from booking_core.base.context import Installation
from booking_core.db.due import NIL_ID, DueWork, Processed
from booking_core.db.engine import Database, Tx
from booking_core.notifications import ClaimedMail
from booking_core.organizations import keys
from booking_core.payments import ClaimedRefund

Process = Callable[[Tx, str, Sequence[str]], Processed[Any]]


def process(tx: Tx, organization_id: str, work: DueWork, act: Process, limit: int = 100) -> Processed[Any]:
    """Process the first due rows of an organization."""
    due = [row.key for row in work.find(tx, organization_id, after=None, limit=limit).rows]
    return act(tx, organization_id, due) if due else Processed()


def process_all(database: Database, work: DueWork, act: Process, limit: int = 100) -> Processed[Any]:
    """Process the first due rows of each organization, and return all results."""
    owners = database.read(lambda tx: organizations(tx, work))
    each = [database.write(lambda tx, owner=owner: process(tx, owner, work, act, limit)) for owner in owners]  # type: ignore[misc]
    return Processed([key for one in each for key in one.done], results=[made for one in each for made in one.results])


def organizations(tx: Tx, work: DueWork) -> list[str]:
    """Return the organizations with due rows."""
    return [owner.id for owner in work.organizations(tx, after=NIL_ID, limit=1000) if owner.is_due]


# The jobs' steps -------------------------------------------------------------------------------------------------


def claim_refunds(database: Database, *, limit: int = 100, lease_s: float = 30) -> list[ClaimedRefund]:
    claim = lambda tx, owner, ids: payments.claim(tx, owner, ids, lease_s=lease_s)  # noqa: E731
    return list(process_all(database, payments.DUE, claim, limit).results)


def refer_refunds(database: Database, *, limit: int = 100) -> int:
    refer = partial(payments.claim, lease_s=0.0, has_gateway=False)
    return len(process_all(database, payments.DUE, refer, limit).done)


def write_mails(database: Database, installation: Installation, **options: Any) -> int:
    limit = options.pop("limit", 100)
    write = lambda tx, owner, due: notifications.write(tx, installation, owner, due, **options)  # noqa: E731
    return len(process_all(database, notifications.OWED, write, limit).done)


def claim_mails(database: Database, installation: Installation, **options: Any) -> list[ClaimedMail]:
    limit, options = options.pop("limit", 100), {"lease_s": 60} | options
    claim = lambda tx, owner, due: notifications.claim(tx, installation, owner, due, **options)  # noqa: E731
    return list(process_all(database, notifications.DUE, claim, limit).results)


def unpark_mails(database: Database) -> int:
    return len(process_all(database, notifications.PARKED, notifications.unpark).done)


def warn_of_keys(database: Database) -> int:
    return len(process_all(database, keys.EXPIRING, keys.warn_expiring).done)
