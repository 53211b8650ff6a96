"""Checks of a request's head: its bounds before uvicorn's parser reads it, and what the parser lets through."""

import re
from collections.abc import Sequence

from booking_core.base.errors import HeadersTooLarge, Malformed
from booking_core.models.limits import REQUEST_FIELDS_MAX, REQUEST_HEAD_BYTES_MAX

NOT_HTTP = "This is not a valid HTTP/1.1 request."

Field = tuple[bytes, bytes]

_EMPTY_LINE = b"\r\n"
_BLANK_LINE = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [!-~]+ HTTP/1\.[01]\r")
_FIELD_LINE = re.compile(rb"[^\r\x00]*\r")
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)
_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]+")
_CHECKED_FIELDS = frozenset({b"host", b"content-length", b"transfer-encoding"})
_PARSER_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})


def end_of(text: bytes) -> int | None:
    """Return where a head ends, or None while it is not complete.

    Raises:
        Malformed: a line is invalid.
        HeadersTooLarge: there are more bytes or lines than a head may have.
    """
    start = len(_EMPTY_LINE) if text.startswith(_EMPTY_LINE) else 0  # old clients send an empty line after a body
    end = text.find(_BLANK_LINE, start + 1, REQUEST_HEAD_BYTES_MAX)
    if end < 0:
        _check_lines(text[start:REQUEST_HEAD_BYTES_MAX])
        if len(text) >= REQUEST_HEAD_BYTES_MAX:
            raise HeadersTooLarge
        return None
    if text.count(b"\n", start, end) > REQUEST_FIELDS_MAX or not _REQUEST_LINE.match(text, start):
        _check_lines(text[start : end + 2])
    return end + len(_BLANK_LINE)


def _check_lines(text: bytes) -> None:
    """Refuse the beginning of a head by its first invalid line, or its first one too many.

    A proxy may take a bare line feed or a NUL for the end of a line, which allows request smuggling.
    """
    *lines, rest = text.split(b"\n")
    for number, line in enumerate(lines):
        if not (_FIELD_LINE if number else _REQUEST_LINE).fullmatch(line):
            raise Malformed(NOT_HTTP)
        if number > REQUEST_FIELDS_MAX:
            raise HeadersTooLarge
    if not _FIELD_LINE.fullmatch(rest.removesuffix(b"\r") + b"\r"):
        raise Malformed(NOT_HTTP)


def until_blank_line(text: bytes) -> bytes:
    """Return the text until the end of its first blank line, with which a chunked body ends; without one all of it."""
    end = text.find(_BLANK_LINE)
    return text[: end + len(_BLANK_LINE)] if end >= 0 else text


def for_parser(head: bytes) -> tuple[bytes, str]:
    """Return a complete head as the parser takes it, and its method.

    The application answers an unknown method with 405, where the parser would refuse it or change protocols. An upgrade
    is an offer, and the request is answered without it.
    """
    head = _UPGRADE.sub(b"", head.removeprefix(_EMPTY_LINE))
    method = head[: head.index(b" ")]
    return head if method in _PARSER_METHODS else b"GET" + head.removeprefix(method), method.decode("ascii")


def body_length(headers: Sequence[Field], version: str) -> int | None:
    """Return the length of the body, or None if it is chunked.

    Raises:
        Malformed: the host is missing or ambiguous, or the body has another transfer coding.
    """
    found = [(name, value.strip()) for name, value in headers if name in _CHECKED_FIELDS]
    hosts = [value for name, value in found if name == b"host"]
    is_absent = not hosts and version == "1.0"  # as health checks of load balancers are
    if not is_absent and (len(hosts) != 1 or not _HOST.fullmatch(hosts[0])):
        raise Malformed.at("Host", "must be sent exactly once, with a valid value", "host")
    codings = [value.lower() for name, value in found if name == b"transfer-encoding"]
    if not codings:
        return next((int(value) for name, value in found if name == b"content-length"), 0)
    if version == "1.0" or codings != [b"chunked"]:
        raise Malformed.at("Transfer-Encoding", "must be chunked, alone, and sent by HTTP/1.1", "transfer_encoding")
    return None


def check_trailers(trailers: Sequence[Field]) -> None:
    """Refuse fields after a body that control the connection or the body. All others are dropped."""
    if any(name in _CHECKED_FIELDS for name, _ in trailers):
        raise Malformed(NOT_HTTP)
