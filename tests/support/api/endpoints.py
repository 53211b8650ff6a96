"""The operations of the API, as its OpenAPI document lists them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from booking_core.models.scopes import Scope

DOCUMENT: dict[str, Any] = orjson.loads(Path(__file__).parents[3].joinpath("openapi.json").read_bytes())
"""The committed document; `test_openapi.py` compares it with the served document."""


@dataclass(frozen=True)
class Operation:
    """A path and its method; `scope` is None if the scope depends on the request."""

    id: str
    method: str
    path: str
    scope: Scope | None


OPERATIONS = tuple(
    Operation(
        description["operationId"],
        method.upper(),
        path,
        Scope(description["x-required-scope"]) if "x-required-scope" in description else None,
    )
    for path, item in DOCUMENT["paths"].items()
    for method, description in item.items()
    if description["security"]
)
"""Every operation that needs a key."""


def taking_a_key() -> dict[Operation, bool]:
    """Return the operations that store their answer for an Idempotency-Key, and whether each requires it.

    A quote takes the key of an order, and stores nothing for it.
    """
    components = DOCUMENT["components"]["parameters"]
    operations = {}
    for operation in OPERATIONS:
        described = DOCUMENT["paths"][operation.path][operation.method.lower()]
        for referred in described.get("parameters", ()):
            parameter = components.get(referred.get("$ref", "").rpartition("/")[2], referred)
            if parameter["name"] == "Idempotency-Key" and operation.id != "quote_booking":
                operations[operation] = bool(parameter.get("required"))
    return operations
