"""Parses events: from verified webhook deliveries, and from the event feed."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import AfterValidator, ValidationError, WrapValidator

from booking_core.models.limits import API_VERSION
from booking_sdk._parse import first_problem
from booking_sdk._traceback_scrubbing import scrub_traceback
from booking_sdk.models import AnyEvent, Event, UnknownEvent

if TYPE_CHECKING:
    from webhook_verify import HeadersLike, Verifier

_log = logging.getLogger("booking_sdk")

_DEFAULT_TOLERANCE_S = 300.0

_other_versions: set[str] = set()


@scrub_traceback
def unwrap(
    payload: bytes | bytearray | memoryview | str,
    headers: "HeadersLike | str | None",
    secret: "str | Iterable[str] | Verifier",
    *,
    now: float | None = None,
    tolerance: float = _DEFAULT_TOLERANCE_S,
) -> AnyEvent:
    """Verify a webhook delivery and return its event. For receivers that call no API and need no client.

        event = unwrap(request.body, request.headers, secret)

    Args:
        payload: The raw request body.
        headers: The request headers, in the form that the web framework provides.
        secret: The secret of the endpoint, several secrets during a rotation, or a `webhook_verify.Verifier`.
        now: The time of arrival in unix seconds, for a delivery that waited in a queue.
        tolerance: The maximum age in seconds. Ignored with a Verifier, which has its own.

    Raises:
        WebhookVerificationError: The delivery is not authentic or not recent.
        PayloadError: The delivery is authentic, but its body is not an event.
    """
    from webhook_verify import Verifier

    verifier = secret if isinstance(secret, Verifier) else Verifier(secret, tolerance=tolerance)
    _, event = verifier.unwrap(payload, headers, now=now, loads=lambda body: parse_event(json.loads(body)))
    return cast("AnyEvent", event)


@scrub_traceback
def parse_event_unverified(payload: bytes | bytearray | str | Mapping[str, Any]) -> AnyEvent:
    """Parse an event from a trusted source, such as your own queue or a file. No signature is checked.

    Args:
        payload: The event as JSON text, or as a mapping.

    Raises:
        ValueError: The payload is not an event.
    """
    try:
        return parse_event(dict(payload) if isinstance(payload, Mapping) else json.loads(payload))
    except ValidationError as error:
        problem = first_problem(error)
    # Raised outside the except block: the validation error contains the payload and would become the context.
    raise ValueError(f"this is not an event: {problem.problem} at {problem.field_path or 'its start'}")


def parse_event(fields: Any) -> AnyEvent:
    """Return an event as the class of its type.

    Args:
        fields: The JSON object of the event.

    Raises:
        ValueError: The value is not an event.
    """
    return cast("AnyEvent", _with_version_check(Event.model_validate(fields)))


def parse_event_leniently(fields: Any, validate: Callable[[Any], Event]) -> Event:
    """Return an event of the feed. An event that cannot be parsed becomes an UnknownEvent with the fields as received.

    One event that this version cannot parse must not block the events after it.
    """
    try:
        return validate(fields)
    except ValidationError as error:
        problem = first_problem(error)
    received = fields if isinstance(fields, dict) else {"data": {"value": fields}}
    _log.error(
        "an event cannot be parsed and becomes an UnknownEvent: id %r, type %r, %s %s",
        received.get("id"),
        received.get("type"),
        problem.field_path or "it",
        problem.problem,
    )
    absent = {"id": "", "type": "", "created_at": _EPOCH, "api_version": API_VERSION, "sequence": 0, "data": {}}
    valid = {name: value for name, value in received.items() if isinstance(value, _KINDS.get(name, object))}
    try:
        valid["created_at"] = datetime.fromisoformat(str(received["created_at"])).astimezone(UTC)
    except (KeyError, TypeError, ValueError):
        valid.pop("created_at", None)
    return UnknownEvent.model_construct(**{**absent, **received, **absent, **valid})


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[str, type] = {"id": str, "type": str, "api_version": str, "sequence": int, "data": dict}


def _with_version_check(event: Event) -> Event:
    """Log once for each API version of an event that differs from this SDK's."""
    version = event.api_version
    if version != API_VERSION and version not in _other_versions:
        _other_versions.add(version)
        _log.warning("events have API version %s; this SDK was made for %s", version, API_VERSION)
    return event


FEED_EVENT: Any = Annotated[Event, AfterValidator(_with_version_check)]
"""The type of an event from `events.list` and `events.get`."""

LENIENT_FEED_EVENT: Any = Annotated[FEED_EVENT, WrapValidator(parse_event_leniently)]
"""The type of an event from `events.follow`."""
