"""Tools to test a receiver: deliveries as the service sends them, and requests that must be rejected.

A receiver in production does not need this module. `vectors.json`, next to this file, contains the same cases as data,
for receivers in any language; the README describes its format.
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from webhook_verify.signature import (
    DELIVERY_ID_HEADER,
    EVENT_ID_HEADER,
    EVENT_TYPE_HEADER,
    SIGNATURE_HEADER,
    checked_secrets,
    payload_bytes,
    sign,
    standard_headers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Event = Union[Mapping[str, Any], bytes, str]
    Request = tuple[dict[str, str], bytes]

USER_AGENT = "Svc-Webhooks/1.0"


def make_event(event_type: str = "ping", **overrides: Any) -> dict[str, Any]:
    """Return the envelope of an event, with a new id unless `id=` is given. `data=` replaces the ping's message."""
    event = {
        "id": str(uuid.uuid4()),
        "type": event_type,
        "created_at": "2026-06-01T09:30:00+02:00",
        "api_version": "2026-06-01",
        "data": {"object": {"message": "This is a test.", "endpoint_id": str(uuid.uuid4())}},
    }
    return {**event, **overrides}


def signed_request(
    event: Event, secret: str | Iterable[str], *, timestamp: int | None = None, delivery_id: str | None = None
) -> Request:
    """Return the headers and the body of a delivery of an event. `timestamp` defaults to now.

    An event given as bytes or str is sent unchanged as the body. Several secrets sign as during a rotation.
    """
    body = payload_bytes(event) if isinstance(event, (bytes, str)) else _rendered(event)
    signed_at = int(time.time()) if timestamp is None else timestamp
    secrets = checked_secrets(secret)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        SIGNATURE_HEADER: sign(body, secrets, timestamp=signed_at),
        DELIVERY_ID_HEADER: delivery_id or str(uuid.uuid4()),
    }
    headers.update(_event_headers(body, secrets, signed_at))
    return headers, body


def tampered(
    event: Event, secret: str | Iterable[str], *, timestamp: int | None = None, delivery_id: str | None = None
) -> Request:
    """Return a delivery whose body was changed after signing. Expected reason: `signature_mismatch`."""
    headers, body = signed_request(event, secret, timestamp=timestamp, delivery_id=delivery_id)
    return headers, body[:-1] + b',"tampered":true}' if body.endswith(b"}") else body + b" "


def stale(event: Event, secret: str | Iterable[str], *, age: int = 3600, delivery_id: str | None = None) -> Request:
    """Return a delivery signed `age` seconds ago. Expected reason: `timestamp_too_old`, or _new for a negative age."""
    return signed_request(event, secret, timestamp=int(time.time()) - age, delivery_id=delivery_id)


def load_vectors() -> list[dict[str, Any]]:
    """Return the cases of `vectors.json`."""
    document = json.loads(Path(__file__).with_name("vectors.json").read_text(encoding="utf-8"))
    vectors: list[dict[str, Any]] = document["vectors"]
    return vectors


def _rendered(event: Mapping[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()


def _event_headers(body: bytes, secrets: list[str], signed_at: int) -> dict[str, str]:
    """Return the headers with id and type of the event; no headers for a body that is not an event."""
    event_id, event_type = _identity(body)
    if not (isinstance(event_id, str) and isinstance(event_type, str)):
        return {}
    headers = {EVENT_ID_HEADER: event_id, EVENT_TYPE_HEADER: event_type}
    # A made-up secret that is not base64 can sign only Svc-Signature.
    with suppress(ValueError):
        headers.update(standard_headers(body, secrets, message_id=event_id, timestamp=signed_at))
    return headers


def _identity(body: bytes) -> tuple[Any, Any]:
    try:
        event = json.loads(body)
    except ValueError:
        return None, None
    return (event.get("id"), event.get("type")) if isinstance(event, dict) else (None, None)
