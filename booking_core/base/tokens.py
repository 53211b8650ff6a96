"""Everything random, hashed or sealed: ids, API keys, the secret keys that sign and seal."""

import base64
import hashlib
import hmac
import os
import re
import secrets
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import lru_cache, partial

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from booking_core.models.limits import (
    API_KEY_DISPLAY_LENGTH,
    API_KEY_LENGTH,
    API_KEY_PREFIX,
    TEST_API_KEY_DISPLAY_LENGTH,
    TEST_API_KEY_PREFIX,
)
from webhook_verify.signature import mac, prepared_key

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CRC_LENGTH = 6
_CELL_MARK = "00"
"""Precedes the name of a cell."""
_NONCE_BYTES = 12


class _Block(threading.local):
    """Random digits that this thread has not used yet, and the place of its last id in the order of its ids."""

    text = ""
    at = 0
    millisecond = 0
    stamp = ""
    """The millisecond as an id begins with it."""
    count = 0


_BLOCK_BYTES = 4096
_block = _Block()


def _forget_block() -> None:
    """Start again in a forked process, which would use the same bytes as its parent."""
    global _block
    _block = _Block()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_block)


def random_hex(digits: int) -> str:
    """Return random hexadecimal digits for an id, never for a secret.

    They are read from the operating system in blocks. Each read releases the interpreter, and a thread of a busy
    process waits up to five milliseconds to get it back; a booking has about ten ids.
    """
    at, end = _block.at, _block.at + digits
    if end > len(_block.text):
        _block.text, at, end = os.urandom(_BLOCK_BYTES).hex(), 0, digits
    _block.at = end
    return _block.text[at:end]


def new_id() -> str:
    """Return a UUID of version 7: it begins with the time, so rows written together are close in every index.

    The ids of a thread sort in the order of their creation, also within a millisecond, where twelve bits count (RFC
    9562, method 1). The rows of one transaction have one instant, and their ids give their order.
    """
    place, random = _next_place(), random_hex(16)
    return f"{place}-{_VARIANTS[random[0]]}{random[1:4]}-{random[4:]}"


_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_COUNT_START_MAX = 0x7FF
_COUNT_MAX = 0xFFF
_SET_BACK_MS = 1_000
"""A clock that is late by more was set back: it is followed. By less, the order of ids is kept."""


def _next_place() -> str:
    """Return the millisecond, the version and the count of the thread's next id."""
    now = time.time_ns() // 1_000_000
    block = _block
    count, last = block.count + 1, block.millisecond
    if now > last or now < last - _SET_BACK_MS:
        _begin_millisecond(block, now)
        count = int(random_hex(3), 16) & _COUNT_START_MAX
    elif count > _COUNT_MAX:
        _begin_millisecond(block, last + 1)
        count = 0
    block.count = count
    return f"{block.stamp}-7{count:03x}"


def _begin_millisecond(block: _Block, millisecond: int) -> None:
    stamp = f"{millisecond:012x}"
    block.millisecond, block.stamp = millisecond, f"{stamp[:8]}-{stamp[8:]}"


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def new_api_key(cell: str = "", *, is_test: bool = False) -> str:
    """`svc_` and 40 characters; the last six are a CRC32 of the rest, for offline scanners (decision K1).

    A key of a cell after the first one names it before those six, instead of random characters. The 40 characters of a
    sandbox's key begin with `test_`, which leaves 172 random bits, or 148 in a cell after the first one.
    """
    prefix = TEST_API_KEY_PREFIX if is_test else API_KEY_PREFIX
    tag = f"{_CELL_MARK}{cell}" if cell else ""
    random_length = API_KEY_LENGTH - len(prefix) - len(tag) - _CRC_LENGTH
    body = ""
    while not body or cell_of_api_key(body + "0" * _CRC_LENGTH) != cell:  # random characters may name a cell too
        body = f"{prefix}{''.join(secrets.choice(_ALPHABET) for _ in range(random_length))}{tag}"
    return body + _base62(zlib.crc32(body.encode()), _CRC_LENGTH)


