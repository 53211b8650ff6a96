"""A sandbox: its clock, which its own keys move, and the mails that it has captured instead of sending them."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator

from booking_core.models import limits
from booking_core.models.base import Id, Open, Request, Resource
from booking_core.models.checkouts import Checkout
from booking_core.models.reasons import Fault
from booking_core.models.webhooks import Instant


class SandboxCard(StrEnum):
    """A test card, by the names of Stripe's test payment methods (docs.stripe.com/testing) where Stripe has one: it
    decides whether a payment and its refund succeed."""

    VISA = "pm_card_visa"
    """The payment and its refund succeed."""
    DECLINED = "pm_card_chargeDeclined"
    """The payment is declined, and the guest may try another card."""
    REFUND_FAIL = "pm_card_refundFail"
    """The payment succeeds; its refund is refused, and waits for staff."""
    PENDING_REFUND = "pm_card_pendingRefund"
    """The payment succeeds; its refund is accepted, and succeeds when it is looked up ten minutes later."""
    REFUND_UNAVAILABLE = "pm_card_refundUnavailable"
    """The payment succeeds; the gateway does not answer the first two attempts of its refund."""
    DASHBOARD_REFUND = "pm_card_dashboardRefund"
    """The payment succeeds, and all of it is refunded in Stripe's dashboard, outside of this service."""


class SandboxPaymentStatus(StrEnum):
    """The result of a payment by a test card."""

    SUCCEEDED = "succeeded"
    DECLINED = "declined"
    """The checkout still waits for a payment."""


SandboxPaymentStatusName = Literal["succeeded", "declined"]


class SandboxStatus(StrEnum):
    """The state of a sandbox's background work."""

    ADVANCING = "advancing"
    """Something is due at the present instant and not done yet."""
    READY = "ready"
    """Everything that is due is done."""


SandboxStatusName = Literal["advancing", "ready"]


class SandboxDue(Resource):
    """The numbers of due rows that are not processed yet, each at most 100."""

    bookings: int
    """Unpaid checkouts that have expired."""
    departures: int
    """Departures to be checked for their minimum, or with bookings to be cancelled."""
    payments: int
    """Payments to be looked up at the test gateway: before the end of their checkouts, and after it to be canceled."""
    refunds: int
    """Refunds to be sent to the test gateway, or to be looked up there."""
    mails: int
    """Mails to be written or captured."""
    deliveries: int
    """Webhook deliveries to be attempted, and attempts in flight."""


class SandboxClock(Resource):
    """The clock of a sandbox."""

    now: AwareDatetime
    """The present instant of the sandbox."""
    offset_seconds: int
    """The lead over the real time, in seconds."""
    status: Open[SandboxStatus, SandboxStatusName]
    due: SandboxDue


class SandboxClockAdvance(Request):
    """Body of `POST /api/v1/sandbox/clock/advance`: either field."""

    seconds: Annotated[int, Field(ge=1, le=limits.SANDBOX_CLOCK_AHEAD_S_MAX)] | None = None
    """The seconds to add to the clock."""
    to: Instant | None = None
    """The instant it moves to, in the future."""

    @model_validator(mode="after")
    def _has_one(self) -> "SandboxClockAdvance":
        if (self.seconds is None) == (self.to is None):
            raise Fault("exactly_one", "The body needs either seconds or to.")
        return self


class SandboxCheckoutPay(Request):
    """Body of `POST /api/v1/sandbox/checkouts/{id}/pay`; an empty body is fine."""

    payment_method: SandboxCard | None = None
    """The test card; default `pm_card_visa`."""


class SandboxPayment(Resource):
    """A payment by a test card."""

    status: Open[SandboxPaymentStatus, SandboxPaymentStatusName]
    error: str | None
    """The code of the declined card, such as `card_declined`."""
    checkout: Checkout
    """The checkout with its booking as it is now."""


class SandboxMail(Resource):
    """A mail that a sandbox has captured instead of sending it."""

    id: Id
    kind: str
    """The occasion of the mail, such as `booking_confirmation_mail`."""
    booking_id: Id | None
    """The booking that it is about, if it is about one."""
    recipient: str = Field(repr=False)
    subject: str
    text: str = Field(repr=False)
    """Its plain text, with the guest's link."""
    html: str | None = Field(repr=False)
    """Its HTML, if it has one."""
    created_at: AwareDatetime
