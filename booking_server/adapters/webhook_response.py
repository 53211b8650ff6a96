"""An incremental parser of a receiver's HTTP/1.1 response."""

import codecs
from typing import Final

import httptools

from booking_core.models import limits

HEAD_BYTES_MAX: Final = 32 * 1024
"""The limit of the response's head, the heads of interim responses included."""
BODY_BYTES_MAX: Final = 64 * 1024
"""The limit of the response's body; the rest is not read (decision W9)."""
INTERIM_MAX: Final = 8


class WebhookResponse:
    """A response that is parsed as it arrives. The result depends on the head alone, as soon as it is complete."""

    def __init__(self) -> None:
        self.status: int | None = None
        """The status of the final head, once it is complete."""
        self.body = bytearray()
        """The beginning of the body, as long as an excerpt needs."""
        self.is_over = False
        """The response has ended, or reached a limit, or is not HTTP."""
        self.can_reuse_connection = False
        """The response ended where the next one on this connection would begin."""
        self._encoding = ""
        self._head_bytes = 0
        self._body_bytes = 0
        self._interim = 0
        self._start = b""
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_untouched(self) -> bool:
        """No byte of the response has arrived."""
        return self._head_bytes == 0

    @property
    def waits_for_body(self) -> bool:
        """The attempt has succeeded, and only the rest of the body is missing."""
        return self.status is not None and self.status < 300 and not self.is_over

    def excerpt(self) -> str | None:
        """Return the beginning of the body as text that every database stores and every terminal shows.

        A compressed body is never decompressed; the text names its encoding and size instead.
        """
        if self._body_bytes and self._encoding not in ("", "identity"):
            return _printable(f"[{self._encoding[:40]}, {self._body_bytes} bytes, not decompressed]")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # A character that a limit or the deadline cut in two is left out.
        text = decoder.decode(bytes(self.body), final=self.is_over)
        return _printable(text[: limits.WEBHOOK_EXCERPT_LENGTH_MAX]) or None

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. Raises for no content."""
        if self.is_over:
            if data.strip(b"\r\n"):  # unexpected bytes; the parser skips line breaks before a response
                self.can_reuse_connection = False
            return
        try:
            if self.status is None:
                data = self._feed_head(data)
            if data and not self.is_over:
                self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_over = True
            self.can_reuse_connection = False

    def _feed_head(self, data: bytes) -> bytes:
        """Parse as many bytes as the head may still have, and return the rest."""
        room = HEAD_BYTES_MAX - self._head_bytes
        self._head_bytes += len(data)
        self._start = (self._start + data[:5])[:5]
        if not b"HTTP/".startswith(self._start):  # the parser would take RTSP as well
            self.is_over = True
            return b""
        self._parser.feed_data(data[:room])
        if self.status is None and len(data) >= room:
            self.is_over = True
        return data[room:]

    # The parser calls the methods below; a ValueError from them reaches `feed` as a parser error.

    def on_message_begin(self) -> None:
        if self.is_over:
            raise ValueError("a second response")

    def on_status(self, reason: bytes) -> None:
        self._check(reason)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._check(value)
        if self.status is None and name.lower() == b"content-encoding":
            self._encoding = value.decode("ascii").strip().lower()

    def _check(self, text: bytes) -> None:
        """Refuse bytes beyond ASCII and NUL, which the parser accepts."""
        if self.status is None and not (text.isascii() and b"\0" not in text):
            raise ValueError("a head must be ASCII")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if not 100 <= status <= 599 or self._parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("not a response of HTTP/1.x")
        if status >= 200:
            self.status = status
            return
        self._interim += 1
        self._encoding = ""
        if self._interim > INTERIM_MAX or status == 101:
            raise ValueError("too many interim responses, or another protocol")

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        self.body += data[: 4 * limits.WEBHOOK_EXCERPT_LENGTH_MAX - len(self.body)]
        if self._body_bytes >= BODY_BYTES_MAX:
            self.is_over = True

    def on_message_complete(self) -> None:
        if self.status is not None and not self.is_over:
            self.is_over = True
            self.can_reuse_connection = self._parser.should_keep_alive()


def _printable(text: str) -> str:
    """Return the text with spaces for white space, and with a replacement character for every other control."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)
