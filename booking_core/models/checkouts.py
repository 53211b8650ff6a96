"""Checkouts: a booking at the storefront, and the payment at Stripe that it waits for."""

from typing import Annotated

from pydantic import AwareDatetime, Field

from booking_core.models import limits
from booking_core.models.base import Id, InputId, LanguageTag, Note, OfDeparture, Resource, ShortText
from booking_core.models.bookings import AddOnInput, Booking, GuestInput, GuestLineInput
from booking_core.models.money import Money
from booking_core.models.references import ExternalReference, Metadata, UniqueReference


class CheckoutPayment(Resource):
    """The payment that a checkout waits for, for Stripe.js in the guest's browser."""

    intent_id: str | None
    """Stripe's id of the PaymentIntent; null while Stripe has not answered."""
    client_secret: str | None = Field(repr=False)
    """Confirms the payment in the browser of this guest; never store or log it."""
    publishable_key: str | None
    """The key of the operator's Stripe account for Stripe.js; null where the operator has not given it."""
    amount: Money
    """The amount that is charged: the total of the booking."""
    expires_at: AwareDatetime | None
    """The end of the checkout: a booking without a payment is then cancelled, and its seats are for sale again."""


class Checkout(Resource):
    """A booking of the storefront with its payment by card."""

    id: Id
    """The id of the booking."""
    booking: Booking
    payment: CheckoutPayment | None
    """Null when nothing has to be paid, since a gift card pays everything or the booking is free."""


class CheckoutCreate(OfDeparture):
    """Body of `POST /api/v1/checkouts`: counts, never amounts."""

    guests: Annotated[list[GuestLineInput], Field(min_length=1, max_length=limits.LINES_MAX)]
    """Lines may use different tiers; the same tier twice is summed for seats and kept as sent."""
    add_ons: Annotated[list[AddOnInput], Field(max_length=limits.LINES_MAX)] | None = None
    """Needs the Add-ons app."""
    customer: GuestInput
    note: Note | None = Field(default=None, repr=False)
    """Shown to staff."""
    gift_card_code: ShortText | None = Field(default=None, repr=False)
    """A gift card that pays for the booking, or for a part of it."""
    hold_id: InputId | None = None
    """A hold whose seats the checkout takes over; it ends with the checkout."""
    external_reference: ExternalReference | None = Field(default=None, repr=False)
    """The name of the booking in your system, such as the number of an order. Bookings are found by it."""
    external_reference_unique: UniqueReference | None = None
    """True to refuse the checkout if the organization has a booking with this `external_reference`, cancelled or
    not."""
    locale: LanguageTag | None = None
    """The guest's language for mails and the guest's page, a BCP 47 tag such as `de` or `fr-CH`; by default the
    organization's. A language without a translation is the same as none."""
    metadata: Metadata | None = Field(default=None, repr=False)
    """Up to 50 texts by name, at most 8,000 characters in all; shown on the booking and in its events."""
