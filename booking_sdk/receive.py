"""Events as objects: from the bytes of a webhook, once it is verified, and from the feed."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import AfterValidator, ValidationError, WrapValidator

from booking_core.models.limits import API_VERSION
from booking_sdk._discreet import discreet
from booking_sdk._parse import unreadable_of
from booking_sdk.models import AnyEvent, Event, UnknownEvent

if TYPE_CHECKING:
    from webhook_verify import HeadersLike, Verifier

_log = logging.getLogger("booking_sdk")

_DEFAULT_TOLERANCE_S = 300.0

_other_versions: set[str] = set()


@discreet
def unwrap(
    payload: bytes | bytearray | memoryview | str,
    headers: "HeadersLike | str | None",
    secret: "str | Iterable[str] | Verifier",
    *,
    now: float | None = None,
    tolerance: float = _DEFAULT_TOLERANCE_S,
) -> AnyEvent:
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
    return cast("AnyEvent", event)


@discreet
def parse_event_unverified(payload: bytes | bytearray | str | Mapping[str, Any]) -> AnyEvent:
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


def _loaded(body: bytes) -> AnyEvent:
    return parsed(json.loads(body))


def parsed(fields: Any) -> AnyEvent:
    """An event from its JSON value, as the class of its type.

    Raises:
        ValueError: it is no event.
    """
    event = cast("AnyEvent", Event.model_validate(fields))
    notice_version(event.api_version)
    return event


def readable(fields: Any, read: Callable[[Any], Event]) -> Event:
    """Return an event of the feed; one that cannot be read as an UnknownEvent with what came of it.

    One event that this version cannot read must not hold up those behind it.
    """
    try:
        return read(fields)
    except ValidationError as error:
        problem = unreadable_of(error)
    came = fields if isinstance(fields, dict) else {"data": {"value": fields}}
    _log.error(
        "an event cannot be read, and is given as it came: id %r, type %r, %s at %s",
        came.get("id"),
        came.get("type"),
        problem.problem,
        problem.field_path or "its start",
    )
    absent = {"id": "", "type": "", "created_at": _EPOCH, "api_version": API_VERSION, "sequence": 0, "data": {}}
    known = {name: value for name, value in came.items() if isinstance(value, _KINDS.get(name, object))}
    try:
        known["created_at"] = datetime.fromisoformat(str(came["created_at"])).astimezone(UTC)
    except (KeyError, TypeError, ValueError):
        known.pop("created_at", None)
    return UnknownEvent.model_construct(**{**absent, **came, **absent, **known})


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[str, type] = {"id": str, "type": str, "api_version": str, "sequence": int, "data": dict}


def _noticed(event: Event) -> Event:
    notice_version(event.api_version)
    return event


NOTICED_EVENT: Any = Annotated[Event, AfterValidator(_noticed)]
"""An event of the feed."""

READABLE_EVENT: Any = Annotated[NOTICED_EVENT, WrapValidator(readable)]
"""An event, as a follower reads it."""


def notice_version(version: str) -> None:
    """Says once that the service describes its resources by another version than this SDK was made for."""
    if version != API_VERSION and version not in _other_versions:
        _other_versions.add(version)
        _log.warning("events are of API version %s; this SDK knows %s", version, API_VERSION)
