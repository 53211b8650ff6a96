"""The guest's secret link: made from a booking's id whenever it is shown, and never stored (decision B14).

A token holds the organization and the booking, to find the row, and 128 bits that need the secret key. Only the id of
that key is stored, so a copy of the database opens no link. The token also holds how often the guest's address was
changed, if it was: a link that went to a former address opens nothing (decisions/0039). When a key is removed from
BOOKING_SECRET_KEY, the derived key of its links remains, sealed by the key in use (`secret_keys.with_link_keys`).
"""

import base64
import binascii
import hmac
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys

PURPOSE = "manage_url"
GIFT_CARD_PURPOSE = "gift_card_url"
_ID_BYTES = 16
_SECRET_BYTES = 16
_CHANGES_BYTES = 6
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_TOKEN = re.compile(r"([A-Za-z0-9_-]{64}(?:[A-Za-z0-9_-]{8})?)(?:-([a-z0-9]{2}))?")
"""The token, and the cell where it was made, if that was not the first one. The cell only says where to look first."""


class Linked(Protocol):
    """A booking's row, as far as its link depends on it."""

    @property
    def id(self) -> str: ...

    @property
    def manage_key_id(self) -> str | None: ...

    @property
    def manage_expires_at(self) -> int | None: ...

    @property
    def email_changes(self) -> int: ...


class ManageLinks:
    """The guests' links of one organization."""

    def __init__(self, installation: Installation, organization_id: str) -> None:
        self._keys = installation.secret_keys
        self._address = f"{installation.public_url}/manage/"
        self._cell = _cell_suffix(installation)
        self._organization = bytes.fromhex(organization_id.replace("-", ""))
        self._signers: dict[str, Callable[[bytes], bytes] | None] = {}

    def make(self, booking_id: str, key_id: str, email_changes: int = 0) -> str | None:
        """Return the link of a booking, or None if its secret key was dropped and its link key was not retained."""
        sign = self._signers.get(key_id) or self._signers.setdefault(key_id, self._keys.signer(key_id, PURPOSE))
        if sign is None:
            return None
        ids = self._organization + bytes.fromhex(booking_id.replace("-", ""))
        if email_changes:
            ids += email_changes.to_bytes(_CHANGES_BYTES)
        token = binascii.b2a_base64(ids + sign(ids)[:_SECRET_BYTES], newline=False).translate(_URL_SAFE)
        return f"{self._address}{token.decode()}{self._cell}"

    def of(self, row: Linked, ends_at: int, at: int) -> str | None:
        """Return the link of a stored booking with the end of its departure, or None if it has none or has expired."""
        key_id = row.manage_key_id
        return None if key_id is None or has_expired(row, ends_at, at) else self.make(row.id, key_id, row.email_changes)


def gift_card_link(installation: Installation, organization_id: str, gift_card_id: str) -> str:
    """Return the link of a gift card's page, which shows its code. It opens while its secret key is live."""
    ids = b"".join(bytes.fromhex(row_id.replace("-", "")) for row_id in (organization_id, gift_card_id))
    secret = installation.secret_keys.sign(GIFT_CARD_PURPOSE, ids)
    token = base64.urlsafe_b64encode(ids + secret[:_SECRET_BYTES]).decode()
    return f"{installation.public_url}/gift-card/{token}{_cell_suffix(installation)}"


def _cell_suffix(installation: Installation) -> str:
    return f"-{installation.cell}" if installation.cell else ""


def has_expired(row: Linked, ends_at: int, at: int) -> bool:
    """Return True if the booking's link has expired: at the end of its departure, and if that was moved, at the later
    of both ends (decision B14). A catalogue import may move a departure after the link was made."""
    expires_at = row.manage_expires_at
    return expires_at is None or (expires_at <= at and ends_at <= at)


@dataclass(frozen=True, slots=True)
class Opened:
    """The content of a valid token."""

    organization_id: str
    subject_id: str
    """The id of the booking, or of the gift card."""
    email_changes: int
    """Changes of the guest's address until the link was made."""
    purpose: str
    ids: bytes = field(repr=False)
    secret: bytes = field(repr=False)

    def was_made_by(self, keys: SecretKeys, key_id: str | None) -> bool:
        """Return True if the secret key named in the booking's row signed the token."""
        signed = None if key_id is None else keys.sign_with(key_id, self.purpose, self.ids)
        return signed is not None and hmac.compare_digest(signed[:_SECRET_BYTES], self.secret)

    def was_made_by_any(self, keys: SecretKeys) -> bool:
        """Return True if a live secret key signed the token. The comparison takes the same time for every secret."""
        signatures = keys.signatures(self.purpose, self.ids)
        matches = [hmac.compare_digest(signed[:_SECRET_BYTES], self.secret) for signed in signatures]
        return any(matches)


def open_token(keys: SecretKeys, token: str, purpose: str = PURPOSE) -> Opened | None:
    """Return the content of a token, or None if no live key signed it for that purpose.

    This takes no statement, and the same time for every text of the right shape: guessing reveals nothing about
    existing bookings.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    data = base64.urlsafe_b64decode(match[1])
    ids, secret = data[:-_SECRET_BYTES], data[-_SECRET_BYTES:]
    parts = ids[:_ID_BYTES], ids[_ID_BYTES : 2 * _ID_BYTES]
    organization_id, subject_id = (str(uuid.UUID(bytes=part)) for part in parts)
    email_changes = int.from_bytes(ids[2 * _ID_BYTES :])
    opened = Opened(organization_id, subject_id, email_changes, purpose, ids, secret)
    return opened if opened.was_made_by_any(keys) else None


def organization_and_cell(token: str) -> tuple[str, str] | None:
    """Return the organization that a token names and the cell where it was made, empty for the first one. Whether the
    token is genuine is not checked."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    return str(uuid.UUID(bytes=base64.urlsafe_b64decode(match[1])[:_ID_BYTES])), match[2] or ""
