"""Mails to staff about payments at Stripe that need a person.

Stripe says the same more than once, in any order, and the outbox forgets: so the row of the intent remembers which
mails were enqueued.
"""

from collections.abc import Mapping

import orjson

from booking_core.base.context import Actor
from booking_core.bookings.checkouts.rules import STAFF_NOTICES_MAX, IntentRow
from booking_core.db.engine import Tx
from booking_core.records import outbox
from booking_core.records.outbox import OutboxKind


def enqueue(
    tx: Tx, actor: Actor, row: IntentRow, kind: OutboxKind, occurrence: str, payload: Mapping[str, object]
) -> IntentRow:
    """Enqueue a mail to staff, once for its occurrence, and return the row that remembers it; the caller saves it.

    Args:
        occurrence: distinguishes the mails about one payment: the reason of a review, or the dispute.
    """
    enqueued = orjson.loads(row.staff_notices or "[]")
    if occurrence in enqueued or len(enqueued) >= STAFF_NOTICES_MAX:
        return row
    outbox.enqueue(tx, actor.organization.id, kind, row.booking_id, at=actor.at, payload=payload, occurrence=occurrence)
    return row._replace(staff_notices=orjson.dumps([*enqueued, occurrence]).decode())
