"""The type of JSON objects whose fields are not modelled."""

from typing import Any

JsonObject = dict[str, Any]
