"""Verifies requests: the result is a VerifiedDelivery or a WebhookVerificationError.

The order of the checks is part of the contract. The signature is checked before the timestamp: "too old" means
authentic but late. Nothing is decoded or parsed before the signature was verified.
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
    split_secrets,
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
        """The time of the signature of this attempt, in unix seconds."""
        return self._timestamp

    @property
    def age(self) -> float:
        """Seconds between the signature and the check; negative when the sender's clock is ahead."""
        return self._age

    @property
    def secret_index(self) -> int:
        """The index of the matching secret. Once only the new secret matches, the old one can be removed."""
        return self._secret_index

    @property
    def delivery_id(self) -> str | None:
        """The id of this attempt, from a header that no signature covers: for logs only."""
        return self._delivery_id

    @property
    def event_id(self) -> str:
        """The `id` in the signed body. It is the same in every attempt: deduplicate by it. Raises PayloadError."""
        return _text(self._read_identity()[0])

    @property
    def event_type(self) -> str:
        """The `type` in the signed body, for instance `booking.created`. Raises PayloadError."""
        return _text(self._read_identity()[1])

    def json(self) -> Any:
        """Parse the body as JSON; each call parses it again. Raises PayloadError."""
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
    """Verifies deliveries to one endpoint. Create it once; any number of threads may use it.

    During a rotation there are several secrets, and any of them may have signed. `tolerance` is in seconds and applies
    in both directions; 0 means 0, `float("inf")` accepts any age. With `seen`, an event that was claimed in the last
    `seen_ttl` seconds raises DuplicateEvent; while it is being handled, a ProgressStore raises EventInProgress. A
    secret that does not begin with `whsec_`, or that holds white space, raises ValueError here.
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
        return cls(_listed_secrets(os.environ.get(name, ""), f"the environment variable {name}"), **options)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> Verifier:
        """Return a verifier with the secret of a file; during a rotation the file has one secret a line.

        Args:
            path: The path of the file, such as the FILE of `booking webhooks create --secret-file FILE`.
            options: The options of the class.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file holds no secret.
        """
        # Bytes that are not text are no secret either. A decoding error would contain them.
        with open(path, encoding="utf-8-sig", errors="replace") as file:  # noqa: PTH123 - pathlib is slow to import
            return cls(_listed_secrets(file.read(), f"the file {path}"), **options)

    def verify(
        self, payload: Payload, headers: HeadersLike | str | None, *, now: float | None = None
    ) -> VerifiedDelivery:
        """Verify a request and return its delivery.

        `payload` is the body as received. `headers` is the framework's mapping, pairs, a WSGI environ, or only the
        value of the signature header. An event id or type among the headers must agree with the body. `now`, in unix
        seconds, replaces the clock: pass the time of arrival for a delivery that was queued. Raises
        WebhookVerificationError, and with a store of seen events also DuplicateEvent or EventInProgress.
        """
        try:
            return self._verified(payload, headers, now)
        except BaseException as error:
            # Error reporters show the variables of a frame.
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
            # The shortcut also fails for a malformed header, which is the better reason.
            parse_header(signature)
            raise WebhookVerificationError("signature_mismatch")
        signed_at = int(timestamp)
        age = (self._clock() if now is None else now) - signed_at
        # Written with `not`, to refuse a clock that returns NaN.
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

    def settle(self, delivery: VerifiedDelivery, *, succeeded: bool) -> None:
        """Tell the store how the handler of an event ended. Without a store, do nothing.

        After a failure the event is released, and the next attempt is handled. After a success a store with `complete`
        remembers that the event was handled.
        """
        if not succeeded:
            self.release(delivery)
            return
        complete = getattr(self.seen, "complete", None)
        if complete is not None:
            complete(delivery.event_id, self._seen_ttl)

    def release(self, delivery: VerifiedDelivery) -> None:
        """Release an event after its handler failed: the next attempt is then handled. Needs a store."""
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


def _listed_secrets(text: str, source: str) -> list[str]:
    secrets = split_secrets(text)
    if not secrets:
        raise ValueError(f"{source} holds no secret")
    return secrets


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
        # A comparison suffices for a body that begins as the service writes it; parsing would take longer than the
        # signature did. A header with a quote could match across fields of the body.
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
        # Imported on demand: a receiver that passes the body to a queue or to a model never needs it.
        import json

        loads = json.loads
    try:
        return loads(body)
    except (ValueError, RecursionError):
        pass
    # Raised outside the except block: the parser's error contains the body and would become the context.
    raise PayloadError
