"""The URLs of webhooks, which every parser reads in the same way."""

import ipaddress
import re
from typing import NamedTuple

from booking_core.models.reasons import Fault

HTTPS_PORT, HTTP_PORT = 443, 80
_URL = re.compile(r"(https?)://([^/?]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\#\u2028\u2029\ufeff\ud800-\udfff]|\s")
"""Control characters, white space, backslashes and fragments: parsers interpret such URLs differently."""
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@%]+))(?::([0-9]{1,5}))?")
"""Without user information, and without percent-encoding, which excludes IPv6 zones."""
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class WebhookUrl(NamedTuple):
    """The parts of a URL, as they are written."""

    is_tls: bool
    host: str
    """Without the brackets of an IPv6 address."""
    port: int
    path: str
    """Path and query."""


def split_url(url: str, *, allow_http: bool) -> WebhookUrl:
    """Split a URL, and refuse a URL that two parsers could read in two ways.

    Raises:
        Fault: it is not plainly an https URL with a host.
    """
    if _FORBIDDEN.search(url):
        raise Fault("wrong_format", "must have no white space, backslash or fragment")
    parts = _URL.fullmatch(url)
    if not parts or (parts[1].lower() == "http" and not allow_http):
        raise Fault("not_https", "must begin with https://")
    authority = _AUTHORITY.fullmatch(parts[2])
    if not authority or not (_is_ipv6(authority[1]) if authority[1] else is_host(authority[2])):
        message = "must name a host in its usual notation, without user or password"
        raise Fault("wrong_format", message)
    is_tls = parts[1].lower() == "https"
    port = int(authority[3]) if authority[3] else HTTPS_PORT if is_tls else HTTP_PORT
    if not 1 <= port <= 65535:
        raise Fault("out_of_range", "must have a port from 1 to 65535")
    return WebhookUrl(is_tls, authority[1] or authority[2], port, (parts[3] or "/") + (parts[4] or ""))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """Return whether the text is a host name, or an IPv4 address as four decimal numbers.

    `127.1`, `0x7f000001` and digits of other scripts are addresses to some resolvers and names to others.
    """
    try:
        host = text if text.isascii() else text.encode("idna").decode()
    except UnicodeError:
        return False
    labels = host.lower().removesuffix(".").split(".")
    if not all(map(_LABEL.fullmatch, labels)):
        return False
    return text == _canonical(text) if _NUMBER.fullmatch(labels[-1]) else len(host) <= 253


def _canonical(text: str) -> str | None:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        return None
