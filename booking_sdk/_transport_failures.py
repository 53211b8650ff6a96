"""Translates the exceptions of an HTTP client into the SDK's own `Failure`."""

from urllib.parse import urlsplit

from booking_sdk._attempt_timeout import AttemptTimedOut, AttemptTimeout
from booking_sdk._retries import Failure

# The class names of httpx, not its classes: a fork with the same names is supported too.
_NOT_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}
_FAILED = {"RequestError", "InvalidURL", "DecodingError"}
"""`InvalidURL` is the Location of a redirect that cannot be parsed; `DecodingError` is raised by `_body` too."""


def failure_of(error: Exception, timeout: AttemptTimeout | None = None) -> Failure | None:
    """Return the failure that an exception of the HTTP client means; None for any other exception."""
    names = {kind.__name__ for kind in type(error).__mro__}
    timed_out = "TimeoutException" in names or isinstance(error, (AttemptTimedOut, TimeoutError))
    if not timed_out and not isinstance(error, OSError) and names.isdisjoint(_FAILED):
        return None
    sent = names.isdisjoint(_NOT_SENT) and (timeout is None or timeout.may_have_sent)
    name = type(error).__name__
    # The HTTP client's own words are used only when connecting failed: later messages can contain request data.
    if not sent:
        detail = f"{name}: {error}" if str(error) else name
        return Failure(sent, timed_out, f"could not connect ({detail})")
    reason = "no complete response arrived in time" if timed_out else "the connection broke before the response ended"
    return Failure(sent, timed_out, f"{reason} ({name})")


def route(url: str, *, is_callers: bool) -> str:
    """Return the words for the way to a URL: the proxy of the environment, or none.

    Args:
        is_callers: The HTTP client is the caller's own, which may have any proxy.
    """
    # Imported here: only a failed attempt needs it.
    from urllib.request import getproxies, proxy_bypass

    if is_callers:
        return " by your http_client"
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return " without a proxy"
    return f" through the proxy {urlsplit(proxy).netloc.rpartition('@')[2] or 'of the environment'}"
