"""Everything random, hashed or sealed: ids, API keys, the secret keys that sign and seal."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
import zlib
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from booking_core.wire.limits import API_KEY_DISPLAY_LENGTH, API_KEY_PREFIX

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY_RANDOM_LENGTH = 34
_NONCE_BYTES = 12


def new_id() -> str:
    """A UUID of version 7: time leads, so that rows written together lie together in every index."""
    random = os.urandom(10).hex()
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    variant = "89ab"[int(random[3], 16) & 3]
    return f"{stamp[:8]}-{stamp[8:]}-7{random[:3]}-{variant}{random[4:7]}-{random[7:19]}"


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def new_api_key() -> str:
    """`svc_` and 40 characters; the last six are a CRC32 of the rest, for offline scanners (decision K1)."""
    body = API_KEY_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_KEY_RANDOM_LENGTH))
    return body + _base62(zlib.crc32(body.encode()), 6)


def hash_api_key(key: str) -> str:
    """What is stored of a key, beside its prefix: SHA-256 in hex. A key has 200 random bits, so no salt is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


def api_key_prefix(key: str) -> str:
    """The part of a key that is shown."""
    return key[:API_KEY_DISPLAY_LENGTH]


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class SecretKeys:
    """The secret keys of an installation: the first signs and seals, the others still verify and open (rotation).

    Each use has a purpose of its own, and a key derived for it, so that what was made for one is worth nothing for
    another.
    """

    def __init__(self, *keys: str) -> None:
        if not keys or not all(keys):
            raise ValueError("at least one secret key is needed")
        self._keys = tuple(hashlib.sha256(key.encode()).digest() for key in keys)
        self._ids = tuple(hmac.digest(key, b"id", "sha256").hex()[:8] for key in self._keys)
        self._derived = lru_cache(maxsize=256)(self._derive)

    def __repr__(self) -> str:
        return f"<SecretKeys {len(self._keys)} live>"

    def _derive(self, index: int, purpose: str) -> bytes:
        return hmac.digest(self._keys[index], purpose.encode(), "sha256")

    def sign(self, purpose: str, message: bytes) -> bytes:
        """32 bytes that only a holder of the first key can make."""
        return hmac.digest(self._derived(0, purpose), message, "sha256")

    @property
    def first_id(self) -> str:
        """Names the key that signs now, and tells nothing of it."""
        return self._ids[0]

    def sign_with(self, key_id: str, purpose: str, message: bytes) -> bytes | None:
        """What the key of that id signs; none when it is no longer live."""
        if key_id not in self._ids:
            return None
        return hmac.digest(self._derived(self._ids.index(key_id), purpose), message, "sha256")

    def signatures(self, purpose: str, message: bytes) -> list[bytes]:
        """What each live key would have signed, the first key first."""
        return [hmac.digest(self._derived(i, purpose), message, "sha256") for i in range(len(self._keys))]

    def seal(self, purpose: str, plaintext: bytes) -> str:
        """The text encrypted and authenticated (AES-256-GCM), as ASCII."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self._derived(0, purpose)).encrypt(nonce, plaintext, None)
        return base64.b64encode(nonce + sealed).decode()

    def open(self, purpose: str, sealed: str) -> bytes:
        """What was sealed, by any live key.

        Raises:
            ValueError: no live key opens it.
        """
        try:
            data = base64.b64decode(sealed, validate=True)
        except binascii.Error:
            raise ValueError("not a sealed text") from None
        for index in range(len(self._keys)):
            try:
                return AESGCM(self._derived(index, purpose)).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None)
            except (InvalidTag, ValueError):
                continue
        raise ValueError("sealed with a secret key that is no longer live")
