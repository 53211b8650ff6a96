"""Writes down that deliveries have failed which were queued before their endpoint was disabled or deleted.

They count as failed from then on, by the generation of their endpoint (`rules.as_given_up`): this is bookkeeping.
"""

from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.tables import deliveries
from booking_core.db.unit_of_work import Update
from booking_core.models.webhooks import DeliveryStatus, FailureReason

GIVEN_UP = sql_files.load(__name__).statement("given_up")
_FAIL = Update(
    "fail_given_up",
    deliveries,
    sets=("status", "failure_reason", "next_attempt_at", "completed_at", "generation", "updated_at"),
)


def fail_given_up(tx: Tx, *, each: int, limit: int) -> int:
    """Write down that deliveries have failed which were queued before their endpoint was disabled or deleted.

    Args:
        each: the most deliveries of one endpoint.
    """
    found = tx.all(GIVEN_UP, each=each, limit=limit)
    for organization_id, delivery_id, given_up_at, deleted_at in found:
        reason = FailureReason.ENDPOINT_DISABLED if deleted_at is None else FailureReason.ENDPOINT_DELETED
        tx.update(
            _FAIL,
            organization_id=organization_id,
            id=delivery_id,
            status=DeliveryStatus.FAILED.value,
            failure_reason=reason.value,
            next_attempt_at=None,
            generation=0,
            completed_at=given_up_at,
            updated_at=given_up_at,
        )
    return len(found)
