"""The types of method arguments."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NotRequired, TypedDict
from uuid import UUID

from booking_core.models.bookings import BookingStatus, PaymentMode, RefundMode
from booking_core.models.events import ResourceType
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.sandbox import SandboxCard
from booking_core.models.webhooks import DeliveryStatus, RecoverableStatus, WantedStatus
from booking_sdk.errors import EventsLost
from booking_sdk.options import RequestOptions

SortOrder = Literal["asc", "desc"]
BookingStatusParam = BookingStatus | Literal["pending", "confirmed", "cancelled"]
PaymentParam = PaymentMode | Literal["pay_on_site", "invoice", "external_paid"]
RefundParam = RefundMode | Literal["auto", "none"]
ResourceTypeParam = ResourceType | Literal["booking", "customer", "departure", "gift_card", "webhook"]
GiftCardStatusParam = GiftCardStatus | Literal["active", "expired", "inactive"]
DeliveryStatusParam = DeliveryStatus | Literal["queued", "succeeded", "failed", "dead"]
EndpointStatusParam = WantedStatus | Literal["enabled", "disabled"]
SandboxCardParam = (
    SandboxCard
    | Literal[
        "pm_card_visa",
        "pm_card_chargeDeclined",
        "pm_card_refundFail",
        "pm_card_pendingRefund",
        "pm_card_refundUnavailable",
        "pm_card_dashboardRefund",
    ]
)
RecoverableStatusParam = RecoverableStatus | Literal["failed", "dead"]


class GuestLineParam(TypedDict):
    """A number of guests of one price tier."""

    tier_id: str
    count: int


class AddOnParam(TypedDict):
    """A number of one add-on."""

    id: str
    count: int


class GuestParam(TypedDict):
    """The contact details of the guest."""

    name: str
    email: str
    phone: NotRequired[str | None]


# Event types by the resource that they are about: a list of one kind narrows the type of a feed's events.
BookingEventType = Literal[
    "booking.*",
    "booking.created",
    "booking.confirmed",
    "booking.cancelled",
    "booking.rescheduled",
    "booking.updated",
    "booking.refunded",
]
CustomerEventType = Literal["customer.*", "customer.created", "customer.updated"]
DepartureEventType = Literal["departure.*", "departure.updated"]
GiftCardEventType = Literal["gift_card.*", "gift_card.issued", "gift_card.redeemed", "gift_card.restored"]


class ListEvents(TypedDict, total=False):
    """The parameters of `events.list` except the types."""

    resource_type: ResourceTypeParam | None
    resource_id: str | UUID | None
    created_since: datetime | None
    created_until: datetime | None
    limit: int
    order: SortOrder
    starting_after: str | None
    options: RequestOptions | None


class IterateEvents(TypedDict, total=False):
    """The parameters of `events.iterate` except the types."""

    resource_type: ResourceTypeParam | None
    resource_id: str | UUID | None
    created_since: datetime | None
    created_until: datetime | None
    order: SortOrder
    page_size: int
    max_items: int | None
    starting_after: str | None
    options: RequestOptions | None


class FollowEvents(TypedDict, total=False):
    """The parameters of `events.follow` except the types."""

    after: str | None
    since: datetime | None
    poll: float | None
    on_checkpoint: Callable[[str], None] | None
    on_lost: Callable[[EventsLost], None] | None
    patience: float | None
    options: RequestOptions | None
