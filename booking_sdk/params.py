"""The types of method arguments."""

from collections.abc import Callable
from datetime import date, datetime
from typing import Literal, NotRequired, TypedDict
from uuid import UUID

from booking_core.models.bookings import BookingStatus, PaymentMode, RefundMode
from booking_core.models.events import EventType, ResourceType
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


class ListItems(TypedDict, total=False):
    """The arguments of a method that lists one page."""

    limit: int
    """The page size, from 1 to 100; 25 by default."""
    order: SortOrder
    """`asc` for the oldest first; `desc` by default."""
    starting_after: str | None
    """The `next_cursor` of the page before."""
    options: RequestOptions | None
    """Settings for this call."""


class IterateItems(TypedDict, total=False):
    """The arguments of a method that iterates over all pages of a list."""

    order: SortOrder
    """`asc` for the oldest first; `desc` by default."""
    page_size: int
    """The number of items per request, from 1 to 100; 100 by default."""
    max_items: int | None
    """The maximum number of items."""
    starting_after: str | None
    """The `cursor` of an earlier iterator."""
    options: RequestOptions | None
    """Settings for each request."""


class ExperienceFilters(TypedDict, total=False):
    """The filters of a list of experiences."""

    published: bool | None
    """Only published experiences, or only unpublished ones."""
    updated_since: datetime | None
    """Only experiences that changed at or after this time."""


class ListExperiences(ExperienceFilters, ListItems, total=False):
    """The arguments of `experiences.list`."""


class IterateExperiences(ExperienceFilters, IterateItems, total=False):
    """The arguments of `experiences.iterate`."""


class BookingFilters(TypedDict, total=False):
    """The filters of a list of bookings."""

    status: BookingStatusParam | None
    """Only bookings with this status."""
    experience_id: str | UUID | None
    """Only bookings of this experience."""
    departure_from: date | None
    """Only departures on or after this day, in the organization's timezone."""
    departure_to: date | None
    """Only departures on or before this day; for `list`, at most 92 days after the first."""
    updated_since: datetime | None
    """Only bookings that changed at or after this time."""
    departure_id: str | UUID | None
    """Only bookings of this departure."""
    customer_id: str | UUID | None
    """Only bookings of this customer."""
    booking_number: int | None
    """Only the booking with this number."""
    email: str | None
    """Only bookings of the customer with this address, in any case."""
    external_reference: str | None
    """Only bookings with this reference."""


class ListBookings(BookingFilters, ListItems, total=False):
    """The arguments of `bookings.list`."""


class IterateBookings(BookingFilters, IterateItems, total=False):
    """The arguments of `bookings.iterate`."""


class CustomerFilters(TypedDict, total=False):
    """The filters of a list of customers."""

    email: str | None
    """Only the customer with this address, in any case."""


class ListCustomers(CustomerFilters, ListItems, total=False):
    """The arguments of `customers.list`."""


class IterateCustomers(CustomerFilters, IterateItems, total=False):
    """The arguments of `customers.iterate`."""


class GiftCardFilters(TypedDict, total=False):
    """The filters of a list of gift cards."""

    status: GiftCardStatusParam | None
    """Only gift cards with this status."""
    updated_since: datetime | None
    """Only gift cards that changed at or after this time."""


class ListGiftCards(GiftCardFilters, ListItems, total=False):
    """The arguments of `gift_cards.list`."""


class IterateGiftCards(GiftCardFilters, IterateItems, total=False):
    """The arguments of `gift_cards.iterate`."""


class DeliveryFilters(TypedDict, total=False):
    """The filters of a list of deliveries."""

    status: DeliveryStatusParam | None
    """Only deliveries with this status."""
    event_type: EventType | str | None
    """Only deliveries of this event type."""
    event_id: str | UUID | None
    """Only deliveries of this event."""
    recovery_id: str | UUID | None
    """Only deliveries that this recovery queued: the `id` that `recover` returns."""


class ListDeliveries(DeliveryFilters, ListItems, total=False):
    """The arguments of `webhooks.deliveries` except the endpoint."""


class IterateDeliveries(DeliveryFilters, IterateItems, total=False):
    """The arguments of `webhooks.iterate_deliveries` except the endpoint."""


class EventFilters(TypedDict, total=False):
    """The filters of a list of events except the types."""

    resource_type: ResourceTypeParam | None
    """Only events about this type of resource."""
    resource_id: str | UUID | None
    """Only events about this resource."""
    created_since: datetime | None
    """Only events at or after this time."""
    created_until: datetime | None
    """Only events before this time."""


class ListEvents(EventFilters, ListItems, total=False):
    """The arguments of `events.list` except the types. `starting_after` may be a `resume_cursor` too."""


class IterateEvents(EventFilters, IterateItems, total=False):
    """The arguments of `events.iterate` except the types."""


class FollowEvents(TypedDict, total=False):
    """The parameters of `events.follow` except the types."""

    after: str | None
    since: datetime | None
    poll: float | None
    on_checkpoint: Callable[[str], None] | None
    on_lost: Callable[[EventsLost], None] | None
    patience: float | None
    options: RequestOptions | None
