"""Creates, parses and compares signatures. No module state, no request; only `sign` reads the clock.

`Svc-Signature: t=<unix seconds>,v1=<hex>` where v1 is HMAC-SHA256 over the bytes `<t>.<body>` and the key is the
endpoint's secret exactly as it was shown, `whsec_` included. The same deliveries carry the three headers of the
Standard Webhooks convention; their key is the decoded text after `whsec_`. This module creates both. It verifies only
the first, since any Standard Webhooks library verifies the second.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import time
from hmac import compare_digest

from webhook_verify.errors import WebhookVerificationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Union

    Payload = Union[bytes, bytearray, memoryview, str]
    Key = tuple[int, "hashlib._Hash", "hashlib._Hash"]

SIGNATURE_HEADER = "Svc-Signature"
EVENT_ID_HEADER = "Svc-Event-Id"
EVENT_TYPE_HEADER = "Svc-Event-Type"
DELIVERY_ID_HEADER = "Svc-Delivery-Id"

# Seconds, in either direction: long enough for clocks that drift, short enough to make a replay useless.
DEFAULT_TOLERANCE = 300

# Enough for sixteen signatures. A sender has at most three valid secrets; a longer header is an attempt to keep the
# receiver busy.
MAX_HEADER_LENGTH = 4096
MAX_SIGNATURES = 16

# Twelve digits reach the year 33658, and fit into the integers of receivers in other languages.
MAX_TIMESTAMP_DIGITS = 12

_HEX_DIGITS = "0123456789abcdef"
_SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix, not a secret


class ParsedSignature:
    """A parsed `Svc-Signature` header, which is not yet verified. For verification, logs and debugging.

    `timestamp` is in unix seconds; `signatures` holds the well-formed v1 signatures, in the order of the header.
    `signed_timestamp` is the text of the timestamp: `t=007` is signed with its zeros.
    """

    __slots__ = ("signatures", "signed_timestamp", "timestamp")

    def __init__(self, signed_timestamp: str, signatures: Iterable[str]) -> None:
        self.signed_timestamp: str = signed_timestamp
        self.timestamp: int = int(signed_timestamp)
        self.signatures: tuple[str, ...] = tuple(signatures)

    def __repr__(self) -> str:
        return f"ParsedSignature(timestamp={self.timestamp}, signatures={self.signatures})"


def parse_header(value: str) -> ParsedSignature:
    """Parse a `Svc-Signature` header.

    Elements are separated by commas and split at their first `=`; spaces around them are ignored. There is exactly one
    `t`. A `v1` that is not 64 lowercase hex digits is ignored. Elements with other names are ignored too: a later
    scheme can be sent together with this one. Raises WebhookVerificationError.
    """
    if len(value) > MAX_HEADER_LENGTH:
        raise WebhookVerificationError("header_too_long")
    elements = [element.strip(" \t").partition("=") for element in value.split(",")]
    timestamps = [text for name, _, text in elements if name == "t"]
    candidates = [text for name, _, text in elements if name == "v1"]
    if len(timestamps) != 1 or not _is_timestamp(timestamps[0]) or len(candidates) > MAX_SIGNATURES:
        raise WebhookVerificationError("header_malformed")
    signatures = [text for text in candidates if len(text) == 64 and not text.strip(_HEX_DIGITS)]
    if not signatures:
        raise WebhookVerificationError("header_malformed" if candidates else "no_supported_scheme")
    return ParsedSignature(timestamps[0], signatures)


def plain_header(value: str) -> tuple[str, tuple[str]] | None:
    """Return timestamp and signature of a header with a single signature; None for any other header.

    This shortcut takes a quarter of the time. It does not check the digits of the signature: when no secret matches,
    `parse_header` decides whether the header is malformed.
    """
    start, _, signature = value.partition(",v1=")
    timestamp = start[2:]
    if len(start) == 12 and len(signature) == 64 and start[:2] == "t=" and timestamp.isdigit() and value.isascii():
        return timestamp, (signature,)
    return None


def _is_timestamp(text: str) -> bool:
    # isdigit() is also true for digits of every script, and for superscripts that int() refuses.
    return text.isdigit() and text.isascii() and len(text) <= MAX_TIMESTAMP_DIGITS


def sign(payload: Payload, secrets: str | Iterable[str], *, timestamp: int | None = None) -> str:
    """Return the value of the `Svc-Signature` header for a body, with one v1 element per secret, in their order.

    Sign every attempt again: receivers reject a timestamp that is minutes old.
    """
    return _signature(prepared_keys(secrets), payload, _whole_seconds(timestamp))


def standard_headers(
    payload: Payload, secrets: str | Iterable[str], *, message_id: str, timestamp: int | None = None
) -> dict[str, str]:
    """Return the Standard Webhooks headers for a body: `webhook-id`, `webhook-timestamp` and `webhook-signature`.

    `message_id` is the event's id. Raises ValueError for a secret that is not `whsec_` and standard base64.
    """
    keys = _prepared_standard_keys(checked_secrets(secrets))
    return _standard_headers(keys, payload, message_id, _whole_seconds(timestamp))


class Signer:
    """Signs bodies as `sign` and `standard_headers` do. It prepares its keys once: half the work of a signature.

    Raises ValueError for a secret that is not `whsec_` and standard base64.
    """

    __slots__ = ("_keys", "_standard_keys")

    def __init__(self, secrets: str | Iterable[str]) -> None:
        listed = checked_secrets(secrets)
        self._keys = prepared_keys(listed)
        self._standard_keys = _prepared_standard_keys(listed)

    def sign(self, body: bytes, *, timestamp: int) -> str:
        """Return the value of the `Svc-Signature` header."""
        return _signature(self._keys, body, timestamp)

    def standard_headers(self, body: bytes, *, message_id: str, timestamp: int) -> dict[str, str]:
        """Return the Standard Webhooks headers."""
        return _standard_headers(self._standard_keys, body, message_id, timestamp)


def _signature(keys: tuple[Key, ...], payload: Payload, seconds: int) -> str:
    body, before_body = payload_bytes(payload), b"%d." % seconds
    return ",".join([f"t={seconds}", *(f"v1={mac(key, before_body, body).hexdigest()}" for key in keys)])


def _standard_headers(keys: tuple[Key, ...], payload: Payload, message_id: str, seconds: int) -> dict[str, str]:
    if not message_id or "." in message_id:
        # The id, the time and the body are signed with dots between them.
        raise ValueError("message_id must be a string without dots")
    body, before_body = payload_bytes(payload), b"%b.%d." % (message_id.encode(), seconds)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{_base64(mac(key, before_body, body).digest())}" for key in keys),
    }


def generate_secret() -> str:
    """Return a new endpoint secret: `whsec_` and 32 random bytes in standard base64."""
    return _SECRET_PREFIX + _base64(os.urandom(32))


def prepared_keys(secrets: str | Iterable[str]) -> tuple[Key, ...]:
    """Return one prepared key per secret. Copying it for each message is cheaper than hashing the secret again."""
    return tuple(prepared_key(position, secret.encode()) for position, secret in enumerate(checked_secrets(secrets)))


def _prepared_standard_keys(secrets: Iterable[str]) -> tuple[Key, ...]:
    return tuple(prepared_key(position, _decoded_key(secret)) for position, secret in enumerate(secrets))


def prepared_key(position: int, secret: bytes) -> Key:
    """Return the position, and the inner and the outer hash of HMAC (RFC 2104), each already updated with the key.

    Two plain hashes are used, because copying and updating an `hmac.HMAC` makes a verification a fifth slower.
    """
    block = hashlib.sha256(secret).digest() if len(secret) > 64 else secret
    block = block.ljust(64, b"\0")
    return position, hashlib.sha256(block.translate(_INNER_PAD)), hashlib.sha256(block.translate(_OUTER_PAD))


_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))


def matching_secret(keys: Iterable[Key], timestamp: str, body: bytes, signatures: Iterable[str]) -> int | None:
    """Return the index of the first key that matches one of the signatures (ASCII); None without a match.

    Every signature is compared under every key: the time taken must not reveal which one matched.
    """
    index = None
    before_body = timestamp.encode() + b"."
    for key in keys:
        expected = mac(key, before_body, body).hexdigest()
        for signature in signatures:
            if compare_digest(expected, signature) and index is None:
                index = key[0]
    return index


def mac(key: Key, *parts: bytes) -> hashlib._Hash:
    """Return the finished hash of HMAC over the parts."""
    _, fed_inner, fed_outer = key
    inner = fed_inner.copy()
    for part in parts:  # not concatenated, which would copy the body
        inner.update(part)
    outer = fed_outer.copy()
    outer.update(inner.digest())
    return outer


def payload_bytes(payload: Payload) -> bytes:
    """Return the body as bytes. Text is encoded as UTF-8 without errors: invalid text yields no match."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode("utf-8", "surrogatepass")
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(
        f"the payload must be the raw body of the request, as bytes or str, not {type(payload).__name__}:"
        " JSON that was parsed cannot be turned back into the bytes that were signed"
    )


