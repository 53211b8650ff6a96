"""The types of method arguments."""

from typing import Literal, NotRequired, TypedDict

from booking_core.models.bookings import BookingStatus, PaymentMode, RefundMode
from booking_core.models.events import ResourceType
from booking_core.models.gift_cards import GiftCardStatus
from booking_core.models.sandbox import SandboxCard
from booking_core.models.webhooks import DeliveryStatus, RecoverableStatus, WantedStatus

Order = Literal["asc", "desc"]
BookingStatusParam = BookingStatus | Literal["pending", "confirmed", "cancelled"]
PaymentParam = PaymentMode | Literal["pay_on_site", "invoice", "external_paid"]
RefundParam = RefundMode | Literal["auto", "none"]
ResourceTypeParam = ResourceType | Literal["booking", "customer", "gift_card", "webhook"]
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
