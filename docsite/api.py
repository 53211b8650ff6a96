"""The reference of the HTTP API, generated from `openapi.json`: a page for each tag, the events, and the objects."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from docsite.markdown import code, collapsed, fence, page, slug, table
from docsite.schemas import Schemas, named, referenced

FOLDER = "reference/api"
EVENTS = f"{FOLDER}/webhook-events.md"
OBJECTS = f"{FOLDER}/objects.md"
_METHODS = ("get", "post", "put", "patch", "delete")
_RULED_BY_ALL = ("401", "413", "415", "429", "431", "500", "503")
"""Statuses that mean the same for every operation; the overview describes them."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    body: Mapping[str, Any]

    @property
    def anchor(self) -> str:
        return str(self.body["operationId"])

    @property
    def tag(self) -> str:
        return str(self.body.get("tags", ["Other"])[0])


class Reference:
    """The pages of the API reference."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.schemas = Schemas(document["components"]["schemas"], "objects.md")
        self.operations = [
            Operation(method, path, operations[method])
            for path, operations in document["paths"].items()
            for method in _METHODS
            if method in operations
        ]

    def pages(self) -> dict[str, str]:
        """Return the text of every page by its path."""
        pages = {f"{FOLDER}/index.md": self._overview()}
        for tag in self.tags():
            pages[f"{FOLDER}/{slug(tag)}.md"] = self._tag(tag)
        return pages | {EVENTS: self._events(), OBJECTS: self._objects()}

    def nav(self) -> list[Any]:
        """Return the navigation of the reference."""
        tags = [{tag: f"{FOLDER}/{slug(tag)}.md"} for tag in self.tags()]
        return [f"{FOLDER}/index.md", *tags, {"Webhook events": EVENTS}, {"Objects": OBJECTS}]

    def tags(self) -> list[str]:
        """Return the tags that have operations, in the order of the document."""
        used = dict.fromkeys(operation.tag for operation in self.operations)
        declared = [tag["name"] for tag in self.document.get("tags", ()) if tag["name"] in used]
        return [*declared, *(tag for tag in used if tag not in declared)]

    def _overview(self) -> str:
        info = self.document["info"]
        rows = [
            (
                f"[{operation.body['summary']}]({slug(operation.tag)}.md#{operation.anchor})",
                code(f"{operation.method.upper()} {operation.path}"),
                code(scope) if (scope := operation.body.get("x-required-scope")) else "",
            )
            for tag in self.tags()
            for operation in self.operations
            if operation.tag == tag
        ]
        return page(
            "HTTP API",
            f"These pages are generated from the OpenAPI document, version `{info['version']}`. A running service"
            " serves the same document at `/api/v1/openapi.json`, and an interactive reference at `/docs`.",
            "## Operations",
            table(("operation", "request", "scope"), rows),
            "## Answers of every operation",
            "Beside the answers that an operation lists, each one can give these:",
            self._common_answers(),
            str(info.get("description", "")),
            description="Every operation of the HTTP API, generated from its OpenAPI document.",
        )

    def _common_answers(self) -> str:
        rows = {}
        for operation in self.operations:
            for status, answer in operation.body["responses"].items():
                if status in _RULED_BY_ALL and status not in rows:
                    answer = self._resolved(answer)
                    rows[status] = (status, _line(answer.get("description", "")))
        return table(("status", "meaning"), [rows[status] for status in sorted(rows)])

    def _tag(self, tag: str) -> str:
        described = {each["name"]: each.get("description", "") for each in self.document.get("tags", ())}
        parts = [self._operation(operation) for operation in self.operations if operation.tag == tag]
        return page(tag, described.get(tag, ""), *parts, description=f"API reference: {tag}")

    def _operation(self, operation: Operation) -> str:
        body = operation.body
        scope = body.get("x-required-scope")
        parts = [
            f"## {body['summary']} {{ #{operation.anchor} }}",
            f'<p class="request"><span class="method {operation.method}">{operation.method.upper()}</span>'
            f" <code>{operation.path}</code>" + (f' <span class="scope">{scope}</span>' if scope else "") + "</p>",
            str(body.get("description", "")),
            self._parameters(body),
            self._body(body),
            self._answers(body),
            collapsed("curl", fence(self._curl(operation), "sh")),
            *self._examples(body),
        ]
        return "\n\n".join(part.strip("\n") for part in parts if part.strip())

    def _parameters(self, body: Mapping[str, Any]) -> str:
        rows = []
        for parameter in map(self._resolved, body.get("parameters", ())):
            schema = parameter.get("schema", {})
            notes = [str(parameter["description"])] if "description" in parameter else []
            rest = self.schemas.notes({key: value for key, value in schema.items() if key != "description"})
            required = "" if parameter.get("required") else "optional"
            name = named(parameter["name"], parameter["in"], self.schemas.type_of(schema), required)
            rows.append((name, " ".join([*notes, rest])))
        return "**Parameters**\n\n" + table(("parameter", "meaning"), rows) if rows else ""

    def _body(self, body: Mapping[str, Any]) -> str:
        content = _json(body.get("requestBody", {}))
        if not content:
            return ""
        schema = content.get("schema", {})
        name = referenced(schema)
        target = self.schemas.components.get(name, schema)
        optional = "" if body["requestBody"].get("required") else " (optional)"
        link = f": {self.schemas.link(name)}" if name else ""
        return f"**Body**{optional}{link}\n\n{self.schemas.fields(target)}"

    def _answers(self, body: Mapping[str, Any]) -> str:
        rows = []
        for status, answer in body["responses"].items():
            if status in _RULED_BY_ALL:
                continue
            answer = self._resolved(answer)
            schema = _json(answer).get("schema")
            rows.append((f"**{status}**", self.schemas.type_of(schema) if schema else "", _line(answer["description"])))
        others = ", ".join(status for status in _RULED_BY_ALL if status in body["responses"])
        return (
            "**Answers**\n\n"
            + table(("status", "body", "meaning"), rows)
            + f"\nAlso {others}: see [the answers of every operation](index.md#answers-of-every-operation)."
        )

    def _examples(self, body: Mapping[str, Any]) -> Iterator[str]:
        request = _json(body.get("requestBody", {}))
        for title, example in _examples_of(request, "Body"):
            yield collapsed(title, fence(_pretty(example), "json"))
        refusals = []
        for status, answer in body["responses"].items():
            for title, example in _examples_of(_json(self._resolved(answer)), f"Answer {status}"):
                if status.startswith("2"):
                    yield collapsed(title, fence(_pretty(example), "json"))
                elif status not in _RULED_BY_ALL:
                    refusals.append(f"{title.removeprefix('Answer ')}\n\n{fence(_pretty(example), 'json')}")
        if refusals:
            yield collapsed("Error answers", "\n".join(refusals), "failure")

    def _curl(self, operation: Operation) -> str:
        query, headers = [], ["Authorization: Bearer $BOOKING_API_KEY"]
        if operation.body.get("security") == []:
            headers = []
        for parameter in map(self._resolved, operation.body.get("parameters", ())):
            if parameter.get("required") and parameter["in"] == "query":
                query.append(f"{parameter['name']}={parameter.get('example', 'VALUE')}")
            if parameter.get("required") and parameter["in"] == "header":
                headers.append(f"{parameter['name']}: {parameter.get('example', 'VALUE')}")
        words = ["curl", "-s"]
        if operation.method not in ("get", "post"):
            words += ["-X", operation.method.upper()]
        lines = [" ".join(words)]
        path = re.sub(r"\{(\w+)\}", lambda match: re.sub(r"(?<!^)(?=[A-Z])", "_", match[1]).upper(), operation.path)
        content = _json(operation.body.get("requestBody", {}))
        examples = [example for _, example in _examples_of(content, "")]
        if content:
            headers.append("Content-Type: application/json")
            lines.append(f"-d '{json.dumps(examples[0] if examples else {}, ensure_ascii=False)}'")
        elif operation.method == "post":
            lines[0] += " -X POST"
        lines[1:1] = [f'-H "{header}"' for header in headers]
        suffix = "?" + "&".join(query) if query else ""
        return " \\\n    ".join([*lines, f'"$BOOKING_BASE_URL{path}{suffix}"'])

    def _events(self) -> str:
        webhooks = self.document.get("webhooks", {})
        first = next(iter(webhooks.values()))["post"]
        parts = []
        for name, event in webhooks.items():
            body = event["post"]
            content = _json(body["requestBody"])
            schema = content["schema"]
            target = self.schemas.components.get(referenced(schema), schema)
            data = target.get("properties", {}).get("data", {})
            parts.append(f"## {name} {{ #{name.replace('.', '-')} }}\n\n{body['summary']}")
            parts.append(f"`data`: {self.schemas.type_of(data)}")
            parts += [collapsed(title, fence(_pretty(value), "json")) for title, value in _examples_of(content, "Body")]
        return page(
            "Webhook events",
            str(first.get("description", "")),
            self._parameters(first),
            *parts,
            description="The events that webhooks and the feed carry, with their headers and bodies.",
        )

    def _objects(self) -> str:
        here = Schemas(self.schemas.components, "")
        parts = []
        for name, schema in self.schemas.components.items():
            text = here.fields(schema) or here.notes({key: schema[key] for key in ("enum",) if key in schema})
            parts.append(f"## {name}\n\n{schema.get('description', '')}\n\n{text or here.type_of(schema)}")
        return page(
            "Objects",
            "Every object that requests and answers hold. Clients ignore fields that they do not know, and pass on"
            " values that are newer than they are.",
            *parts,
            description="Every object of the HTTP API with its fields.",
        )

    def _resolved(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        if "$ref" not in item:
            return item
        target: Any = self.document
        for key in item["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return dict(target)


def _json(content: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(content.get("content", {}).get("application/json", {}))


def _examples_of(content: Mapping[str, Any], title: str) -> Iterator[tuple[str, Any]]:
    if "example" in content:
        yield title, content["example"]
    for name, example in content.get("examples", {}).items():
        yield f"{title}: {name}", example.get("value")


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _line(text: str) -> str:
    """Return a description that may be a list as one cell of a table."""
    items = re.findall(r"^- (.*)$", text, re.MULTILINE)
    return "<br>".join(items) if items else text
