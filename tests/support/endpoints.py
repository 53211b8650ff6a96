"""The operations of the API, as its OpenAPI document lists them."""

from dataclasses import dataclass
from typing import Any

from booking_core.models.scopes import Scope
from booking_server.app import describe

DOCUMENT: dict[str, Any] = describe().openapi()


@dataclass(frozen=True)
class Operation:
    """A path and its method; `scope` is None if the scope depends on the request."""

    id: str
    method: str
    path: str
    scope: Scope | None


OPERATIONS = tuple(
    Operation(
        found["operationId"],
        method.upper(),
        path,
        Scope(found["x-required-scope"]) if "x-required-scope" in found else None,
    )
    for path, item in DOCUMENT["paths"].items()
    for method, found in item.items()
    if found["security"]
)
"""Every operation that needs a key."""