_API_KEY = re.compile(
    rf"{API_KEY_PREFIX}[0-9A-Za-z]{{{API_KEY_LENGTH - len(API_KEY_PREFIX)}}}"
    rf"|{TEST_API_KEY_PREFIX}[0-9A-Za-z]{{{API_KEY_LENGTH - len(TEST_API_KEY_PREFIX)}}}",
    re.ASCII,
)


def is_api_key(text: str) -> bool:
    """Return whether a text has the form of an API key."""
    return _API_KEY.fullmatch(text) is not None


def has_checksum(key: str) -> bool:
    """Return whether the last six characters of an API key are the CRC32 of the others, as `new_api_key` makes them."""
    return key[-_CRC_LENGTH:] == _base62(zlib.crc32(key[:-_CRC_LENGTH].encode()), _CRC_LENGTH)


def cell_of_api_key(key: str) -> str:
    """Return the cell that a key names; empty for the first one."""
    mark, cell = key[-_CRC_LENGTH - 4 : -_CRC_LENGTH - 2], key[-_CRC_LENGTH - 2 : -_CRC_LENGTH]
    return cell if mark == _CELL_MARK else ""


def hash_api_key(key: str) -> str:
    """Return the hash of a key: SHA-256 in hex, without salt, since a key has 200 random bits."""
    return hashlib.sha256(key.encode()).hexdigest()


def api_key_prefix(key: str) -> str:
    """Return the part of a key that is shown."""
    return key[: TEST_API_KEY_DISPLAY_LENGTH if key.startswith(TEST_API_KEY_PREFIX) else API_KEY_DISPLAY_LENGTH]


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


SEALED_PREFIX = "v2."
"""Begins a sealed value, before the id of its key."""
_KEY_ID_LENGTH = 8
_SECRET_BYTES = 32
_DISTINCT_MIN = 9
"""Fewer different characters are no random text: 64 random hexadecimal digits have 16 of them."""
_HEX = re.compile(r"[0-9a-fA-F]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+")


def sealing_key_id(sealed: str) -> str | None:
    """Return the id of the secret key that sealed the text, or None if it is no sealed text."""
    version, _, rest = sealed.partition(".")
    key_id, _, _ = rest.partition(".")
    return key_id if f"{version}." == SEALED_PREFIX else None


