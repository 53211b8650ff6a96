"""What the SDK adds to the wire models: secrets kept out of reprs, and a class for each type of event."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AwareDatetime, Field, GetCoreSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema

from booking_core.models.base import Id, Open, Resource
from booking_core.models.bookings import Booking as WireBooking
from booking_core.models.bookings import CancelReason, CancelReasonName
from booking_core.models.customers import Customer
from booking_core.models.events import Envelope, EventType, EventTypeName, ResourceType, ResourceTypeName
from booking_core.models.gift_cards import GiftCard as WireGiftCard
from booking_core.models.money import Money
from booking_core.models.webhooks import Attempt, WebhookEndpoint
from booking_core.models.webhooks import WebhookEndpointWithSecret as WireWebhookEndpointWithSecret

DeliveryAttempt = Attempt
"""One HTTP request of a delivery, under a name that the SDK's own `Attempt` does not have."""


class Booking(WireBooking):
    """Seats of one departure, sold to one guest."""

    manage_url: str | None = Field(repr=False)
    """A secret link for the guest, only for keys holding `bookings:write`; None in every event."""


class GiftCard(WireGiftCard):
    """A prepaid amount that pays for bookings."""

    code: str | None = Field(default=None, repr=False)
    """A payment instrument, only from `gift_cards.get(..., include_code=True)`."""


class WebhookEndpointWithSecret(WireWebhookEndpointWithSecret):
    """An endpoint as it is answered once, with the secret that signs its deliveries."""

    secret: str = Field(repr=False)
    """Keep it now: it is never shown again."""


class BookingData(Resource):
    """What a booking's event holds."""

    object: Booking
    """The booking as it was then, with `manage_url` None."""


class CancellationData(BookingData):
    """And why it was cancelled."""

    reason: Open[CancelReason, CancelReasonName]


class PreviousDeparture(Resource):
    """Where a booking was moved away from."""

    id: Id
    starts_at: AwareDatetime


class RescheduleData(BookingData):
    """And where it was before."""

    previous_departure: PreviousDeparture


class CustomerData(Resource):
    """What a customer's event holds."""

    object: Customer


class GiftCardData(Resource):
    """What a gift card's event holds."""

    object: GiftCard
    """The card without its code."""


class RedemptionData(GiftCardData):
    """And what it paid for."""

    redeemed_amount: Money
    booking_id: Id


class EndpointData(Resource):
    """What a webhook endpoint's event holds."""

    object: WebhookEndpoint


class DeliveryDeadData(EndpointData):
    """And which delivery failed."""

    delivery_id: Id
    event_id: Id
    event_type: Open[EventType, EventTypeName]


class PingObject(Resource):
    """What a ping says."""

    message: str
    endpoint_id: Id


class PingData(Resource):
    """What a ping holds."""

    object: PingObject


class Event(Envelope):
    """Something that happened, from the feed or from a webhook alike.

    Each type has a class of its own. Wherever an event is read as `Event`, or as a group such as `BookingEvent`, it
    becomes the class of its type; one of a type that this version does not know becomes an `UnknownEvent`. To tell them
    apart use `match`, `isinstance` or, on an `AnyEvent`, the `type`. Deduplicate by `id`; `sequence` is the order.
    """

    resource_type: Open[ResourceType, ResourceTypeName] | None = None
    """Filled in from the type when the event came by webhook, where it is not sent."""
    resource_id: Id | None = None

    @field_validator("type")
    @classmethod
    def _as_a_member(cls, value: str) -> str:
        return EventType(value) if value in EventType.__members__.values() else value

    @model_validator(mode="before")
    @classmethod
    def _as_in_the_feed(cls, fields: Any) -> Any:
        """Gives an event that was delivered what only the feed says, so that one handler serves both."""
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
        """Return the schema of the class, or of the union of those below it."""
        own = handler(source)
        below = {str(tag): kind for tag, kind in EVENT_CLASSES.items() if issubclass(kind, cls) and kind is not cls}
        if not below:
            return own
        # A type that is none of these: of the feed it is an UnknownEvent, of a group the group's own class.
        rest = handler.generate_schema(UnknownEvent) if cls is Event else own
        choices = {tag: handler.generate_schema(kind) for tag, kind in below.items()}
        return core_schema.tagged_union_schema({**choices, _OTHER: rest}, _choice(frozenset(choices)))


_OTHER = "any.other"


def _choice(known: frozenset[str]) -> Callable[[Any], str]:
    def tag(event: Any) -> str:
        """Return the choice that reads an event: its fields, or one that was read before."""
        found = event.get("type") if isinstance(event, dict) else getattr(event, "type", None)
        is_known = isinstance(found, str) and str(found) in known and not isinstance(event, UnknownEvent)
        return str(found) if is_known else _OTHER

    return tag


