"""The SDK's additions to the shared models: each event type has a class."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import AwareDatetime, Field, GetCoreSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema

from booking_core.models.base import Id, Open, Resource
from booking_core.models.bookings import Booking as Booking
from booking_core.models.bookings import BookingChange as BookingChange
from booking_core.models.bookings import CancelReason, CancelReasonName
from booking_core.models.checkouts import Checkout as Checkout
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.events import Envelope, EventType, EventTypeName, ResourceType, ResourceTypeName
from booking_core.models.gift_cards import GiftCard as GiftCard
from booking_core.models.money import Money
from booking_core.models.webhooks import Attempt, WebhookEndpoint
from booking_core.models.webhooks import WebhookEndpointWithSecret as WebhookEndpointWithSecret

DeliveryAttempt = Attempt
"""An HTTP request of a delivery. The name differs from the SDK's own `Attempt`."""


class BookingData(Resource):
    """The data of an event about a booking."""

    object: Booking
    """The booking at the time of the event, with `manage_url` None."""


class CancellationData(BookingData):
    """The data of `booking.cancelled`."""

    reason: Open[CancelReason, CancelReasonName]


class PreviousDeparture(Resource):
    """The departure of a booking before it was rescheduled."""

    id: Id
    starts_at: AwareDatetime


class BookingUpdateData(BookingData):
    """The data of `booking.updated`."""

    changes: dict[str, Any] | None = Field(default=None, repr=False)
    """The fields of `object` that differ, each with its whole value before the change; None in older events."""


class RescheduleData(BookingUpdateData):
    """The data of `booking.rescheduled`."""

    previous_departure: PreviousDeparture


class BookingRefundData(BookingUpdateData):
    """The data of `booking.refunded`."""

    refunded_amount: Money
    """The amount that was returned now."""
    total_refunded: Money
    """The total amount of the booking's payment that was returned so far."""


class DepartureData(Resource):
    """The data of `departure.updated`."""

    object: Departure
    """The departure with its seats at the time of the event."""
    changes: dict[str, Any] | None = None
    """The fields of `object` that differ from its last event, each with its value there; None in its first event."""


class CustomerData(Resource):
    """The data of an event about a customer."""

    object: Customer


class CustomerUpdateData(CustomerData):
    """The data of `customer.updated`."""

    changes: dict[str, Any] | None = Field(default=None, repr=False)
    """The fields of `object` that differ, each with its whole value before the change; None in older events."""


class GiftCardData(Resource):
    """The data of an event about a gift card."""

    object: GiftCard
    """The gift card without its code."""


class RedemptionData(GiftCardData):
    """The data of `gift_card.redeemed`."""

    redeemed_amount: Money
    booking_id: Id


class RestorationData(GiftCardData):
    """The data of `gift_card.restored`."""

    restored_amount: Money
    booking_id: Id
    """The booking that was cancelled."""


class EndpointData(Resource):
    """The data of an event about a webhook endpoint."""

    object: WebhookEndpoint


class EndpointFailingData(EndpointData):
    """The data of `webhook.failing`."""

    failing_since: AwareDatetime
    """The endpoint's last success; or when it was created or enabled, if that was later."""


class DeliveryDeadData(EndpointData):
    """The data of `webhook.delivery_dead`."""

    delivery_id: Id
    event_id: Id
    event_type: Open[EventType, EventTypeName]


class PingObject(Resource):
    """The object of a ping."""

    message: str
    endpoint_id: Id


class PingData(Resource):
    """The data of a ping."""

    object: PingObject


