"""JSON schemas of the OpenAPI document as Markdown: a type in a few words, and the fields of an object as a table."""

from collections.abc import Iterator, Mapping
from typing import Any

from docsite.markdown import code, slug, table

Schema = Mapping[str, Any]
_PREFIX = "#/components/schemas/"


def referenced(schema: Schema) -> str:
    """Return the name of the component that a schema refers to, or an empty string."""
    reference = schema.get("$ref", "")
    if not reference and len(schema.get("allOf", ())) == 1:
        reference = schema["allOf"][0].get("$ref", "")
    return str(reference).removeprefix(_PREFIX)


class Schemas:
    """The components of a document, and how a page at some place links to them."""

    def __init__(self, components: Mapping[str, Schema], objects_page: str) -> None:
        self.components = components
        self.objects_page = objects_page
        """Path of the page that describes the objects, relative to the page in the making; empty on itself."""

    def link(self, name: str) -> str:
        """Return a link to the description of a component."""
        return f"[{name}]({self.objects_page}#{slug(name)})"

    def type_of(self, schema: Schema) -> str:
        """Return the type of a value, in a few words with links."""
        if name := referenced(schema):
            target = self.components.get(name, {})
            return self.link(name) if not self._is_scalar(target) or "enum" in target else self.type_of(target)
        for combined in ("anyOf", "oneOf"):
            if combined in schema:
                return " or ".join(dict.fromkeys(self._alternatives(schema[combined])))
        if "const" in schema:
            return code(str(schema["const"]))
        if schema.get("type") == "array":
            return f"array of {self.type_of(schema.get('items', {}))}"
        kind = schema.get("type", "any")
        kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
        return f"{kind} ({schema['format']})" if "format" in schema else kind

    def _alternatives(self, schemas: list[Schema]) -> Iterator[str]:
        """Yield the types of a union, without the plain string that stands for values added later."""
        has_values = any("enum" in self.components.get(referenced(each), each) for each in schemas)
        for each in schemas:
            if not (has_values and each == {"type": "string"}):
                yield self.type_of(each)

    @staticmethod
    def _is_scalar(schema: Schema) -> bool:
        return schema.get("type") in ("string", "integer", "number", "boolean")

    def fields(self, schema: Schema) -> str:
        """Return the fields of an object as a table."""
        required = set(schema.get("required", ()))
        rows = [
            (named(name, self.type_of(each), "" if name in required else "optional"), self.notes(each))
            for name, each in schema.get("properties", {}).items()
        ]
        return table(("field", "meaning"), rows)

    def notes(self, schema: Schema) -> str:
        """Return the description of a value with its limits."""
        parts = [str(schema["description"])] if "description" in schema else []
        for each in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
            target = self.components.get(referenced(each), {})
            parts += limits({**each, "enum": target["enum"]} if "enum" in target else each)
        return " ".join(parts)


def named(name: str, *facts: str) -> str:
    """Return the first cell of a field or parameter: its name, and below it what fits into a few words."""
    return f"{code(name)}<br><small>{', '.join(fact for fact in facts if fact)}</small>"


def limits(schema: Schema) -> Iterator[str]:
    """Yield sentences about the values that a schema allows."""
    if "enum" in schema:
        yield "One of " + ", ".join(code(str(value)) for value in schema["enum"]) + "."
    if schema.get("type") == "array" and "enum" in schema.get("items", {}):
        yield "Of " + ", ".join(code(str(value)) for value in schema["items"]["enum"]) + "."
    yield from _range(schema.get("minLength"), schema.get("maxLength"), "characters")
    yield from _range(schema.get("minItems"), schema.get("maxItems"), "items")
    yield from _range(schema.get("minimum"), schema.get("maximum"), "")
    if "default" in schema and schema["default"] is not None:
        yield f"Default {code(str(schema['default']))}."


def _range(low: Any, high: Any, unit: str) -> Iterator[str]:
    unit = f" {unit}" if unit else ""
    if low is not None and high is not None:
        yield f"{low} to {high}{unit}."
    elif high is not None:
        yield f"At most {high}{unit}."
    elif low is not None:
        yield f"At least {low}{unit}."
