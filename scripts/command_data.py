"""`python -m scripts.command_data` writes the parts of openapi.json that the command line needs without pydantic.

They are a sentence and an example for each event type, the scopes, and the fields of each object that the API returns.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "booking_cli/framework/openapi_parts.json"
_PREFIX = "#/components/schemas/"

Json = dict[str, Any]


def rendered(document: Json) -> str:
    """Return the content of the file."""
    schemas = document["components"]["schemas"]
    parts = {
        "events": {kind: _body(hook["post"]["requestBody"])["example"] for kind, hook in document["webhooks"].items()},
        "summaries": {kind: hook["post"]["summary"] for kind, hook in document["webhooks"].items()},
        "fields": {name: " ".join(_paths(schemas, name)) for name in sorted(_returned(document))},
        "scopes": schemas["Scope"]["enum"],
    }
    return json.dumps(parts, indent=1, ensure_ascii=False) + "\n"


def _body(part: Json) -> Json:
    media: Json = part.get("content", {}).get("application/json", {})
    return media


def _returned(document: Json) -> set[str]:
    """Return the names of the objects in successful responses: whole ones, items of lists, and objects inside them."""
    schemas = document["components"]["schemas"]
    responses = [
        _body(response).get("schema", {})
        for path in document["paths"].values()
        for operation in path.values()
        for status, response in operation["responses"].items()
        if status.startswith("2")
    ]
    whole = {name for schema in responses if (name := _referred(schema))}
    fields = [field for name in whole for field in schemas[name]["properties"].values()]
    inner = {name for field in fields for part in (field, field.get("items", {})) if (name := _referred(part))}
    return {name for name in whole | inner if "properties" in schemas[name]}


def _paths(schemas: Json, name: str, prefix: str = "") -> Iterator[str]:
    """Yield every field of an object as a dotted path, an object before its fields. Lists are not entered."""
    for field, schema in schemas[name].get("properties", {}).items():
        yield f"{prefix}{field}"
        if inner := _referred(schema):
            yield from _paths(schemas, inner, f"{prefix}{field}.")


def _referred(schema: Json) -> str | None:
    """Return the name of the schema that this one refers to, also if it may be null."""
    options = (schema, *schema.get("anyOf", ()))
    return next((option["$ref"].removeprefix(_PREFIX) for option in options if "$ref" in option), None)


if __name__ == "__main__":
    TARGET.write_text(rendered(json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))), encoding="utf-8")
