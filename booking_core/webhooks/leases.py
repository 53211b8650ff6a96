"""First attempts in flight: what a worker claims of the log for one endpoint at once is one row (decisions/0059).

A delivery gets its row, and its first attempt its own, with the result. Until then the lease has all that they need, so
that they can be written without a result when the lease expires.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import delete, select, tuple_
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.db.engine import Tx
from booking_core.db.statements import rows_parameter
from booking_core.db.tables import Id, webhook_leases
from booking_core.db.unit_of_work import InsertFromSelect, Update
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from booking_core.models.webhooks import DeliveryStatus, DeliveryTrigger
from booking_core.webhooks import rules
from booking_core.webhooks.rules import LeasedDelivery

WORKER_LENGTH = 36
"""A token begins with the id of the worker."""


class LeasedAttempt(NamedTuple):
    """A first attempt in flight: an event of the log, and the id under which it is sent."""

    sequence: int
    event_id: str
    event_type: str
    resource_id: str | None
    created_at: int
    """Of the delivery."""
    attempt_id: str


class Lease(NamedTuple):
    """The attempts that were claimed together for one endpoint, and are not settled."""

    organization_id: str
    endpoint_id: str
    id: str
    token: str
    lease_until: int
    lost_leases: int
    claimed_at: int
    generation: int
    attempts: tuple[LeasedAttempt, ...]

    def delivery(self, attempt: LeasedAttempt) -> LeasedDelivery:
        """Return the delivery of an attempt, as it was queued."""
        return LeasedDelivery(
            organization_id=self.organization_id,
            id=rules.delivery_id(attempt.event_id, self.endpoint_id),
            endpoint_id=self.endpoint_id,
            event_id=attempt.event_id,
            event_type=attempt.event_type,
            status=DeliveryStatus.QUEUED,
            failure_reason=None,
            trigger=DeliveryTrigger.EVENT,
            attempt_count=0,
            max_attempts=WEBHOOK_ATTEMPTS,
            lease_token=self.token,
            lease_until=self.lease_until,
            lost_leases=self.lost_leases,
            last_response_status=None,
            last_error=None,
            generation=self.generation,
        )


class FirstAttempt(NamedTuple):
    """An attempt of a locked lease."""

    lease: Lease
    attempt: LeasedAttempt
    like: LeasedDelivery
    """The delivery of the lease's first attempt: those of the others differ in their ids and events alone."""


COLUMNS = tuple(webhook_leases.c[name] for name in Lease._fields)


def from_row(row: Sequence[Any]) -> Lease:
    """Return the lease of a row of COLUMNS."""
    *columns, attempts = row
    return Lease._make([*columns, parsed(attempts)])


def parsed(attempts: str) -> tuple[LeasedAttempt, ...]:
    """Return the attempts of a lease from their text."""
    return tuple(LeasedAttempt._make(each) for each in orjson.loads(attempts))


def _written(attempts: Sequence[LeasedAttempt]) -> dict[str, Any]:
    """Return the columns of the attempts, which are in the order of the log."""
    return {
        "first_sequence": attempts[0].sequence,
        "last_sequence": attempts[-1].sequence,
        "attempts": orjson.dumps([tuple(each) for each in attempts]).decode(),
    }


def insert(
    tx: Tx,
    organization_id: str,
    endpoint_id: str,
    attempts: Sequence[LeasedAttempt],
    *,
    lease_id: str,
    token: str,
    until: int,
    at: int,
    generation: int,
) -> None:
    """Insert a lease of attempts, which are in the order of the log."""
    tx.insert(
        webhook_leases,
        organization_id=organization_id,
        endpoint_id=endpoint_id,
        id=lease_id,
        token=token,
        lease_until=until,
        claimed_at=at,
        generation=generation,
        **_written(attempts),
    )


_KEY = {"organization_id": Id, "endpoint_id": Id, "id": Id}


def _end(dialect: Dialect, name: str) -> dml.Delete:
    """Return the statement that deletes leases whose attempts are all settled."""
    of, own = rows_parameter(dialect, name, _KEY).c, webhook_leases.c
    if dialect.name == "postgresql":
        return delete(webhook_leases).where(*(own[key] == of[key] for key in _KEY))
    return delete(webhook_leases).where(tuple_(*(own[key] for key in _KEY)).in_(select(*(of[key] for key in _KEY))))


END = InsertFromSelect("ended_leases", _end)
KEEP = Update(
    "kept_leases",
    webhook_leases,
    sets=("first_sequence", "last_sequence", "attempts"),
    keys=tuple(_KEY),
)
PARK = Update("parked_leases", webhook_leases, sets=("lease_until", "lost_leases"), keys=tuple(_KEY))


def settle(tx: Tx, lease: Lease, settled: Iterable[LeasedAttempt]) -> None:
    """Take settled attempts out of a locked lease, which ends with its last one."""
    gone = {each.attempt_id for each in settled}
    left = [each for each in lease.attempts if each.attempt_id not in gone]
    key = {"organization_id": lease.organization_id, "endpoint_id": lease.endpoint_id, "id": lease.id}
    if left:
        tx.update(KEEP, **key, **_written(left))
    else:
        tx.insert_from_select(END, **key)
