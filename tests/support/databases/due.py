"""Process due rows as a job of the worker does, in the test's own thread."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from booking_core import notifications, payments
from booking_core.db.engine import Tx
from booking_core.due_work.rows import NIL_ID, DueWork, Processed
from booking_core.notifications import ClaimedMail
from booking_core.organizations import keys
from booking_core.payments import ClaimedRefund
from support.world.world import World

Process = Callable[[Tx, str, Sequence[str]], Processed[Any]]


def process(tx: Tx, organization_id: str, work: DueWork, act: Process, limit: int = 100) -> Processed[Any]:
    """Process the first due rows of an organization."""
    due = [row.key for row in work.find(tx, organization_id, after=None, limit=limit).rows]
    return act(tx, organization_id, due) if due else Processed()


def process_own(world: World, work: DueWork, act: Process, limit: int = 100) -> Processed[Any]:
    """Process the first due rows of the test's organization, if the job would find the organization."""
    if not is_due(world, work):
        return Processed()
    return world.database.write(lambda tx: process(tx, world.org, work, act, limit))


def is_due(world: World, work: DueWork) -> bool:
    """Return whether the job finds due rows of the test's organization."""
    before = str(UUID(int=UUID(world.org).int - 1))
    owners = world.database.read(lambda tx: work.organizations(tx, after=before, limit=1))
    return [(owner.id, owner.is_due) for owner in owners] == [(world.org, True)]


def organizations(tx: Tx, work: DueWork) -> list[str]:
    """Return the organizations with due rows."""
    return [owner.id for owner in work.organizations(tx, after=NIL_ID, limit=1000) if owner.is_due]


# The jobs' steps -------------------------------------------------------------------------------------------------


def claim_refunds(world: World, *, limit: int = 100, lease_s: float = 30) -> list[ClaimedRefund]:
    claim = partial(payments.claim, lease_s=lease_s)
    return list(process_own(world, payments.DUE, claim, limit).results)


def refer_refunds(world: World, *, limit: int = 100) -> int:
    refer = partial(payments.claim, lease_s=0.0, has_gateway=False)
    return len(process_own(world, payments.DUE, refer, limit).finished)


def write_mails(world: World, **options: Any) -> int:
    limit = options.pop("limit", 100)
    write = lambda tx, owner, due: notifications.write(tx, world.installation, owner, due, **options)  # noqa: E731
    return len(process_own(world, notifications.OWED, write, limit).finished)


def claim_mails(world: World, **options: Any) -> list[ClaimedMail]:
    limit, options = options.pop("limit", 100), {"lease_s": 60} | options
    claim = lambda tx, owner, due: notifications.claim(tx, world.installation, owner, due, **options)  # noqa: E731
    return list(process_own(world, notifications.DUE, claim, limit).results)


def unpark_mails(world: World) -> int:
    return len(process_own(world, notifications.PARKED, notifications.unpark).finished)


def warn_of_keys(world: World) -> int:
    return len(process_own(world, keys.EXPIRING, keys.warn_expiring).finished)
