"""The fields of each command's output, as `--fields` names them.

They are known before a command runs: a misspelt field is refused before anything is changed, and also for an empty
list. A command that reads also accepts a field of the response that is newer than this release.
"""

from collections.abc import Mapping

from booking_cli.framework import openapi_parts

WILDCARD = ".*"
"""The end of a path to an object whose fields vary."""

_OBJECTS: Mapping[str, str] = {
    "endpoint": "WebhookEndpoint",
    "key": "ApiKey",
    "new_endpoint": "WebhookEndpointWithSecret",
    "new_gift_card": "GiftCard",
    "new_key": "ApiKey",
    "organization_settings": "Organization",
    "quote": "BookingQuote",
    "staff_departure": "Departure",
}
"""The API's object of a shape. Any other shape has the object of its name: `gift_card` is `GiftCard`."""
_ADDED: Mapping[str, str] = {
    "audit_entry": "id at actor_kind actor action organization_id organization objects.* summary",
    "backup": "file bytes revision secret_key_id",
    "booking": "refund.* dry_run request.* previous_departure.* seats_available metadata.* change.* recorded.* left.*"
    " allowed refusals.* seats booking_closes_at",
    "cell": "name state organizations location",
    "deleted": "id deleted",
    "departure": "experience experience.title",
    "erasure": "id status requested_at finished_at bookings last_booking_ends_at dry_run",
    "event": "data.*",
    "import": "organization dry_run experiences.* departures.* customers.* gift_cards.* notes cancelled_departures",
    "key": "status revoked_at",
    "conformance": "status section check reason",
    "login": "profile base_url organization key scopes kept_in",
    "mail": "id organization kind booking_id recipient status attempt_count last_error created_at sent_at"
    " next_attempt_at effect_key message_id",
    "new_endpoint": "secret_file",
    "new_gift_card": "secret_file",
    "new_key": "status revoked_at key secret_file previous_key_expires_at",
    "notices": "slug notify_staff staff_email",
    "organization": "cell",
    "organization_settings": "api_app plan_api add_ons_app hours_before_booking_closes pending_minutes"
    " refund_full_until_hours refund_late_percent notify_staff staff_email on_site_fee_percent cancel_under_minimum"
    " availability_events language logo_url brand_color website contact_email contact_phone reply_to_email"
    " guest_cancel_until_hours guest_move_until_hours",
    "profile": "profile is_current base_url organization key kept_in",
    "purged": "deliveries deleted_endpoints mails effects holds stored_answers events total dry_run",
    "recovered": "dead failed dry_run",
    "refund": "id organization booking_id booking_number customer.* status amount.* paid.* settled_amount.* reason"
    " summary waits_for_a_person payment_intent provider_refund_id attempt_count reopened_count first_sent_at"
    " next_attempt_at settled_at note created_at updated_at recorded.* left.*",
    "resealed": "kind resealed lost",
    "restored": "file bytes revision database_revision findings",
    "revision": "cell previous revision",
    "staff_departure": "experience.* seats_sold bookings.* is_being_cancelled",
    "stripe_account": "id organization api_key webhook_secret publishable_key webhook_url",
    "stripe_payment": "booking_id booking_number booking_status payment_status payment_intent status reason amount.*"
    " refunded_elsewhere.* dispute.* updated_at",
}
"""The fields that a command adds to the API's object, or all fields of a shape without one."""


def paths(shape: str) -> tuple[str, ...]:
    """Return every path of a shape, an object before its fields."""
    fields = openapi_parts.load()["fields"].get(_OBJECTS.get(shape) or shape.title().replace("_", ""), "")
    return (*fields.split(), *_ADDED.get(shape, "").split())


def has_field(shape: str, path: str) -> bool:
    """Return whether a shape has a field at that path."""
    return any(
        path == field_path or (field_path.endswith(WILDCARD) and _is_below(path, field_path))
        for field_path in paths(shape)
    )


def _is_below(path: str, wildcard: str) -> bool:
    parent = wildcard.removesuffix(WILDCARD)
    return path == parent or path.startswith(f"{parent}.")
