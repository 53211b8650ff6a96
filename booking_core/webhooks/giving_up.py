"""Writes down that deliveries have failed which were queued before their endpoint was disabled or deleted.

They count as failed from then on, by the generation of their endpoint (`rules.as_given_up`): this is bookkeeping.
"""

from booking_core.db.engine import Tx
from booking_core.db.tables import deliveries
from booking_core.db.unit_of_work import Update
from booking_core.models.webhooks import DeliveryStatus, FailureReason
from booking_core.webhooks import picking
from booking_core.webhooks.queue import for_each

_GIVEN_UP_POSTGRESQL = f"""
WITH RECURSIVE {picking.WAITING_POSTGRESQL}
SELECT d.organization_id, d.id, e.given_up_at, e.deleted_at
  FROM waiting w
 CROSS JOIN LATERAL (
       SELECT e.* FROM webhook_endpoints e
        WHERE e.organization_id = w.organization_id AND e.id = w.endpoint_id LIMIT 1) e
 CROSS JOIN LATERAL (
       SELECT d.organization_id, d.id FROM deliveries d
        WHERE d.organization_id = w.organization_id AND d.endpoint_id = w.endpoint_id AND d.status = 'queued'
          AND d.lease_until IS NULL AND d.generation < e.generation
        ORDER BY d.generation, d.next_attempt_at LIMIT :each FOR UPDATE SKIP LOCKED) d
 WHERE w.generation < e.generation
 LIMIT :limit
"""  # noqa: S608 - built from constants only
_GIVEN_UP_SQLITE = f"""
WITH RECURSIVE {picking.WAITING_SQLITE}
SELECT d.organization_id, d.id, e.given_up_at, e.deleted_at
  FROM waiting w
 CROSS JOIN webhook_endpoints e ON e.organization_id = w.organization_id AND e.id = w.endpoint_id
 CROSS JOIN deliveries d ON d.rowid IN (
       SELECT q.rowid FROM deliveries q
        WHERE q.organization_id = w.organization_id AND q.endpoint_id = w.endpoint_id AND q.status = 'queued'
          AND q.lease_until IS NULL AND q.generation < e.generation
        ORDER BY q.generation, q.next_attempt_at LIMIT :each)
 WHERE w.generation < e.generation
 LIMIT :limit
"""  # noqa: S608
GIVEN_UP = for_each(_GIVEN_UP_POSTGRESQL, _GIVEN_UP_SQLITE)
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
