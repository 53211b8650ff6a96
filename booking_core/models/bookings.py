"""A booking, and the requests that create, change and cancel one."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, AwareDatetime, Field, model_validator

from booking_core.models import limits
from booking_core.models.base import (
    SINGLE_LINE,
    Count,
    Email,
    Id,
    InputId,
    LanguageTag,
    LineId,
    Name,
    Note,
    OfDeparture,
    Open,
    Request,
    Resource,
    ShortText,
    single_line,
)
from booking_core.models.errors import ErrorCode, ErrorCodeName
from booking_core.models.money import Money
from booking_core.models.reasons import ErrorReason, Fault
from booking_core.models.references import ExternalReference, Metadata, UniqueReference


class BookingStatus(StrEnum):
    """pending: created, awaiting payment; confirmed: active; cancelled: final."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"


BookingStatusName = Literal["pending", "confirmed", "cancelled"]


class BookingSource(StrEnum):
    """The channel through which a booking was made."""

    ONLINE = "online"
    ADMIN = "admin"
    AGENCY = "agency"
    AI = "ai"
    API = "api"


BookingSourceName = Literal["online", "admin", "agency", "ai", "api"]


class CancelReason(StrEnum):
    """Why a booking was cancelled, in `data.reason` of `booking.cancelled`."""

    ADMIN = "admin"
    CUSTOMER = "customer"
    MIN_PARTICIPANTS = "min_participants"
    ABANDONED = "abandoned"
    API = "api"
    AGENT = "agent"


CancelReasonName = Literal["admin", "customer", "min_participants", "abandoned", "api", "agent"]


class PaymentMode(StrEnum):
    """The payment of a booking made through the API; none of the values charges a card."""

    PAY_ON_SITE = "pay_on_site"
    INVOICE = "invoice"
    EXTERNAL_PAID = "external_paid"


class PaymentMethod(StrEnum):
    """Decision B7."""

    CARD = "card"
    PAY_ON_SITE = "pay_on_site"
    INVOICE = "invoice"
    EXTERNAL_PAID = "external_paid"
    GIFT_CARD = "gift_card"
    FREE = "free"


PaymentMethodName = Literal["card", "pay_on_site", "invoice", "external_paid", "gift_card", "free"]


class PaymentSource(StrEnum):
    """The holder of the money. The service refunds only `stripe`."""

    STRIPE = "stripe"
    ON_SITE = "on_site"
    EXTERNAL = "external"


PaymentSourceName = Literal["stripe", "on_site", "external"]


class PaymentStatus(StrEnum):
    """unpaid: to be paid on site or by invoice, and not or not wholly paid; pending: the card is to be charged; paid;
    partially_refunded and refunded: by the card gateway or by hand; failed: the card was never charged. Each
    change is in an event: of the creation, confirmation or cancellation it comes with, else `booking.refunded` or
    `booking.updated`."""

    UNPAID = "unpaid"
    PENDING = "pending"
    PAID = "paid"
    PARTIALLY_REFUNDED = "partially_refunded"
    REFUNDED = "refunded"
    FAILED = "failed"


PaymentStatusName = Literal["unpaid", "pending", "paid", "partially_refunded", "refunded", "failed"]

REFUNDABLE = frozenset({PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED})
"""The statuses that allow a refund by a cancellation: a part may have been refunded at the gateway before."""


class RefundMode(StrEnum):
    """auto: the organization's refund policy; none: the money is kept."""

    AUTO = "auto"
    NONE = "none"


class BookedExperience(Resource):
    id: Id
    title: str
    slug: str


class BookedDeparture(Resource):
    id: Id
    starts_at: AwareDatetime
    ends_at: AwareDatetime


class Guest(Resource):
    """The guest's details as captured at checkout; not the customer record."""

    name: str | None = Field(repr=False)
    email: str | None = Field(repr=False)
    phone: str | None = Field(repr=False)


class GuestLine(Resource):
    tier_id: str
    tier_label: str
    count: int
    unit_price: Money


class AddOnLine(Resource):
    id: str
    label: str
    count: int
    unit_price: Money


class Totals(Resource):
    """subtotal = guests + add-ons; total = subtotal - discount - gift card, never negative."""

    subtotal: Money
    discount: Money
    gift_card: Money
    total: Money


class Payment(Resource):
    method: Open[PaymentMethod, PaymentMethodName]
    source: Open[PaymentSource, PaymentSourceName]
    status: Open[PaymentStatus, PaymentStatusName]


