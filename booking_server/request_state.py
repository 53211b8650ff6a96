"""The facts about a request that the layers of the server share, as one object in its scope."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from booking_core.base import tokens
from booking_core.models.limits import REQUEST_ID_LENGTH_MAX
from booking_server.execution.authenticator import Credentials

_KEY = "booking.state"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % REQUEST_ID_LENGTH_MAX)


@dataclass(slots=True)
class RequestState:
    """The state of one request."""

    request_id: str
    credentials: Credentials
    """The key of the request, parsed once, and its address. The authenticator adds the state of the rate limit."""
    error_code: str | None = None
    """The code of the refusal that is the response."""
    reason: str | None = None
    """The reason of a refusal with 503."""
    is_withdrawn: bool = False
    """The HTTP protocol refuses the request, since its body is invalid: it is counted there."""
    span: Any = None
    """The span of the request, if it is recorded or continues a trace."""
    span_token: Any = None
    """Detaches the span from the context of the request."""


def state_of(scope: Scope) -> RequestState:
    """Return the state of a request. The first call makes it, normally that of the outermost middleware."""
    state: RequestState | None = scope.get(_KEY)
    if state is None:
        headers, client = scope["headers"], scope.get("client")
        credentials = Credentials(headers, client[0] if client else "")
        state = scope[_KEY] = RequestState(request_id_of(headers), credentials)
    return state


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's own id if it is well-formed, else a new one (decision R8)."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req_{tokens.random_hex(24)}"


def path_of(scope: Scope) -> str:
    """Return the path of a request without the root path of the service."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
