"""Events as objects: from the bytes of a webhook, once it is verified, and from the feed."""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError, WrapValidator

from booking_core.wire.limits import API_VERSION
from booking_sdk._parse import unreadable_of
from booking_sdk.models import EVENT_CLASSES, Event, UnknownEvent

if TYPE_CHECKING:
    from webhook_verify import HeadersLike, Verifier

_log = logging.getLogger("booking_sdk")

_DEFAULT_TOLERANCE_S = 300.0

_other_versions: set[str] = set()


def unwrap(
    payload: bytes | bytearray | memoryview | str,
    headers: "HeadersLike | str | None",
    secret: "str | Iterable[str] | Verifier",
    *,
    now: float | None = None,
    tolerance: float = _DEFAULT_TOLERANCE_S,
) -> Event:
    """The event of a delivery, if it is authentic and recent. For a receiver that calls no API and has no client.

    Args:
        payload: the body as it came in, not parsed.
        headers: the request's, as the framework gives them.
        secret: the endpoint's, or several during a rotation, or a `webhook_verify.Verifier` made once.
        now: when the delivery arrived, in unix seconds, for one that waited in a queue.
        tolerance: how many seconds old it may be. Not with a Verifier, which has its own.

    Raises:
        WebhookVerificationError: it is not to be trusted; `PayloadError` when it is, and cannot be read.
    """
    from webhook_verify import Verifier

    verifier = secret if isinstance(secret, Verifier) else Verifier(secret, tolerance=tolerance)
    _, event = verifier.unwrap(payload, headers, now=now, loads=_loaded)
    return cast("Event", event)


def parse_event_unverified(payload: bytes | bytearray | str | Mapping[str, Any]) -> Event:
    """An event whose origin is known otherwise: from a queue of your own, or a file.

    Raises:
        ValueError: it is no event.
    """
    try:
        return parsed(dict(payload) if isinstance(payload, Mapping) else json.loads(payload))
    except ValidationError as error:
        unreadable = unreadable_of(error)
    # Raised out here, so that what was read does not travel along.
    raise ValueError(f"this is no event: {unreadable.problem} at {unreadable.field_path or 'its start'}")


def _loaded(body: bytes) -> Event:
    return parsed(json.loads(body))


def parsed(fields: Any) -> Event:
    """An event from its JSON value, as the class of its type.

    Raises:
        ValueError: it is no event.
    """
    kind = fields.get("type") if isinstance(fields, dict) else None
    event = EVENT_CLASSES.get(str(kind), UnknownEvent).model_validate(fields)
    _notice_version(event.api_version)
    return event


def _by_type(fields: Any, _: Any) -> Event:
    return parsed(fields)


ANY_EVENT = WrapValidator(_by_type)
"""Makes of a field `Annotated[Event, ANY_EVENT]` one that reads each event as the class of its type."""


def _notice_version(version: str) -> None:
    """Says once that the service describes its resources by another version than this SDK was made for."""
    if version != API_VERSION and version not in _other_versions:
        _other_versions.add(version)
        _log.warning("events are of API version %s; this SDK knows %s", version, API_VERSION)
