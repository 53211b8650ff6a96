"""Read the parts of the OpenAPI document that commands need without pydantic. `make openapi` generates them."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def load() -> dict[str, Any]:
    """Return the examples of events, the scopes, and the fields of each object of the API."""
    parts: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return parts
