"""Verifies requests: the result is a VerifiedDelivery or a WebhookVerificationError.

The order of the checks is part of the contract. The signature comes before the timestamp, so that "too old" means
authentic but late; nothing is decoded or parsed before the signature has been found to fit.
"""

from __future__ import annotations

import os
import time

from webhook_verify.errors import DuplicateEvent, PayloadError, WebhookVerificationError
from webhook_verify.frames import clear_frames
from webhook_verify.headers import select
from webhook_verify.seen import DEFAULT_TTL, SHORTEST_TTL
from webhook_verify.signature import (
    DEFAULT_TOLERANCE,
    matching_secret,
    parse_header,
    payload_bytes,
    plain_header,
    prepared_keys,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from webhook_verify.headers import HeadersLike
    from webhook_verify.seen import SeenStore
    from webhook_verify.signature import Payload

# The largest event the service writes is some tens of kilobytes.
DEFAULT_MAX_BODY_BYTES = 1_048_576


class VerifiedDelivery:
    """A delivery with a valid signature. Immutable; the repr does not contain the body."""

    __slots__ = ("_age", "_delivery_id", "_identity", "_payload", "_secret_index", "_timestamp")

    def __init__(
        self,
        payload: bytes,
        timestamp: int,
        age: float,
        secret_index: int,
        delivery_id: str | None = None,
        identity: tuple[Any, Any] | None = None,
    ) -> None:
        self._payload = payload
        self._timestamp = timestamp
        self._age = age
        self._secret_index = secret_index
        self._delivery_id = delivery_id
        self._identity = identity

    @property
    def payload(self) -> bytes:
        """The raw body that was signed."""
        return self._payload

    @property
    def timestamp(self) -> int:
        """The time at which this attempt was signed, in unix seconds."""
        return self._timestamp

    @property
    def age(self) -> float:
        """Seconds between the signature and the check; negative when the sender's clock is ahead."""
        return self._age

    @property
    def secret_index(self) -> int:
        """The index of the matching secret. When it is always that of the new one, the old one can be removed."""
        return self._secret_index

    @property
    def delivery_id(self) -> str | None:
        """The id of this attempt, from a header that no signature covers: for logs only."""
        return self._delivery_id

    @property
    def event_id(self) -> str:
        """The `id` in the signed body: the same in every attempt, so the one to deduplicate on. Raises PayloadError."""
        return _text(self._read_identity()[0])

    @property
    def event_type(self) -> str:
        """The `type` in the signed body, for instance `booking.created`. Raises PayloadError."""
        return _text(self._read_identity()[1])

    def json(self) -> Any:
        """Parse the body as JSON, anew at each call. Raises PayloadError."""
        return _parsed(self._payload)

    def _read_identity(self) -> tuple[Any, Any]:
        if self._identity is None:
            self._identity = _parsed_identity(self._payload)
        return self._identity

    def __repr__(self) -> str:
        return (
            f"<VerifiedDelivery of {len(self._payload)} bytes, timestamp={self._timestamp}, age={self._age:.3f},"
            f" secret_index={self._secret_index}, delivery_id={self._delivery_id!r}>"
        )


class Verifier:
    """Verifies deliveries to one endpoint. Make it once; any number of threads may use it.

    Several secrets mean a rotation is under way: any of them may have signed. `tolerance` is in seconds and holds in
    both directions; 0 means 0, `float("inf")` accepts any age. With `seen`, an event that was claimed before raises
    DuplicateEvent, for `seen_ttl` seconds. A secret that is empty or holds white space raises ValueError here.
    """

    __slots__ = ("_clock", "_keys", "_seen_ttl", "_tolerance", "max_body_bytes", "seen")

    def __init__(
        self,
        secrets: str | Iterable[str],
        *,
        tolerance: float = DEFAULT_TOLERANCE,
        clock: Callable[[], float] = time.time,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        seen: SeenStore | None = None,
        seen_ttl: float = DEFAULT_TTL,
    ) -> None:
        if max_body_bytes < 1:
            raise ValueError("max_body_bytes must be at least 1")
        if not seen_ttl >= SHORTEST_TTL:
            raise ValueError("seen_ttl must be at least 12 hours, which a delivery's six attempts stay within")
        try:
            self._keys = prepared_keys(secrets)
        except (TypeError, ValueError) as error:
            del secrets
            clear_frames(error)
            raise
        self._tolerance = _checked_tolerance(tolerance)
        self._clock = clock
        self._seen_ttl = seen_ttl
        self.max_body_bytes: int = max_body_bytes
        self.seen: SeenStore | None = seen

    @classmethod
    def from_env(cls, name: str = "BOOKING_WEBHOOK_SECRET", **options: Any) -> Verifier:
        """Return a verifier with the comma-separated secrets of an environment variable.

        Args:
            name: The name of the variable.
            options: The options of the class.

        Raises:
            ValueError: The variable holds no secret.
        """
        secrets = [secret.strip() for secret in os.environ.get(name, "").split(",") if secret.strip()]
        if not secrets:
            raise ValueError(f"the environment variable {name} holds no secret")
        return cls(secrets, **options)

    def verify(
        self, payload: Payload, headers: HeadersLike | str | None, *, now: float | None = None
    ) -> VerifiedDelivery:
        """Verify a request and return its delivery.

        `payload` is the body as it came in. `headers` is the framework's mapping, pairs, a WSGI environ, or just the
        value of the signature header; where the event id and type are among them they have to agree with the body.
        `now`, in unix seconds, stands in for the clock: the time of arrival, for a delivery that was queued.
        Raises WebhookVerificationError, and DuplicateEvent where a store of seen events is set.
        """
        try:
            return self._verified(payload, headers, now)
        except BaseException as error:
            # What an error reporter finds in a frame, it shows.
            del payload, headers
            clear_frames(error)
            raise

    def _verified(self, payload: Payload, headers: HeadersLike | str | None, now: float | None) -> VerifiedDelivery:
        body = payload if type(payload) is bytes else payload_bytes(payload)
        if len(body) > self.max_body_bytes:
            raise WebhookVerificationError("body_too_large")
        signature, event_id, event_type, delivery_id = select(headers)
        if signature is None:
            raise WebhookVerificationError("header_missing")
        timestamp, signatures = plain_header(signature) or _parsed_header(signature)
        secret_index = matching_secret(self._keys, timestamp, body, signatures)
        if secret_index is None:
            # A shortcut that misses may have missed because the header is malformed, which is the better reason.
            parse_header(signature)
            raise WebhookVerificationError("signature_mismatch")
        signed_at = int(timestamp)
        age = (self._clock() if now is None else now) - signed_at
        # Written so that a clock that answers NaN is refused, not let through.
        if not abs(age) <= self._tolerance:
            raise WebhookVerificationError("timestamp_too_new" if age < 0 else "timestamp_too_old")
        identity = None
        if event_id is not None or event_type is not None:
            identity = _agreed_identity(body, event_id, event_type)
        delivery = VerifiedDelivery(body, signed_at, age, secret_index, delivery_id, identity)
        if self.seen is not None and not self.seen.claim(delivery.event_id, self._seen_ttl):
            raise DuplicateEvent(delivery.event_id)
        return delivery

    def unwrap(
        self,
        payload: Payload,
        headers: HeadersLike | str | None,
        *,
        now: float | None = None,
        loads: Callable[[bytes], Any] | None = None,
    ) -> tuple[VerifiedDelivery, Any]:
        """Verify a request and return its delivery and parsed body. `loads` may be the parser of a model.

        Raises what `verify` raises, and PayloadError when `loads` raises a ValueError.
        """
        delivery = None
        try:
            delivery = self._verified(payload, headers, now)
            return delivery, _parsed(delivery.payload, loads)
        except BaseException as error:
            del payload, headers
            clear_frames(error)
            if delivery is not None:
                self.release(delivery)
            raise

    def release(self, delivery: VerifiedDelivery) -> None:
        """Release an event after its handler failed, so that the next attempt is handled. Needs a store."""
        if self.seen is not None:
            self.seen.release(delivery.event_id)

    def __repr__(self) -> str:
        if not hasattr(self, "_tolerance"):
            return "<Verifier that could not be made>"
        return f"<Verifier with {len(self._keys)} secrets, tolerance={self._tolerance}>"


def verify(
    payload: Payload,
    headers: HeadersLike | str | None,
    secrets: str | Iterable[str],
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    now: float | None = None,
) -> VerifiedDelivery:
    """Verify one delivery with `Verifier(secrets).verify(...)`. A long-running receiver should keep a Verifier."""
    try:
        return Verifier(secrets, tolerance=tolerance).verify(payload, headers, now=now)
    except BaseException:
        del payload, headers, secrets
        raise


def is_valid(
    payload: Payload,
    headers: HeadersLike | str | None,
    secrets: str | Iterable[str],
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    now: float | None = None,
) -> bool:
    """Return True when `verify` would succeed. Raises only for misuse, never for the content of a request."""
    try:
        verify(payload, headers, secrets, tolerance=tolerance, now=now)
    except WebhookVerificationError:
        return False
    except BaseException:
        del payload, headers, secrets
        raise
    return True


def _checked_tolerance(tolerance: float) -> float:
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
        raise TypeError(f"tolerance must be seconds, not {type(tolerance).__name__}")
    if not tolerance >= 0:
        raise ValueError("tolerance must not be negative; float('inf') accepts any age")
    return tolerance


def _parsed_header(value: str) -> tuple[str, tuple[str, ...]]:
    parsed = parse_header(value)
    return parsed.signed_timestamp, parsed.signatures


def _agreed_identity(body: bytes, event_id: str | None, event_type: str | None) -> tuple[Any, Any]:
    """Return the id and type from the body, after comparing them with the headers.

    No signature covers the headers: otherwise a holder of one delivery could present it as another event.
    """
    if event_id is not None and event_type is not None:
        opening = f'{{"id":"{event_id}","type":"{event_type}"'
        # A body that opens as the service writes it agrees by comparison; parsing it would cost more than the
        # signature did. With a quote in it, a header could match across fields of the body.
        plain = opening.isascii() and "\\" not in opening and '"' not in event_id and '"' not in event_type
        if plain and body.startswith(opening.encode()):
            return event_id, event_type
    identity = _parsed_identity(body)
    if event_id not in (None, identity[0]) or event_type not in (None, identity[1]):
        raise WebhookVerificationError("header_body_mismatch")
    return identity


def _parsed_identity(body: bytes) -> tuple[Any, Any]:
    """Return the values of `id` and `type` in the body, which may be of any JSON type."""
    event = _parsed(body)
    if not isinstance(event, dict):
        raise PayloadError
    return event.get("id"), event.get("type")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise PayloadError
    return value


def _parsed(body: bytes, loads: Callable[[bytes], Any] | None = None) -> Any:
    if loads is None:
        # On demand: a receiver that passes the body on to a queue or to a model never needs it.
        import json

        loads = json.loads
    try:
        return loads(body)
    except (ValueError, RecursionError):
        pass
    # Raised out here, since the parser's own error carries the body and would travel along as its context.
    raise PayloadError
