"""The fields of each command's output, as `--fields` names them.

They are known before a command runs, so that a misspelt field is refused before anything is changed, and also for an
empty list. A command that reads also accepts a field of the response that is newer than this release.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

WILDCARD = ".*"
"""The end of a path to an object whose fields vary."""

_SETTINGS = (
    *("api_app", "plan_api", "add_ons_app", "hours_before_booking_closes", "pending_minutes"),
    *("refund_full_until_hours", "refund_late_percent", "notify_staff", "staff_email"),
    *("on_site_fee_percent", "cancel_under_minimum", "language", "logo_url", "brand_color", "website"),
    *("contact_email", "contact_phone", "reply_to_email", "guest_moves_until_hours"),
)
_MODELS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "booking": (
        *("bookings", "Booking"),
        ("refund.*", "dry_run", "request.*", "previous_departure.*", "seats_available", "metadata.*", "change.*"),
    ),
    "staff_departure": (
        *("departures", "Departure"),
        ("experience.*", "seats_sold", "bookings.*", "is_being_cancelled"),
    ),
    "departure": ("departures", "Departure", ("experience", "experience.title")),
    "quote": ("bookings", "BookingQuote", ()),
    "seat_hold": ("holds", "Hold", ()),
    "endpoint": ("webhooks", "WebhookEndpoint", ()),
    "new_endpoint": ("webhooks", "WebhookEndpointWithSecret", ("secret_file",)),
    "delivery": ("webhooks", "Delivery", ()),
    "recovered": ("webhooks", "Recovered", ("dead", "failed", "dry_run")),
    "event": ("events", "Event", ("data.*",)),
    "gift_card_transaction": ("gift_cards", "GiftCardTransaction", ()),
    "sandbox_clock": ("sandbox", "SandboxClock", ()),
    "sandbox_payment": ("sandbox", "SandboxPayment", ()),
    "sandbox_mail": ("sandbox", "SandboxMail", ()),
    "new_gift_card": ("gift_cards", "GiftCard", ("secret_file",)),
    "key": ("organizations", "ApiKey", ("status", "revoked_at")),
    "new_key": ("organizations", "ApiKey", ("status", "revoked_at", "key", "secret_file")),
    "organization": ("organizations", "Organization", ("cell",)),
    "organization_settings": ("organizations", "Organization", _SETTINGS),
}
"""The API's models with their module, and the fields that the command adds.

Any other shape is a model by its name: `gift_card` is `GiftCard` of the module `gift_cards`.
"""
_PLAIN: Mapping[str, tuple[str, ...]] = {
    "audit_entry": (
        *("id", "at", "actor_kind", "actor", "action", "organization_id", "organization", "objects.*", "summary"),
    ),
    "backup": ("file", "bytes", "revision", "secret_key_id"),
    "deleted": ("id", "deleted"),
    "erasure": (*("id", "status", "requested_at", "finished_at", "bookings", "last_booking_ends_at", "dry_run"),),
    "hold": ("id", "departure_id", "seats", "expires_at"),
    "import": (
        *("organization", "dry_run", "experiences.*", "departures.*", "customers.*", "gift_cards.*", "notes"),
        "cancelled_departures",
    ),
    "cell": ("name", "state", "organizations", "location"),
    "login": ("profile", "base_url", "organization", "key", "scopes", "kept_in"),
    "mail": (
        *("id", "organization", "kind", "booking_id", "recipient", "status", "attempt_count", "last_error"),
        *("created_at", "sent_at", "next_attempt_at", "effect_key", "message_id"),
    ),
    "move": ("slug", "cell", "rows", "refused_s"),
    "notices": ("slug", "notify_staff", "staff_email"),
    "profile": ("profile", "is_current", "base_url", "organization", "key", "kept_in"),
    "purged": (
        *("deliveries", "deleted_endpoints", "mails", "effects", "holds", "stored_answers", "events"),
        *("total", "dry_run"),
    ),
    "refund": (
        *("id", "organization", "booking_id", "booking_number", "customer.*", "status", "amount.*", "paid.*"),
        *("settled_amount.*", "reason", "summary", "waits_for_a_person", "payment_intent", "provider_refund_id"),
        *("attempt_count", "reopened_count", "first_sent_at", "next_attempt_at", "settled_at", "note"),
        *("created_at", "updated_at"),
    ),
    "resealed": ("kind", "resealed", "lost"),
    "restored": ("file", "bytes", "revision", "database_revision", "findings"),
    "revision": ("cell", "previous", "revision"),
    "stripe_account": ("id", "organization", "api_key", "webhook_secret", "publishable_key", "webhook_url"),
    "stripe_payment": (
        *("booking_id", "booking_number", "booking_status", "payment_status", "payment_intent", "status", "reason"),
        *("amount.*", "refunded_elsewhere.*", "dispute.*", "updated_at"),
    ),
}


@cache
def paths(shape: str) -> tuple[str, ...]:
    """Return every path of a shape, an object before its fields."""
    if shape in _PLAIN:
        return _PLAIN[shape]
    from importlib import import_module

    module, name, added = _MODELS.get(shape) or (f"{shape}s", shape.title().replace("_", ""), ())
    model = getattr(import_module(f"booking_core.models.{module}"), name)
    return (*_model_paths(model), *added)


def has_field(shape: str, path: str) -> bool:
    """Return whether a shape has a field at that path."""
    return any(path == each or (each.endswith(WILDCARD) and _is_below(path, each)) for each in paths(shape))


def _is_below(path: str, wildcard: str) -> bool:
    parent = wildcard.removesuffix(WILDCARD)
    return path == parent or path.startswith(f"{parent}.")


def _model_paths(model: Any, prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        inner = _model_in(field.annotation)
        if inner is not None:
            yield from _model_paths(inner, f"{prefix}{name}.")


def _model_in(annotation: Any) -> Any:
    """Return the model of a field, also of an optional one; None for a list."""
    candidates = get_args(annotation) or (annotation,)
    if getattr(annotation, "__origin__", None) is list:
        return None
    return next((each for each in candidates if hasattr(each, "model_fields")), None)
