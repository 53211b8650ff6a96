# Generated from booking_sdk/resources/checkouts.py by `make sync-client`. Do not edit.
"""Checkouts: create, get."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from booking_core.models.bookings import AddOnInput, GuestInput, GuestLineInput
from booking_core.models.checkouts import Checkout
from booking_sdk._sync._resource import APIResource
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.params import AddOnParam, GuestLineParam, GuestParam
from booking_sdk.request import (
    basket_fields,
    body_fields,
    one_departure_id,
    path_segment,
    without_none,
)


@scrub_tracebacks
class Checkouts(APIResource):
    """Bookings of a shop whose guests pay by card at once. Needs the scope `checkouts:write`."""

    def create(
        self,
        *,
        departure_id: str | UUID | None = None,
        experience_date_id: str | UUID | None = None,
        guests: Sequence[GuestLineInput | GuestLineParam],
        customer: GuestInput | GuestParam,
        add_ons: Sequence[AddOnInput | AddOnParam] | None = None,
        note: str | None = None,
        gift_card_code: str | None = None,
        hold_id: str | UUID | None = None,
        locale: str | None = None,
        external_reference: str | None = None,
        external_reference_unique: bool = False,
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Checkout:
        """Book seats that wait for a payment by card, and return the fields that Stripe.js needs to confirm it.

            checkout = client.checkouts.create(
                departure_id=departure.id,
                guests=[{"tier_id": "adult", "count": 2}],
                customer={"name": "Ada Lovelace", "email": "ada@example.com"},
                idempotency_key=idempotency_key("basket", basket.id),
            )
            return {"client_secret": checkout.payment.client_secret}  # to the browser of this guest, and nowhere else

        If nothing is to be paid, `payment` is None and the booking is confirmed. Repeated with the same key, the call
        makes no second booking and no second payment.

        Args:
            departure_id: The id of the departure, from `availability`.
            experience_date_id: Another name of `departure_id`; a call has one of the two.
            guests: The number of guests per price tier.
            customer: The contact details of the guest.
            add_ons: The number of each add-on.
            note: A note for the staff.
            gift_card_code: A gift card that pays for the booking, or for a part of it.
            hold_id: A hold whose seats the checkout takes over.
            locale: The guest's language for mails and the guest's page, such as `de` or `fr-CH`.
            external_reference: The name of the booking in your system, to find it by.
            external_reference_unique: True to refuse the checkout if a booking has this reference.
            metadata: Up to 50 texts of yours by name. They come back with the booking and in its events.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            InsufficientCapacityError: Not enough seats; `seats_available` is the number that is left.
            ConflictError: The departure cannot be booked, or cards cannot be charged; `details` names the reason.
            NotFoundError: No departure, or no hold, has this id.
            UnprocessableEntityError: The experience does not have this tier or add-on, or the gift card does not pay.
            ServerError: Stripe does not answer; repeat the call with the error's `idempotency_key`.
        """
        return self._post(
            Checkout,
            "checkouts",
            body=without_none(
                **basket_fields(one_departure_id(departure_id, experience_date_id), guests, add_ons, hold_id),
                customer=body_fields(customer),
                note=note,
                gift_card_code=gift_card_code,
                locale=locale,
                external_reference=external_reference,
                external_reference_unique=external_reference_unique or None,
                metadata=None if metadata is None else dict(metadata),
            ),
            key=idempotency_key,
            options=options,
        )

    def get(self, checkout_id: str | UUID, *, options: RequestOptions | None = None) -> Checkout:
        """Return a checkout with its booking as it is now.

        Args:
            checkout_id: The id of the checkout, which is also the id of its booking.
            options: Settings for this call.

        Raises:
            NotFoundError: No checkout has this id.
        """
        return self._get(Checkout, "checkouts", path_segment("checkout_id", checkout_id), options=options)
