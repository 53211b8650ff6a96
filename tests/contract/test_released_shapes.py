"""A client that was written for the released API document works against the current one.

`released_shapes.json` has the operations, fields and enums of that document. A breaking change is announced (API v1
section 9), gets a new version, and replaces the shapes recorded here.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = json.loads((Path(__file__).parents[2] / "openapi.json").read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
RELEASED = json.loads(Path(__file__).with_name("released_shapes.json").read_text())


def references(value: Any) -> Iterator[str]:
    """Yield the names of the schemas below a value, directly or through other schemas."""
    pending, names = [value], set[str]()
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending += node.values()
            name = str(node.get("$ref", "")).rpartition("/")[2]
            if name in SCHEMAS and name not in names:
                names.add(name)
                pending.append(SCHEMAS[name])
        elif isinstance(node, list):
            pending += node
    yield from names


OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}
REQUESTS = {name for operation in OPERATIONS.values() for name in references(operation.get("requestBody", {}))}


def type_of(schema: dict[str, Any]) -> str:
    """Return the type of a field in one word: names of objects and enums, formats, alternatives between bars."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        is_named = "properties" in SCHEMAS[name] or "enum" in SCHEMAS[name]
        return str(name) if is_named else type_of(SCHEMAS[name])
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return "|".join(sorted({type_of(alternative) for alternative in alternatives}))
    if schema.get("type") == "array":
        return f"[{type_of(schema['items'])}]"
    return str(schema.get("format") if schema.get("type") == "string" and "format" in schema else schema.get("type"))


def test_no_operation_was_removed() -> None:
    assert set(RELEASED["operations"]) <= OPERATIONS.keys()


@pytest.mark.parametrize("name", RELEASED["enums"])
def test_no_name_of_an_enum_was_removed(name: str) -> None:
    assert set(RELEASED["enums"][name]) <= set(SCHEMAS[name]["enum"])


@pytest.mark.parametrize("name", RELEASED["objects"])
def test_no_field_was_removed_or_has_another_type(name: str) -> None:
    fields = {field: type_of(schema) for field, schema in SCHEMAS[name]["properties"].items()}
    for field, released in RELEASED["objects"][name]["fields"].items():
        # A field of a response that is never null any more breaks no client.
        accepted = {released} if name in REQUESTS else {released, released.removeprefix("null|")}
        assert fields[field] in accepted, field


@pytest.mark.parametrize("name", RELEASED["objects"])
def test_responses_keep_their_fields_and_requests_need_no_more(name: str) -> None:
    released, required = set(RELEASED["objects"][name]["required"]), set(SCHEMAS[name].get("required", ()))
    if name in REQUESTS:
        assert required <= released
    else:
        assert released <= required
