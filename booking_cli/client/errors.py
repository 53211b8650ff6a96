"""Turn the SDK's errors into errors of a command."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from booking_cli.framework.errors import LISTS, CliError, retry_hint
from booking_cli.framework.exit_codes import BY_CODE, ExitCode, of_status

if TYPE_CHECKING:
    from booking_sdk import APIError, APIStatusError, BookingError

HINTS: Mapping[str, str] = {
    "api_key_invalid": "run booking login with a key of this service; booking config get prints the key in use",
    "api_key_revoked": "the key was revoked: run booking login with another key",
    "api_key_expired": "the key has expired: run booking login with another key",
    "app_not_enabled": "booking orgs set SLUG api_app=on",
    "plan_upgrade_required": "booking orgs set SLUG plan_api=on",
    "idempotency_in_progress": "run the same command with the same --idempotency-key to get the first result",
    "idempotency_key_reused": "this key was used for another request: leave out --idempotency-key",
}
"""The next step by error code of the API."""

_TO_THIS_MACHINE = "webhooks to this machine: booking webhooks listen --forward-to URL"
_BY_REASON: Mapping[str, str] = {
    "not_https": _TO_THIS_MACHINE,
    "address_not_public": _TO_THIS_MACHINE,
    "delivery_not_dead": "booking webhooks redeliver ENDPOINT EVENT sends the event of any delivery now",
    "too_many_secrets": "--overlap 0 ends all former secrets now",
}
_BY_FIELD: Mapping[str, str] = {
    **dict.fromkeys(("departure_id", "experience_date_id"), LISTS["departure"]),
    **dict.fromkeys(("type", "event_type", "event_types"), "booking help event-types lists the event types"),
}
"""The next step by reason and by field of a detail. A number after the field does not count."""

NOT_THE_API = "check that the base URL is the URL of the service: booking config get"

_PATHS: tuple[tuple[str, str, str], ...] = (
    ("POST", r"(bookings|bookings/quote|checkouts|holds)", "departure"),
    (".*", r"holds/.*", "hold"),
    (".*", r"checkouts/.*", "checkout"),
    (".*", r"bookings/.*", "booking"),
    (".*", r"departures/.*", "departure"),
    (".*", r"events/.*", "event"),
    (".*", r"webhooks/[^/]+/deliveries/.*", "delivery"),
    (".*", r"webhooks/.*", "endpoint"),
)
"""The noun of a resource that was not found, by method and path of the request."""


def to_cli_error(error: "BookingError", not_found_hint: str | None = None) -> CliError:
    """Return the error to report.

    Args:
        not_found_hint: the hint for the code `not_found`.
    """
    from booking_sdk import (
        APIConnectionError,
        APIError,
        APIStatusError,
        APITimeoutError,
        ConfigurationError,
        ResponseTooLargeError,
    )

    if isinstance(error, ConfigurationError):
        return CliError(f"{error}.", code="bad_setting")
    if isinstance(error, APIStatusError):
        return _from_status_error(error, not_found_hint)
    if isinstance(error, APIConnectionError):
        code = "timeout" if isinstance(error, APITimeoutError) else "network_error"
        next_step = _retry_hint(error) or _connection_hint(error)
        return CliError(_message_without_key(error), ExitCode.NETWORK, code=code, hint=next_step)
    hint = _retry_hint(error) if isinstance(error, APIError) else None
    code = "answer_too_large" if isinstance(error, ResponseTooLargeError) else "unreadable_answer"
    return CliError(f"{error}.", ExitCode.SERVER, code=code, hint=hint)


def _from_status_error(error: "APIStatusError", not_found_hint: str | None) -> CliError:
    return CliError(
        "The service has no such event type." if _is_event_type_error(error) else error.message,
        BY_CODE.get(error.code or "", of_status(error.status_code)),
        code=error.code or f"http_{error.status_code}",
        hint=_retry_hint(error) or _hint(error) or (not_found_hint if error.code == "not_found" else None),
        details=[detail.to_json() for detail in error.details],
        status=error.status_code,
        request_id=error.request_id,
    )


def _is_event_type_error(error: "APIStatusError") -> bool:
    """Return whether an event type was refused. The service's message lists every type."""
    return any(detail.reason == "unknown_value" and _first(detail.field) == "event_types" for detail in error.details)


def _first(field: str | None) -> str:
    return (field or "").partition(".")[0]


def _hint(error: "APIStatusError") -> str | None:
    from booking_sdk import InsufficientCapacityError, InsufficientScopeError

    if isinstance(error, InsufficientScopeError):
        return f"the key needs the scope {error.required_scope}: booking keys create --scope {error.required_scope}"
    if isinstance(error, InsufficientCapacityError):
        return f"seats left: {error.seats_available}; find other departures with booking availability"
    if error.status_code == 429 and error.retry_after is not None:
        return f"try again in {error.retry_after:.0f} s"
    for detail in error.details:
        if hint := _BY_REASON.get(detail.reason) or _BY_FIELD.get(_first(detail.field)):
            return hint
    return HINTS.get(error.code or "")


def _retry_hint(error: "APIError") -> str | None:
    """Return the hint for a change that may have been made, if the command can be run again with its key."""
    if not (error.maybe_executed and error.idempotency_key):
        return None
    return retry_hint(error.idempotency_key)


def _message_without_key(error: "APIError") -> str:
    """Return the message without the idempotency key, which the hint holds."""
    message, _, _ = str(error).partition(", which the same call")
    return f"{message}."


def _connection_hint(error: "APIError") -> str:
    if error.maybe_executed:
        return "check whether the change was made before you run the command again"
    return "check that the service is running; booking config get prints the base URL in use"


def not_found_hint(method: str, path: str) -> str | None:
    """Return the hint for a request with the response 404; the path begins below /api/v1."""
    for verb, pattern, noun in _PATHS:
        if re.fullmatch(verb, method) and re.fullmatch(pattern, path):
            also = f"; {LISTS['endpoint']}" if noun == "delivery" else ""
            return LISTS[noun] + also
    return _hint_of_resource(path)


def _hint_of_resource(path: str) -> str | None:
    """Return the hint for `RESOURCE/ID`, if the SDK has the resource: its command has the same name."""
    from booking_sdk import BookingClient

    name, _, row_id = path.partition("/")
    if not row_id or not hasattr(BookingClient, name.replace("-", "_")):
        return None
    return f"booking {name} list lists the {name.replace('-', ' ')}"
