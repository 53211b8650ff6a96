"""An event, its types, and the scope each type asks for (API v1 section 6)."""

from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime

from booking_core.wire.base import Id, Open, Resource
from booking_core.wire.scopes import Scope


class ResourceType(StrEnum):
    BOOKING = "booking"
    CUSTOMER = "customer"
    GIFT_CARD = "gift_card"
    WEBHOOK = "webhook"


class EventType(StrEnum):
    BOOKING_CREATED = "booking.created"
    BOOKING_CONFIRMED = "booking.confirmed"
    BOOKING_CANCELLED = "booking.cancelled"
    BOOKING_RESCHEDULED = "booking.rescheduled"
    CUSTOMER_CREATED = "customer.created"
    CUSTOMER_UPDATED = "customer.updated"
    GIFT_CARD_ISSUED = "gift_card.issued"
    GIFT_CARD_REDEEMED = "gift_card.redeemed"
    WEBHOOK_AUTO_DISABLED = "webhook.auto_disabled"
    WEBHOOK_ENABLED = "webhook.enabled"
    WEBHOOK_SECRET_ROTATED = "webhook.secret_rotated"  # noqa: S105
    WEBHOOK_DELIVERY_DEAD = "webhook.delivery_dead"
    PING = "ping"

    @property
    def resource_type(self) -> ResourceType:
        """What the event is about; `ping` is about a webhook endpoint."""
        if self is EventType.PING:
            return ResourceType.WEBHOOK
        return ResourceType(self.partition(".")[0])


READ_SCOPE = {
    ResourceType.BOOKING: Scope.BOOKINGS_READ,
    ResourceType.CUSTOMER: Scope.CUSTOMERS_READ,
    ResourceType.GIFT_CARD: Scope.GIFT_CARDS_READ,
    ResourceType.WEBHOOK: Scope.WEBHOOKS_MANAGE,
}
"""An event carries the whole resource, so reading it needs the resource's read scope."""

SUBSCRIBABLE = frozenset(EventType) - {EventType.PING}


class Envelope(Resource):
    """The body of every webhook delivery."""

    id: Id
    """Stable across retries: deduplicate by it."""
    type: Open[EventType]
    created_at: AwareDatetime
    api_version: str
    """Version date of the resource shapes."""
    sequence: int
    """Dense within the organization, in commit order."""
    data: dict[str, Any]
    """`object` is the resource; some types add fields beside it."""


class Event(Envelope):
    """An event of the feed: the webhook envelope, and what it is about."""

    resource_type: Open[ResourceType]
    resource_id: Id | None
    """Null for events with no resource."""