class CancellationTerms(Resource):
    """The terms of a cancellation, and the amounts that it would return at the instant of the response or event."""

    allowed: bool
    """False for a booking that is cancelled."""
    refundable_amount: Money
    """The refund of a cancellation now with `refund: auto`: to the card, or by hand where staff recorded a payment."""
    gift_card_amount: Money
    """The amount that a cancellation returns to the gift card."""
    until: AwareDatetime
    """The last instant of a full refund."""
    late_percent: int
    """The percentage of the payment that is refunded after `until`."""
    guest_until: AwareDatetime | None = None
    """The instant before which the guest may cancel on the guest's page, by the organization's setting
    `guest_cancel_until_hours`; keys and staff may cancel at any time. null: guests do not cancel themselves, or the
    booking is cancelled. Absent in events of earlier releases."""


class Booking(Resource):
    """Seats of one departure, sold to one guest."""

    repr_paths = ("id", "booking_number", "status", "experience.title", "departure.starts_at", "totals.total")

    id: Id
    booking_number: int | None
    """Sequential within the organization; null for legacy rows."""
    status: Open[BookingStatus, BookingStatusName]
    source: Open[BookingSource, BookingSourceName] | None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    experience: BookedExperience
    departure: BookedDeparture
    customer: Guest
    guests: list[GuestLine]
    """May be empty for legacy rows."""
    add_ons: list[AddOnLine]
    totals: Totals
    payment: Payment
    note: str | None = Field(repr=False)
    checked_in_at: AwareDatetime | None = None
    """The time of the guests' check-in; absent in events of earlier releases."""
    no_show_at: AwareDatetime | None = None
    """The time when staff recorded that the guests did not come; absent in events of earlier releases."""
    external_reference: str | None = Field(default=None, repr=False)
    """The name of the booking in the system that made it; absent in events of earlier releases."""
    metadata: dict[str, str] = Field(default_factory=dict, repr=False)
    """Texts that the booking was created with, for the system that made it; absent in events of earlier releases."""
    locale: str | None = None
    """The guest's language, as it was given with the booking (BCP 47); null: the organization's. Absent in events of
    earlier releases."""
    cancellation: CancellationTerms | None = None
    """As of the instant of the response, or of the event's `created_at`; absent in events of earlier releases."""
    manage_url: str | None = Field(repr=False)
    """A secret link for the guest, only for keys holding `bookings:write`; null in every event and webhook."""


class ChangeSettlement(StrEnum):
    """price_kept: the price stays as sold; balance_due: the guest has more to pay; less_due: the guest has less to pay,
    and no refund; refunded: the payer or the gift card gets a refund; kept: by the policy or the request, the payment
    for guests who no longer come is not refunded; elsewhere: it was paid outside the service, and the difference is
    settled there."""

    PRICE_KEPT = "price_kept"
    BALANCE_DUE = "balance_due"
    LESS_DUE = "less_due"
    REFUNDED = "refunded"
    KEPT = "kept"
    ELSEWHERE = "elsewhere"


ChangeSettlementName = Literal["price_kept", "balance_due", "less_due", "refunded", "kept", "elsewhere"]


class BookingRefusal(Resource):
    """A reason to refuse a booking, or a change of a booking, with the code and the reason of its error."""

    code: Open[ErrorCode, ErrorCodeName]
    reason: ErrorReason | str | None
    """As in the `details` of an error."""
    field: str | None
    """The field of the request, if the reason is about one."""
    message: str
    """English text; do not branch on it."""
    seats_available: int | None
    """With `insufficient_capacity`."""


class ChangeMoney(Resource):
    """The effect of a change on the money of a booking."""

    settlement: Open[ChangeSettlement, ChangeSettlementName]
    price_difference: Money
    """The new price of the booking less the former one, after the discount."""
    list_price: Money | None
    """The price of the same lines by today's prices of the departure, without a discount; null where the departure does
    not offer one of them."""
    refund: Money
    """Goes back to the payer: to the card, or by hand where staff recorded a payment."""
    gift_card_refund: Money
    """Goes back to the gift card."""
    kept: Money
    """Was paid for guests who no longer come, and is kept."""
    balance_due: Money
    """The amount to pay after the change."""


class BookingChange(Resource):
    """A booking after its change, with the effect on its money. A preview has the same shape, and changes nothing."""

    allowed: bool
    """False only in a preview: the change would be refused."""
    refusals: list[BookingRefusal]
    """In a preview, each reason to refuse the change, in the order of the checks: the change answers the first."""
    booking: Booking
    """The booking after the change; the booking as it is where the change would be refused."""
    seats: int
    """The seats of the booking."""
    money: ChangeMoney | None
    """Null where the change would be refused."""


class GuestLineInput(Request):
    tier_id: LineId
    count: Count


class AddOnInput(Request):
    id: LineId
    count: Count


class GuestInput(Request):
    name: Name = Field(repr=False)
    email: Email = Field(repr=False)
    phone: ShortText | None = Field(default=None, repr=False)


