"""Idempotency keys: a change that is repeated with the same key is made once."""

import hashlib
import uuid
from datetime import date, datetime
from decimal import Decimal
from enum import Enum

from booking_core.models.limits import IDEMPOTENCY_KEY_LENGTH_MAX, IDEMPOTENCY_KEY_LENGTH_MIN

_NAMESPACE_LENGTH_MAX = 100
_DIGEST_LENGTH = 40


def new_key() -> str:
    """Return a new unique key, for a call without a key of the caller's."""
    return f"sdk-{uuid.uuid4()}"


def checked_key(key: str) -> str:
    """Return the key after validation.

    Raises:
        TypeError: The key is not a string.
        ValueError: The key is too short or too long, or is not printable ASCII.
    """
    if not isinstance(key, str):
        raise TypeError(f"idempotency_key must be a str, not {type(key).__name__}")
    if not IDEMPOTENCY_KEY_LENGTH_MIN <= len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX:
        bounds = f"{IDEMPOTENCY_KEY_LENGTH_MIN} to {IDEMPOTENCY_KEY_LENGTH_MAX}"
        raise ValueError(f"idempotency_key must be {bounds} characters long")
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ValueError("idempotency_key must be printable ASCII, without spaces at its ends")
    return key


def idempotency_key(*parts: object, namespace: str = "") -> str:
    """Derive a key from your own ids. The same parts always give the same key, in every process.

        client.bookings.create(..., idempotency_key=idempotency_key("order", order.id))

    A job that runs again, after a crash or on another machine, then books nothing twice. The parts must identify one
    intention: an order that is booked, cancelled and booked again needs another part for the second booking.

    Args:
        parts: Your ids: strings, integers, Decimals, dates, UUIDs or enum members. They are hashed.
        namespace: A readable prefix of letters, digits and `._:-`.

    Raises:
        TypeError: A part has another type, whose text might change, or is None: a missing id would give the same key
            for every order.
        ValueError: There is no part, a part is empty, or the namespace is invalid.
    """
    if not parts:
        raise ValueError("an idempotency key needs at least one part")
    if len(namespace) > _NAMESPACE_LENGTH_MAX or not (
        namespace.isascii() and all(c.isalnum() or c in "._:-" for c in namespace)
    ):
        raise ValueError(f"namespace must be at most {_NAMESPACE_LENGTH_MAX} letters, digits and ._:-")
    texts = [_text(part) for part in parts]
    # Lengths keep ("ab", "c") apart from ("a", "bc").
    canonical = "".join(f"{len(text)}:{text}" for text in texts)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{namespace}-{digest}" if namespace else digest


def _text(part: object) -> str:
    if isinstance(part, Enum):
        return _text(part.value)
    if isinstance(part, datetime) and part.tzinfo is None:
        raise TypeError("a datetime without a timezone means another instant on another machine")
    if not isinstance(part, (str, int, Decimal, uuid.UUID, date)):
        raise TypeError(f"an idempotency key cannot be made from {type(part).__name__}")
    text = part.isoformat() if isinstance(part, date) else str(part)
    if not text:
        raise ValueError("a part of an idempotency key is empty")
    return text
