"""The validated settings of a client. The environment is read when a client is created, never at import."""

import logging
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from booking_sdk._version import __version__
from booking_sdk.errors import ConfigurationError
from booking_sdk.options import ClientOptions, Hooks, RetryDecision, Timeout
from booking_sdk.request import header_pairs

API_KEY_VARIABLE = "BOOKING_API_KEY"
BASE_URL_VARIABLE = "BOOKING_BASE_URL"
LOG_VARIABLE = "BOOKING_LOG"
WEBHOOK_SECRET_VARIABLE = "BOOKING_WEBHOOK_SECRET"  # noqa: S105 - a name, not a secret


@dataclass(frozen=True, slots=True)
class Config:
    """The settings that all calls of a client share. The repr contains no secret."""

    base_url: str
    api_key: Callable[[], str] = field(repr=False)
    timeout: Timeout
    deadline: float | None
    max_retries: int
    max_response_bytes: int
    retry: RetryDecision | None
    default_headers: tuple[tuple[str, str], ...] = field(repr=False)
    """The caller's headers, with names in lower case."""
    webhook_secret: tuple[str, ...] = field(repr=False)
    hooks: Hooks
    user_agent: str

    def with_changes(self, options: ClientOptions) -> "Config":
        """Return a copy with changed settings."""
        if unknown := options.keys() - ClientOptions.__annotations__.keys():
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        return replace(self, **_checked(options))

    def for_call(self, options: Mapping[str, Any]) -> "Config":
        """Return the settings of one call."""
        overrides = _checked({name: value for name, value in options.items() if name in _PER_CALL})
        if headers := options.get("headers"):
            overrides["default_headers"] = (*self.default_headers, *header_pairs(headers))
        return replace(self, **overrides) if overrides else self


def configure(*, base_url: str | None, user_agent_suffix: str | None, **options: Any) -> Config:
    """Validate the settings of a new client. Key, base URL and webhook secret default to environment variables.

    Args:
        options: The settings that `with_options` can change too.

    Raises:
        ConfigurationError: A setting is missing or invalid.
    """
    _log_as_named(os.environ.get(LOG_VARIABLE, ""))
    if options["api_key"] is None:
        options["api_key"] = os.environ.get(API_KEY_VARIABLE, "")
    if options["webhook_secret"] is None:
        options["webhook_secret"] = os.environ.get(WEBHOOK_SECRET_VARIABLE, "").replace(",", " ").split()
    return Config(
        base_url=_checked_base_url(os.environ.get(BASE_URL_VARIABLE, "") if base_url is None else base_url),
        user_agent=_user_agent(user_agent_suffix),
        **_checked(options),
    )


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _CHECKS[name](value) for name, value in options.items()}


def _log_as_named(level: str) -> None:
    """Write the log of the SDK to standard error, with the level of the environment variable if it names one.

    The log has methods, paths, statuses and request ids, and never a header, a query or a body.
    """
    if level not in ("debug", "info"):
        return
    logger = logging.getLogger("booking_sdk")
    logger.setLevel(level.upper())
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        logger.addHandler(handler)


def _checked_base_url(base_url: str) -> str:
    if not base_url:
        raise ConfigurationError(f"base_url is missing: pass it, or set {BASE_URL_VARIABLE}")
    try:
        url = urlsplit(base_url)
        is_plain = base_url.isprintable() and " " not in base_url and url.port != 0
        (url.hostname or "").encode("idna")  # the system does the same, but only when the first request is sent
    except ValueError:
        is_plain = False
    if not is_plain or url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError("base_url must begin with https:// and name a host")
    if url.username is not None or url.query or url.fragment:
        raise ConfigurationError("base_url must hold neither credentials nor a query")
    if url.path.rstrip("/").endswith("/api/v1"):
        raise ConfigurationError("base_url is the service's root: leave /api/v1 away")
    return base_url.rstrip("/")


def validated_api_key(key: str) -> str:
    """Return an API key that is valid in a header. The error message does not contain the key.

    Raises:
        ConfigurationError: The key is empty or contains an invalid character.
    """
    if not isinstance(key, str) or not key:
        raise ConfigurationError(f"api_key is missing: pass it, or set {API_KEY_VARIABLE}")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("api_key holds a space, a line break or another character that no key holds")
    return key


def _checked_api_key(api_key: str | Callable[[], str]) -> Callable[[], str]:
    if callable(api_key):
        return api_key
    key = validated_api_key(api_key)
    return lambda: key


def _checked_timeout(timeout: float | Timeout) -> Timeout:
    if isinstance(timeout, Timeout):
        return timeout
    try:
        return Timeout(timeout, connect=min(Timeout().connect, timeout))
    except (ValueError, TypeError):
        raise ConfigurationError("timeout must be a number of seconds above 0, or a Timeout") from None


def _checked_deadline(deadline: float | None) -> float | None:
    if deadline is not None and not 0 < deadline < math.inf:
        raise ConfigurationError("deadline must be a number of seconds above 0, or None")
    return deadline


def _checked_max_retries(max_retries: int) -> int:
    if not isinstance(max_retries, int) or max_retries < 0:
        raise ConfigurationError("max_retries must be a whole number from 0")
    return max_retries


def _checked_max_response_bytes(max_bytes: int) -> int:
    if not isinstance(max_bytes, int) or max_bytes < 1:
        raise ConfigurationError("max_response_bytes must be a whole number from 1")
    return max_bytes


def _checked_headers(headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    try:
        return header_pairs(headers or {})
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _checked_secrets(secrets: str | Sequence[str] | None) -> tuple[str, ...]:
    listed = [secrets] if isinstance(secrets, str) else list(secrets or ())
    if not listed:
        return ()
    # Imported here: most clients verify no deliveries.
    from webhook_verify.signature import checked_secrets

    try:
        return tuple(checked_secrets(listed))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"webhook_secret: {error}") from None


def _user_agent(suffix: str | None) -> str:
    if suffix and not (suffix.isascii() and suffix.isprintable() and suffix == suffix.strip()):
        raise ConfigurationError("user_agent_suffix must be printable ASCII, without spaces at its ends")
    product = f"booking-sdk/{__version__} python/{platform.python_version()}"
    return f"{product} {suffix}" if suffix else product


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "api_key": _checked_api_key,
    "timeout": _checked_timeout,
    "deadline": _checked_deadline,
    "max_retries": _checked_max_retries,
    "max_response_bytes": _checked_max_response_bytes,
    "retry": lambda retry: retry,
    "default_headers": _checked_headers,
    "webhook_secret": _checked_secrets,
    "hooks": lambda hooks: hooks or Hooks(),
}
_PER_CALL = frozenset({"timeout", "deadline", "max_retries"})