def is_strong(key: str) -> bool:
    """Return whether a secret key is 32 bytes or more in base64 or hex, and does not repeat a few characters."""
    text = key.rstrip("=")
    if len(set(text)) < _DISTINCT_MIN or not _BASE64.fullmatch(text):
        return False
    return (len(text) // 2 if _HEX.fullmatch(text) else len(text) * 3 // 4) >= _SECRET_BYTES


def missing_key_ids(key_ids: Iterable[str | None], *, neighbours_open: bool) -> set[str | None]:
    """Return the ids of the secret keys that are missing, among those that values of one kind name.

    Args:
        key_ids: the key id of each value that names no live key, and does not open.
        neighbours_open: whether another value of the kind opens. Then a value whose key no other one names is damaged.
    """
    counted = Counter(key_ids)
    return {key_id for key_id, values in counted.items() if not neighbours_open or (key_id is not None and values > 1)}


class DamagedValue(ValueError):
    """A sealed value names a live key that does not open it: it was changed, or moved from another row."""


class SecretKeys:
    """The secret keys of an installation: the first signs and seals, the others still verify and open (rotation).

    Each purpose has its own derived key: a token of one purpose is invalid for any other.

    Args:
        keys: the secret keys, the one in use first.
    """

    def __init__(self, *keys: str) -> None:
        if not keys or not all(keys):
            raise ValueError("at least one secret key is needed")
        self._keys = tuple(hashlib.sha256(key.encode()).digest() for key in keys)
        self._ids = tuple(hmac.digest(key, b"id", "sha256").hex()[:_KEY_ID_LENGTH] for key in self._keys)
        self._retained: Mapping[tuple[str, str], bytes] = {}
        self._derived = lru_cache(maxsize=256)(self._derive)
        self._prepared = lru_cache(maxsize=256)(lambda index, purpose: prepared_key(0, self._derived(index, purpose)))
        self._cipher = lru_cache(maxsize=256)(self._make_cipher)

    def __repr__(self) -> str:
        return f"<SecretKeys {len(self._keys)} live>"

    def retaining(self, derived: Mapping[tuple[str, str], bytes]) -> "SecretKeys":
        """Return the same keys with derived keys of former ones, by purpose and key id: they verify and sign the tokens
        of a former key from the time of its use."""
        secret_keys = copy(self)
        secret_keys._retained = {key: value for key, value in derived.items() if key[1] not in self._ids}
        return secret_keys

    def _derive(self, index: int, purpose: str) -> bytes:
        return hmac.digest(self._keys[index], purpose.encode(), "sha256")

    def _make_cipher(self, index: int, purpose: str) -> AESGCM:
        return AESGCM(self._derived(index, purpose))

    def sign(self, purpose: str, message: bytes) -> bytes:
        """32 bytes that only a holder of the first key can make."""
        return mac(self._prepared(0, purpose), message).digest()

    @property
    def first_id(self) -> str:
        """Names the key that signs now, and tells nothing of it."""
        return self._ids[0]

    @property
    def ids(self) -> tuple[str, ...]:
        """Names each live key, the first one first."""
        return self._ids

    def derived(self, key_id: str, purpose: str) -> bytes | None:
        """Return the key derived for the purpose from the live or retained key of that id."""
        if key_id in self._ids:
            return self._derived(self._ids.index(key_id), purpose)
        return self._retained.get((purpose, key_id))

    def sign_with(self, key_id: str, purpose: str, message: bytes) -> bytes | None:
        """Return the signature by the key of this id, or None if the key is neither live nor retained."""
        sign = self.signer(key_id, purpose)
        return None if sign is None else sign(message)

    def signer(self, key_id: str, purpose: str) -> Callable[[bytes], bytes] | None:
        """Return a function that signs many messages as `sign_with` does."""
        if key_id in self._ids:
            prepared = self._prepared(self._ids.index(key_id), purpose)
            return lambda message: mac(prepared, message).digest()
        key = self._retained.get((purpose, key_id))
        return None if key is None else partial(hmac.digest, key, digest="sha256")

    def signatures(self, purpose: str, message: bytes) -> list[bytes]:
        """Return the signatures of all live keys, in order, and then of all retained keys."""
        live = [self._derived(i, purpose) for i in range(len(self._keys))]
        retained = [key for (used_for, _), key in self._retained.items() if used_for == purpose]
        return [hmac.digest(key, message, "sha256") for key in (*live, *retained)]

    def seal(self, purpose: str, plaintext: bytes, *row: str) -> str:
        """Encrypt and authenticate a text (AES-256-GCM) for one row, as ASCII.

        Args:
            purpose: the column that it is kept in.
            row: the organization and the ids of the row that it is kept in.
        """
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher(0, purpose).encrypt(nonce, plaintext, _associated(purpose, row))
        return f"{SEALED_PREFIX}{self._ids[0]}.{base64.b64encode(nonce + sealed).decode()}"

    def open(self, purpose: str, sealed: str, *row: str) -> bytes:
        """Open the text that any live key sealed for this row.

        Raises:
            DamagedValue: it names a live key, and was changed or sealed for another row.
            ValueError: no live key opens it.
        """
        key_id = sealing_key_id(sealed)
        if key_id not in self._ids:
            raise ValueError("no sealed text, or sealed with a secret key that is no longer live")
        try:
            data = base64.b64decode(sealed.rpartition(".")[2], validate=True)
            cipher = self._cipher(self._ids.index(key_id), purpose)
            return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _associated(purpose, row))
        except (InvalidTag, ValueError):
            raise DamagedValue("changed, or sealed for another row") from None

    def open_or_none(self, purpose: str, sealed: str, *row: str) -> bytes | None:
        """Open the text as `open` does; None if no live key opens it, or if it is damaged."""
        try:
            return self.open(purpose, sealed, *row)
        except ValueError:
            return None


def _associated(purpose: str, row: tuple[str, ...]) -> bytes:
    """Return the associated data of a sealed value: ids contain no NUL, so every row has different data."""
    return "\0".join((SEALED_PREFIX, purpose, *row)).encode()
