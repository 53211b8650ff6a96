"""The API key of a request, and the gates behind it (decision R1)."""

from collections.abc import Iterable

from booking_core.context import Caller
from booking_core.errors import ApiKeyInvalid, ApiKeyMissing, AppNotEnabled, PlanUpgradeRequired

_SCHEME = b"bearer"


def bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The key in the Authorization header.

    Raises:
        ApiKeyMissing: there is no bearer header, or it is empty.
        ApiKeyInvalid: there are two, or it holds what no key holds.
    """
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) > 1:
        raise ApiKeyInvalid
    scheme, _, token = found[0].strip().partition(b" ") if found else (b"", b"", b"")
    if scheme.lower() != _SCHEME or not token.strip():
        raise ApiKeyMissing
    try:
        return str(token.strip(), "ascii")
    except UnicodeDecodeError:
        raise ApiKeyInvalid from None


def pass_gates(caller: Caller) -> None:
    """Refuses an organization whose API app is off, or whose plan has no API."""
    if not caller.organization.api_app:
        raise AppNotEnabled
    if not caller.organization.plan_api:
        raise PlanUpgradeRequired
