"""The reasons of errors (decision R3), and the exception of a validator that gives one."""

from typing import Literal, cast

from pydantic_core import PydanticCustomError

ErrorReason = Literal[
    # Of a value in a body, a query or a header.
    "required",
    "wrong_type",
    "wrong_format",
    "unknown_value",
    "not_allowed",
    "out_of_range",
    "too_short",
    "too_long",
    "forbidden_character",
    "repeated",
    "exactly_one",
    "at_least_one",
    "needs_external_reference",
    "not_https",
    "invalid_cursor",
    "invalid_json",
    "wrong_signature",
    "invalid",
    # Of a value that is well-formed and cannot be fulfilled.
    "add_ons_app_disabled",
    "address_not_public",
    "amount_not_chargeable",
    "amount_overflow",
    "currency_mismatch",
    "discount_too_large",
    "event_about_endpoint",
    "gift_card_currency",
    "gift_card_empty",
    "gift_card_expired",
    "gift_card_inactive",
    "gift_card_unknown",
    "in_the_future",
    "in_the_past",
    "more_than_paid",
    "overpaid",
    "ping",
    "port_not_allowed",
    "too_far_ahead",
    "unknown_add_on",
    "unknown_event",
    "unknown_hold",
    "unknown_tier",
    "window_reversed",
    "window_too_wide",
    # Of the state of a departure, a hold, a booking, a customer.
    "departure_cancelled",
    "departure_closed",
    "departure_started",
    "seats_sold",
    "hold_booked",
    "hold_ended",
    "hold_expired",
    "hold_limit_reached",
    "hold_of_another_departure",
    "hold_released",
    "booking_cancelled",
    "booking_checked_in",
    "booking_confirmed",
    "booking_no_show",
    "booking_not_cancelled",
    "booking_pending",
    "booking_to_come",
    "external_reference_taken",
    "manifest_too_large",
    "cancellation_not_allowed",
    "cancellation_too_late",
    "moves_not_allowed",
    "moves_too_late",
    "price_differs",
    "customer_anonymized",
    "email_taken",
    # Of a payment, a refund, a gift card.
    "card_payments_not_configured",
    "checkout_expired",
    "gift_card_code_taken",
    "no_payment_intent",
    "not_in_review",
    "not_paid_by_card",
    "nothing_received",
    "paid_already",
    "paid_by_card",
    "paid_by_hand",
    "payment_pending",
    "payment_refused",
    "payment_voided",
    "refund_exists",
    "refund_open",
    "refund_settled",
    "refund_under_way",
    # Of an endpoint, a delivery, a mail.
    "delivery_not_dead",
    "endpoint_limit_reached",
    "endpoint_not_enabled",
    "too_many_secrets",
    "mail_queued",
    "mail_sent",
    "mail_too_old",
    "mail_unwanted",
    # Of an organization, a key.
    "ambiguous_prefix",
    "is_a_sandbox",
    "key_expired",
    "key_limit_reached",
    "key_revoked",
    "not_a_sandbox",
    "secret_key_missing",
    "slug_taken",
]
"""The reasons of errors: later releases add to them, and change the meaning of none."""


class Fault(PydanticCustomError):
    """A value that a validator refuses. Pydantic reports it with the reason as its type."""

    def __new__(cls, reason: ErrorReason, message: str) -> "Fault":
        return super().__new__(cls, reason, "{message}", {"message": message})

    @property
    def reason(self) -> ErrorReason:
        """Return the reason, for `details` of an error."""
        return cast("ErrorReason", self.type)
