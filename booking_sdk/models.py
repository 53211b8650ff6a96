"""What the SDK adds to the wire models: secrets kept out of reprs, and a class for each type of event."""

from typing import Any

from pydantic import AwareDatetime, Field, model_validator

from booking_core.wire.base import Id, Open, Resource
from booking_core.wire.bookings import Booking as WireBooking
from booking_core.wire.bookings import CancelReason
from booking_core.wire.customers import Customer
from booking_core.wire.events import Envelope, EventType, ResourceType
from booking_core.wire.gift_cards import GiftCard as WireGiftCard
from booking_core.wire.money import Money
from booking_core.wire.webhooks import Attempt, WebhookEndpoint
from booking_core.wire.webhooks import WebhookEndpointWithSecret as WireWebhookEndpointWithSecret

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

    reason: Open[CancelReason]


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
    event_type: Open[EventType]


class PingObject(Resource):
    """What a ping says."""

    message: str
    endpoint_id: Id


class PingData(Resource):
    """What a ping holds."""

    object: PingObject


class Event(Envelope):
    """Something that happened, from the feed or from a webhook alike.

    Each type has a class of its own, to be told apart by `match` or `isinstance`; a type that this version does not
    know is an `UnknownEvent`. Deduplicate by `id`; `sequence` is the order.
    """

    resource_type: Open[ResourceType] | None = None
    """Filled in from the type when the event came by webhook, where it is not sent."""
    resource_id: Id | None = None

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


class BookingEvent(Event):
    """Any event about a booking."""

    data: BookingData  # type: ignore[assignment] # the wire leaves it open


class BookingCreated(BookingEvent):
    """Made, from whatever source; once for each booking."""


class BookingConfirmed(BookingEvent):
    """Became, or was created, confirmed."""


class BookingCancelled(BookingEvent):
    """Its seats are free again."""

    data: CancellationData


class BookingRescheduled(BookingEvent):
    """Moved to another departure."""

    data: RescheduleData


class CustomerEvent(Event):
    """Any event about a customer record."""

    data: CustomerData  # type: ignore[assignment]


class CustomerCreated(CustomerEvent):
    """A record that was not there before."""


class CustomerUpdated(CustomerEvent):
    """Contact details changed."""


class GiftCardEvent(Event):
    """Any event about a gift card."""

    data: GiftCardData  # type: ignore[assignment]


class GiftCardIssued(GiftCardEvent):
    """Paid for."""


class GiftCardRedeemed(GiftCardEvent):
    """Paid for a booking."""

    data: RedemptionData


class WebhookEvent(Event):
    """Any event about a webhook endpoint; never sent to that endpoint itself."""

    data: EndpointData  # type: ignore[assignment]


class WebhookAutoDisabled(WebhookEvent):
    """Nothing arrived there for three days, and nothing is sent there any more."""


class WebhookEnabled(WebhookEvent):
    """Switched on again."""


class WebhookSecretRotated(WebhookEvent):
    """Signs with a new secret."""


class WebhookDeliveryDead(WebhookEvent):
    """A delivery failed for the last time."""

    data: DeliveryDeadData


class Ping(Event):
    """A test of an endpoint, asked for by `webhooks.test`."""

    data: PingData  # type: ignore[assignment]


class UnknownEvent(Event):
    """An event of a type that this version does not know, with its data as they came."""


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