class Event(Envelope):
    """An event, from the feed or from a webhook.

    Each event type has a class. Validated as `Event`, or as a group such as `BookingEvent`, an event becomes an
    instance of the class of its type; an event of an unknown type becomes an `UnknownEvent`. Distinguish them with
    `match`, `isinstance` or, on an `AnyEvent`, by `type`. Deduplicate by `id`; `sequence` is the order.
    """

    resource_type: Open[ResourceType, ResourceTypeName] | None = None
    """The type of the resource. For webhooks, which do not contain it, it is derived from the event type."""
    resource_id: Id | None = None

    @field_validator("type")
    @classmethod
    def _as_enum_member(cls, value: str) -> str:
        return EventType(value) if value in EventType.__members__.values() else value

    @model_validator(mode="before")
    @classmethod
    def _add_resource_fields(cls, fields: Any) -> Any:
        """Add the fields that only the feed contains to a webhook event: one handler can then serve both."""
        if not isinstance(fields, dict) or "resource_type" in fields:
            return fields
        resource_type = str(fields.get("type")).partition(".")[0]
        data = fields.get("data")
        about = data.get("object") if isinstance(data, dict) else None
        if resource_type == "ping" or not isinstance(about, dict):
            return {**fields, "resource_type": "webhook" if resource_type == "ping" else resource_type}
        return {**fields, "resource_type": resource_type, "resource_id": about.get("id")}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the class, or of the union of its subclasses."""
        schema = handler(source)
        subclasses = {
            str(tag): kind for tag, kind in EVENT_CLASSES.items() if issubclass(kind, cls) and kind is not cls
        }
        if not subclasses:
            return schema
        # An unknown type becomes an UnknownEvent for `Event`, and the group's own class for a group.
        rest = handler.generate_schema(UnknownEvent) if cls is Event else schema
        choices = {tag: handler.generate_schema(kind) for tag, kind in subclasses.items()}
        return core_schema.tagged_union_schema({**choices, _OTHER: rest}, _choice(frozenset(choices)))


_OTHER = "any.other"


def _choice(tags: frozenset[str]) -> Callable[[Any], str]:
    def tag(event: Any) -> str:
        """Return the schema choice for an event, given as fields or as an instance."""
        event_type = event.get("type") if isinstance(event, dict) else getattr(event, "type", None)
        is_known = isinstance(event_type, str) and str(event_type) in tags and not isinstance(event, UnknownEvent)
        return str(event_type) if is_known else _OTHER

    return tag


class BookingEvent(Event):
    """The base class of events about a booking."""

    data: BookingData  # type: ignore[assignment] # the shared model leaves it open


class BookingCreated(BookingEvent):
    """A booking was created, from any source; once for each booking."""

    type: Literal["booking.created"]


class BookingConfirmed(BookingEvent):
    """A booking was confirmed, at its creation or later."""

    type: Literal["booking.confirmed"]


class BookingCancelled(BookingEvent):
    """A booking was cancelled, and its seats were released."""

    type: Literal["booking.cancelled"]
    data: CancellationData


class BookingRescheduled(BookingEvent):
    """A booking was moved to another departure."""

    type: Literal["booking.rescheduled"]
    data: RescheduleData


class BookingUpdated(BookingEvent):
    """A booking changed in a way that has no separate event type."""

    type: Literal["booking.updated"]
    data: BookingUpdateData


class BookingRefunded(BookingEvent):
    """Money of a cancelled booking was returned, by the gateway or by hand."""

    type: Literal["booking.refunded"]
    data: BookingRefundData


class DepartureEvent(Event):
    """The base class of events about a departure."""

    data: DepartureData  # type: ignore[assignment]


class DepartureUpdated(DepartureEvent):
    """The seats, the status or the time of a departure changed; at most one event in five seconds."""

    type: Literal["departure.updated"]


class CustomerEvent(Event):
    """The base class of events about a customer record."""

    data: CustomerData  # type: ignore[assignment]


class CustomerCreated(CustomerEvent):
    """A customer record was created."""

    type: Literal["customer.created"]


class CustomerUpdated(CustomerEvent):
    """The contact details of a customer changed."""

    type: Literal["customer.updated"]
    data: CustomerUpdateData


class GiftCardEvent(Event):
    """The base class of events about a gift card."""

    data: GiftCardData  # type: ignore[assignment]


class GiftCardIssued(GiftCardEvent):
    """A gift card was paid for."""

    type: Literal["gift_card.issued"]


class GiftCardRedeemed(GiftCardEvent):
    """A gift card paid for a booking."""

    type: Literal["gift_card.redeemed"]
    data: RedemptionData


class GiftCardRestored(GiftCardEvent):
    """A booking was cancelled, and its amount was returned to the gift card."""

    type: Literal["gift_card.restored"]
    data: RestorationData


class WebhookEvent(Event):
    """The base class of events about a webhook endpoint, which are never sent to that endpoint itself."""

    data: EndpointData  # type: ignore[assignment]


class WebhookFailing(WebhookEvent):
    """An endpoint has failed for an hour. It is disabled after three days without a successful delivery."""

    type: Literal["webhook.failing"]
    data: EndpointFailingData


class WebhookAutoDisabled(WebhookEvent):
    """An endpoint was disabled by the service after three days without a successful delivery."""

    type: Literal["webhook.auto_disabled"]


class WebhookEnabled(WebhookEvent):
    """An endpoint was enabled again."""

    type: Literal["webhook.enabled"]


class WebhookSecretRotated(WebhookEvent):
    """The deliveries of an endpoint are signed with a new secret."""

    type: Literal["webhook.secret_rotated"]


class WebhookDeliveryDead(WebhookEvent):
    """A delivery failed for the last time."""

    type: Literal["webhook.delivery_dead"]
    data: DeliveryDeadData


class Ping(Event):
    """A test event, sent by `webhooks.test`."""

    type: Literal["ping"]
    data: PingData  # type: ignore[assignment]


if TYPE_CHECKING:
    # A literal that no event has: for `event.type == "booking.cancelled"` a type checker excludes this class.
    UnknownType = Literal["(a type that this version does not know)"]
else:
    UnknownType = str


class UnknownEvent(Event):
    """An event of an unknown type, or an event that could not be parsed, with its data as received.

    Its `type` is a string. For type checkers it is a separate literal, and comparing `type` narrows an `AnyEvent`. To
    compare with a type that is newer than this version, use `str(event.type)`.
    """

    type: UnknownType


AnyBookingEvent = (
    BookingCreated | BookingConfirmed | BookingCancelled | BookingRescheduled | BookingUpdated | BookingRefunded
)
AnyCustomerEvent = CustomerCreated | CustomerUpdated
AnyGiftCardEvent = GiftCardIssued | GiftCardRedeemed | GiftCardRestored
AnyEvent = (
    AnyBookingEvent
    | DepartureUpdated
    | AnyCustomerEvent
    | AnyGiftCardEvent
    | WebhookFailing
    | WebhookAutoDisabled
    | WebhookEnabled
    | WebhookSecretRotated
    | WebhookDeliveryDead
    | Ping
    | UnknownEvent
)
"""An event of any type, from the feed or a webhook. Type checkers narrow it by class and by `type`."""


EVENT_CLASSES: dict[str, type[Event]] = {
    str(get_args(kind.model_fields["type"].annotation)[0]): kind
    for kind in get_args(AnyEvent)
    if kind is not UnknownEvent
}
"""The class of each event type."""
