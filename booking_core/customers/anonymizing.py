"""Replaces the personal data in the rows of customers. What other tables repeat of it is replaced by `erasures`."""

from collections.abc import Sequence

import orjson

from booking_core.base.context import Organization
from booking_core.customers import rules, store
from booking_core.db.engine import Tx
from booking_core.models.base import email_key
from booking_core.models.events import EventType
from booking_core.records import events, timeline
from booking_core.records.events import NewEvent
from booking_core.records.timeline import TimelineKind


def anonymize(tx: Tx, organization: Organization, customer_ids: Sequence[str], *, at: int) -> dict[str, str]:
    """Replace the personal data in the rows of customers, and publish `customer.updated` for each.

    Customers that are anonymized already are passed over. From now on a booking of the former address makes a new
    customer.

    Returns:
        The key of each customer's former e-mail address, by id.
    """
    former: dict[str, str] = {}
    published: list[NewEvent] = []
    for row, updated_at in store.lock_named(tx, organization.id, customer_ids):
        former[row.id] = email_key(row.email)
        published.append(_anonymize_one(tx, organization, row, max(at, updated_at)))
    if published:
        events.publish(tx, organization, published, at=at)
    return former


def _anonymize_one(tx: Tx, organization: Organization, before: rules.CustomerRow, at: int) -> NewEvent:
    row = rules.anonymized(before)
    store.anonymize(tx, organization.id, row, at)
    kind, fields = TimelineKind.CUSTOMER_UPDATED, ["name", "email", "phone"]
    timeline.note(tx, organization.id, kind, at=at, customer_id=row.id, booking_id=None, changed=fields)
    former, shown = (rules.present(each, organization.zone) for each in (before, row))
    # The former values are personal data: the event names the fields alone.
    changes = {name: None for name in shown if shown[name] != former[name]}
    return NewEvent(EventType.CUSTOMER_UPDATED, row.id, orjson.dumps(shown), {"changes": changes})
