"""Opaque, signed list positions (decision L1).

A cursor holds the end of a page. Its signature also covers its list (organization, endpoint, order, filters), so it is
invalid for any other list: every mismatch gives the same refusal.
"""

import base64
import binascii
import hmac
import struct
import uuid
from dataclasses import dataclass

from booking_core.base.errors import Malformed
from booking_core.base.tokens import SecretKeys, sha256_hex
from booking_core.models.reasons import ErrorReason, Fault

_VERSION = b"\x01"
_MAC_BYTES = 16
_ROW = struct.Struct(">q16s")
_SEQUENCE = struct.Struct(">q")
_LENGTH_MAX = 200
_PURPOSE = "cursor"
_REASON: ErrorReason = "invalid_cursor"
_MESSAGE = "is not a cursor of this list"


@dataclass(frozen=True, slots=True)
class Binding:
    """The list or feed of a cursor."""

    organization_id: str
    endpoint: str
    order: str
    filters: tuple[object, ...] = ()

    def message(self, position: bytes) -> bytes:
        filters = sha256_hex(repr(self.filters).encode()) if self.filters else ""
        return b"\x00".join(
            (self.organization_id.encode(), self.endpoint.encode(), self.order.encode(), filters.encode(), position)
        )


def _encode(keys: SecretKeys, binding: Binding, position: bytes) -> str:
    mac = keys.sign(_PURPOSE, binding.message(position))[:_MAC_BYTES]
    return base64.urlsafe_b64encode(_VERSION + position + mac).rstrip(b"=").decode()


def checked(cursor: str) -> str:
    """Validate that a text has the form of a cursor, of any list, and return it.

    Raises:
        Fault: it has not.
    """
    if _data(cursor) is None:
        raise Fault(_REASON, _MESSAGE)
    return cursor


def _data(cursor: str) -> bytes | None:
    """Return the position and the signature of a cursor, or None for a text of another form."""
    if len(cursor) > _LENGTH_MAX:
        return None
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    # Base64 leaves unused bits in its last character: only the exact text that was issued is taken back.
    exact = base64.urlsafe_b64encode(data).rstrip(b"=").decode() == cursor
    return data[1:] if exact and data[:1] == _VERSION else None


def _decode(keys: SecretKeys, binding: Binding, cursor: str, length: int) -> bytes:
    data = _data(cursor) or b""
    position, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
    if len(position) == length:
        for signature in keys.signatures(_PURPOSE, binding.message(position)):
            if hmac.compare_digest(signature[:_MAC_BYTES], mac):
                return position
    raise Malformed.at("starting_after", _MESSAGE, _REASON)


def encode_row(keys: SecretKeys, binding: Binding, created_at: int, row_id: str) -> str:
    """Return the cursor after a row of a list ordered by (created_at, id)."""
    return _encode(keys, binding, _ROW.pack(created_at, bytes.fromhex(row_id.replace("-", ""))))


def decode_row(keys: SecretKeys, binding: Binding, cursor: str) -> tuple[int, str]:
    """Return the (created_at, id) of the row before the cursor.

    Raises:
        Malformed: it was not issued for this list, or was changed.
    """
    created_at, row_id = _ROW.unpack(_decode(keys, binding, cursor, _ROW.size))
    return created_at, str(uuid.UUID(bytes=row_id))


def encode_sequence(keys: SecretKeys, binding: Binding, sequence: int) -> str:
    """Return the cursor after an event of the feed."""
    return _encode(keys, binding, _SEQUENCE.pack(sequence))


def decode_sequence(keys: SecretKeys, binding: Binding, cursor: str) -> int:
    """Return the sequence of the event before the cursor.

    Raises:
        Malformed: it was not issued for this feed, or was changed.
    """
    (sequence,) = _SEQUENCE.unpack(_decode(keys, binding, cursor, _SEQUENCE.size))
    return int(sequence)