class BookingEvent(Event):
    """Any event about a booking."""

    data: BookingData  # type: ignore[assignment] # the wire leaves it open


class BookingCreated(BookingEvent):
    """Made, from whatever source; once for each booking."""

    type: Literal["booking.created"]


class BookingConfirmed(BookingEvent):
    """Became, or was created, confirmed."""

    type: Literal["booking.confirmed"]


class BookingCancelled(BookingEvent):
    """Its seats are free again."""

    type: Literal["booking.cancelled"]
    data: CancellationData


class BookingRescheduled(BookingEvent):
    """Moved to another departure."""

    type: Literal["booking.rescheduled"]
    data: RescheduleData


class CustomerEvent(Event):
    """Any event about a customer record."""

    data: CustomerData  # type: ignore[assignment]


class CustomerCreated(CustomerEvent):
    """A record that was not there before."""

    type: Literal["customer.created"]


class CustomerUpdated(CustomerEvent):
    """Contact details changed."""

    type: Literal["customer.updated"]


class GiftCardEvent(Event):
    """Any event about a gift card."""

    data: GiftCardData  # type: ignore[assignment]


class GiftCardIssued(GiftCardEvent):
    """Paid for."""

    type: Literal["gift_card.issued"]


class GiftCardRedeemed(GiftCardEvent):
    """Paid for a booking."""

    type: Literal["gift_card.redeemed"]
    data: RedemptionData


class WebhookEvent(Event):
    """Any event about a webhook endpoint; never sent to that endpoint itself."""

    data: EndpointData  # type: ignore[assignment]


class WebhookAutoDisabled(WebhookEvent):
    """Nothing arrived there for three days, and nothing is sent there any more."""

    type: Literal["webhook.auto_disabled"]


class WebhookEnabled(WebhookEvent):
    """Switched on again."""

    type: Literal["webhook.enabled"]


class WebhookSecretRotated(WebhookEvent):
    """Signs with a new secret."""

    type: Literal["webhook.secret_rotated"]


class WebhookDeliveryDead(WebhookEvent):
    """A delivery failed for the last time."""

    type: Literal["webhook.delivery_dead"]
    data: DeliveryDeadData


class Ping(Event):
    """A test of an endpoint, asked for by `webhooks.test`."""

    type: Literal["ping"]
    data: PingData  # type: ignore[assignment]


if TYPE_CHECKING:
    # A literal that no type has: where a checker sees `event.type == "booking.cancelled"`, it leaves this class out.
    UnknownType = Literal["(a type that this version does not know)"]
else:
    UnknownType = str


class UnknownEvent(Event):
    """An event of a type that this version does not know, or that could not be read, with its data as they came.

    Its `type` is text. To a type checker it is a literal of its own, so that comparing `type` narrows an `AnyEvent`;
    compare `str(event.type)` with a type that is newer than this version.
    """

    type: UnknownType


AnyEvent = (
    BookingCreated
    | BookingConfirmed
    | BookingCancelled
    | BookingRescheduled
    | CustomerCreated
    | CustomerUpdated
    | GiftCardIssued
    | GiftCardRedeemed
    | WebhookAutoDisabled
    | WebhookEnabled
    | WebhookSecretRotated
    | WebhookDeliveryDead
    | Ping
    | UnknownEvent
)
"""An event of any type, as the feed and a webhook give it: a type checker narrows it by `type` as well as by class."""


EVENT_CLASSES: dict[str, type[Event]] = {
    EventType.BOOKING_CREATED: BookingCreated,
    EventType.BOOKING_CONFIRMED: BookingConfirmed,
    EventType.BOOKING_CANCELLED: BookingCancelled,
    EventType.BOOKING_RESCHEDULED: BookingRescheduled,
    EventType.CUSTOMER_CREATED: CustomerCreated,
    EventType.CUSTOMER_UPDATED: CustomerUpdated,
    EventType.GIFT_CARD_ISSUED: GiftCardIssued,
    EventType.GIFT_CARD_REDEEMED: GiftCardRedeemed,
    EventType.WEBHOOK_AUTO_DISABLED: WebhookAutoDisabled,
    EventType.WEBHOOK_ENABLED: WebhookEnabled,
    EventType.WEBHOOK_SECRET_ROTATED: WebhookSecretRotated,
    EventType.WEBHOOK_DELIVERY_DEAD: WebhookDeliveryDead,
    EventType.PING: Ping,
}
"""The class of each type."""
