"""Reads the body of a response up to a limit, which counts decompressed bytes."""

import zlib

ACCEPTED_ENCODING = "gzip"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class BodyTooLarge(Exception):
    """The body is larger than the limit."""


class DecodingError(Exception):
    """The compressed body is damaged."""


class Body:
    """The body of a response, as far as it was received.

    It is not decompressed by httpx, which makes up to 64 MiB of each part that arrives, and more of nested encodings.
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self._decompressor = zlib.decompressobj(_GZIP_WINDOW) if encoding == ACCEPTED_ENCODING else None
        self._parts: list[bytes] = []
        self._room = max_bytes

    def add(self, part: bytes) -> None:
        """Add the next part.

        Raises:
            BodyTooLarge: The body is larger than the limit.
            DecodingError: The part cannot be decompressed.
        """
        data = part if self._decompressor is None else self._decompressed(part)
        self._room -= len(data)
        if self._room < 0:
            raise BodyTooLarge
        self._parts.append(data)

    def _decompressed(self, part: bytes) -> bytes:
        assert self._decompressor is not None
        if self._decompressor.eof:
            raise DecodingError
        try:
            return self._decompressor.decompress(part, self._room + 1)
        except zlib.error:
            raise DecodingError from None

    def content(self) -> bytes:
        """Return the whole body.

        Raises:
            DecodingError: The end of the compressed body is missing.
        """
        if self._decompressor is not None and self._parts and not self._decompressor.eof:
            raise DecodingError
        return b"".join(self._parts)