class BookingOrder(OfDeparture):
    """The fields of a new booking that decide about its price and its acceptance."""

    guests: Annotated[list[GuestLineInput], Field(min_length=1, max_length=limits.LINES_MAX)]
    """Lines may use different tiers; the same tier twice is summed for seats and kept as sent."""
    add_ons: Annotated[list[AddOnInput], Field(max_length=limits.LINES_MAX)] | None = None
    """Needs the Add-ons app."""
    hold_id: InputId | None = None
    """A hold of this departure, whose seats the booking takes over. Seats beyond it have to be available."""
    external_reference: ExternalReference | None = Field(default=None, repr=False)
    """The name of the booking in your system, such as the number of an order. Bookings are found by it."""
    external_reference_unique: UniqueReference | None = None
    """True to refuse the booking if the organization has one with this `external_reference`, cancelled or not."""


class BookingCreate(BookingOrder):
    """Body of `POST /api/v1/bookings`: counts, never amounts."""

    departure_id: Annotated[InputId, Field(validation_alias=AliasChoices("experience_date_id", "departure_id"))]
    """The departure's id from availability. `departure_id` is another name of this field: send exactly one of them."""
    customer: GuestInput
    note: Note | None = Field(default=None, repr=False)
    """Shown to staff."""
    payment: PaymentMode
    """pay_on_site: the guest pays on arrival; invoice: staff sends an invoice; external_paid: paid elsewhere."""
    send_confirmation_email: bool | None = None
    """Default true."""
    notify_staff: bool | None = None
    """Default true; the organization's own settings still apply."""
    locale: LanguageTag | None = None
    """The guest's language for mails and the guest's page, a BCP 47 tag such as `de` or `fr-CH`; by default the
    organization's. A language without a translation is the same as none."""
    metadata: Metadata | None = Field(default=None, repr=False)
    """Up to 50 texts by name, at most 8,000 characters in all; shown on the booking and in its events."""


class BookingQuoteRequest(BookingOrder):
    """Body of `POST /api/v1/bookings/quote`: the body of a booking; only the fields that decide are needed. The other
    fields of a booking are checked if they are sent, and change nothing."""

    customer: GuestInput | None = None
    payment: PaymentMode | None = None


class BookingQuote(Resource):
    """The price of a booking at the instant of the response, and each reason why it would be refused."""

    allowed: bool
    """True if there is no refusal."""
    refusals: list[BookingRefusal]
    """Each reason, in the order of a booking's checks: it would be refused with the first."""
    booking_id: Id | None = None
    """The booking that was made with the `Idempotency-Key` of the quote; null without one. The quote is allowed then,
    because `POST /bookings` with that key and the same body returns this booking."""
    experience: BookedExperience
    departure: BookedDeparture
    booking_closes_at: AwareDatetime
    seats: int
    """The seats that the guests need, of those lines that are offered."""
    seats_available: int
    """The seats available for this booking, including the seats of its hold."""
    guests: list[GuestLine]
    add_ons: list[AddOnLine]
    totals: Totals | None
    """null if a line is not offered."""


CancellationNote = Annotated[
    str,
    Field(max_length=limits.CANCELLATION_REASON_LENGTH_MAX, json_schema_extra=SINGLE_LINE),
    AfterValidator(single_line),
]


class BookingCancel(Request):
    """Body of `POST /api/v1/bookings/{id}/cancel`; an empty body is fine."""

    refund: RefundMode | None = None
    """Default auto. Bookings without a card payment are unaffected either way."""
    reason: CancellationNote | None = None
    """Stored for staff."""


class BookingAttendance(Request):
    """Body of `POST /api/v1/bookings/{id}/check-in` and `/no-show`; an empty body is fine."""

    undo: bool | None = None
    """True to take the check-in or the no-show back."""


class BookingGuestChange(Request):
    """Body of `POST /api/v1/bookings/{id}/guest`: at least one of the fields. The others stay as they are."""

    name: Name | None = Field(default=None, repr=False)
    email: Email | None = Field(default=None, repr=False)
    phone: ShortText | None = Field(default=None, repr=False)
    """An empty text removes it."""
    note: Note | None = Field(default=None, repr=False)
    """Shown to staff. An empty text removes it."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not any(value is not None for value in dict(self).values()):
            raise Fault("at_least_one", "The body needs name, email, phone or note.")
        return self


class BookingReschedule(Request):
    """Body of `POST /api/v1/bookings/{id}/reschedule` and of its preview."""

    departure_id: InputId
    """The departure to move to, from availability; it may be one of another experience."""


class BookingPartyChange(Request):
    """Body of `POST /api/v1/bookings/{id}/party` and of its preview: the whole party, with counts and never amounts."""

    guests: Annotated[list[GuestLineInput], Field(min_length=1, max_length=limits.LINES_MAX)]
    """Every guest who comes, and not only those who join."""
    add_ons: Annotated[list[AddOnInput], Field(max_length=limits.LINES_MAX)] | None = None
    """Every add-on; without it they stay as they are."""
    refund: RefundMode | None = None
    """Default auto: the payment for guests who leave is refunded by the terms of a cancellation. `none` keeps it."""