def split_secrets(text: str) -> list[str]:
    """Return the secrets of a text, which are separated by commas or white space, such as the newline of a file."""
    return text.replace(",", " ").split()


def checked_secrets(secrets: Any) -> list[str]:
    """Return the secrets as a list, after validation. An empty secret would let anyone sign.

    Raises:
        TypeError: A secret is not a string.
        ValueError: There is no secret, or one does not begin with whsec_ or holds white space.
    """
    if isinstance(secrets, (bytes, bytearray)) or not hasattr(secrets, "__iter__"):
        raise TypeError(f"secrets must be a str or several, not {type(secrets).__name__}")
    listed = [secrets] if isinstance(secrets, str) else list(secrets)
    if not listed:
        raise ValueError("at least one secret is needed")
    if len(listed) > MAX_SIGNATURES:
        raise ValueError(f"more than {MAX_SIGNATURES} secrets")
    for secret in listed:
        if not isinstance(secret, str):
            raise TypeError(f"a secret must be a str, not {type(secret).__name__}")
        if secret.split() != [secret]:
            raise ValueError("a secret is empty or holds white space; one read from a file may end with a newline")
        if not secret.startswith(_SECRET_PREFIX):
            raise ValueError("a secret does not begin with whsec_; is it an API key, or a secret of something else?")
    return listed


def _whole_seconds(timestamp: int | None) -> int:
    if timestamp is None:
        return int(time.time())
    if not isinstance(timestamp, int):
        raise TypeError(f"timestamp must be whole unix seconds, not {type(timestamp).__name__}")
    if not 0 <= timestamp < 10**MAX_TIMESTAMP_DIGITS:
        raise ValueError("timestamp is out of range")
    return timestamp


def _decoded_key(secret: str) -> bytes:
    encoded = secret[len(_SECRET_PREFIX) :]
    try:
        key = binascii.a2b_base64(encoded)
    except ValueError:
        key = b""
    # The decoder skips characters that are not base64; encoding the key again reveals them.
    if not key or _base64(key) != encoded:
        raise ValueError("a Standard Webhooks secret must be whsec_ followed by standard base64")
    return key


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")
