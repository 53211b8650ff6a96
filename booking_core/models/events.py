"""An event, its types, and the scope each type asks for (API v1 section 6)."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from booking_core.models.base import Id, Open, Resource
from booking_core.models.scopes import Scope


class ResourceType(StrEnum):
    BOOKING = "booking"
    DEPARTURE = "departure"
    CUSTOMER = "customer"
    GIFT_CARD = "gift_card"
    WEBHOOK = "webhook"


ResourceTypeName = Literal["booking", "departure", "customer", "gift_card", "webhook"]


class EventType(StrEnum):
    BOOKING_CREATED = "booking.created"
    BOOKING_CONFIRMED = "booking.confirmed"
    BOOKING_CANCELLED = "booking.cancelled"
    BOOKING_RESCHEDULED = "booking.rescheduled"
    BOOKING_UPDATED = "booking.updated"
    BOOKING_REFUNDED = "booking.refunded"
    DEPARTURE_UPDATED = "departure.updated"
    CUSTOMER_CREATED = "customer.created"
    CUSTOMER_UPDATED = "customer.updated"
    GIFT_CARD_ISSUED = "gift_card.issued"
    GIFT_CARD_REDEEMED = "gift_card.redeemed"
    GIFT_CARD_RESTORED = "gift_card.restored"
    WEBHOOK_FAILING = "webhook.failing"
    WEBHOOK_AUTO_DISABLED = "webhook.auto_disabled"
    WEBHOOK_ENABLED = "webhook.enabled"
    WEBHOOK_SECRET_ROTATED = "webhook.secret_rotated"  # noqa: S105
    WEBHOOK_DELIVERY_DEAD = "webhook.delivery_dead"
    PING = "ping"

    @property
    def resource_type(self) -> ResourceType:
        """The type of the event's resource; for `ping` it is a webhook endpoint."""
        if self is EventType.PING:
            return ResourceType.WEBHOOK
        return ResourceType(self.partition(".")[0])


EventTypeName = Literal[
    "booking.created",
    "booking.confirmed",
    "booking.cancelled",
    "booking.rescheduled",
    "booking.updated",
    "booking.refunded",
    "departure.updated",
    "customer.created",
    "customer.updated",
    "gift_card.issued",
    "gift_card.redeemed",
    "gift_card.restored",
    "webhook.failing",
    "webhook.auto_disabled",
    "webhook.enabled",
    "webhook.secret_rotated",
    "webhook.delivery_dead",
    "ping",
]


READ_SCOPE = {
    ResourceType.BOOKING: Scope.BOOKINGS_READ,
    ResourceType.DEPARTURE: Scope.AVAILABILITY_READ,
    ResourceType.CUSTOMER: Scope.CUSTOMERS_READ,
    ResourceType.GIFT_CARD: Scope.GIFT_CARDS_READ,
    ResourceType.WEBHOOK: Scope.WEBHOOKS_MANAGE,
}
"""An event carries the whole resource, so reading it needs the resource's read scope."""

FAMILIES = {
    f"{resource}.*": frozenset(kind for kind in EventType if kind.startswith(f"{resource}."))
    for resource in ResourceType
}
"""The types of each resource, by the word that means all of them, such as `booking.*`."""

SUBSCRIBABLE = frozenset(EventType) - {EventType.PING}

UPDATES = frozenset(
    {
        EventType.BOOKING_RESCHEDULED,
        EventType.BOOKING_UPDATED,
        EventType.BOOKING_REFUNDED,
        EventType.DEPARTURE_UPDATED,
        EventType.CUSTOMER_UPDATED,
    }
)
"""The types whose `data` has `changes` beside `object`: the former values of the fields that differ."""


class Envelope(Resource):
    """The body of every webhook delivery."""

    id: Id
    """Stable across retries: deduplicate by it."""
    type: Open[EventType, EventTypeName]
    created_at: AwareDatetime
    api_version: str
    """Version date of the resource shapes."""
    sequence: int
    """Without gaps within the organization, in commit order."""
    data: dict[str, Any] = Field(repr=False)
    """`object` is the resource; some types add fields beside it."""


class Event(Envelope):
    """An event of the feed: the webhook envelope, and its resource."""

    resource_type: Open[ResourceType, ResourceTypeName]
    resource_id: Id | None
    """Null for events with no resource."""
