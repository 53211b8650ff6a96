"""The one step that completes FastAPI's OpenAPI document.

FastAPI's generator describes every operation from its declaration. This step adds the facts that hold for every
operation: refusals of the common checks, headers, examples of resources, and schemas without repeated titles.
"""

import asyncio
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.openapi import utils
from pydantic.warnings import UnsupportedFieldAttributeWarning

from booking_core.base import errors as kinds
from booking_core.base.errors import BookingError
from booking_core.models import docstrings
from booking_core.models.base import Resource
from booking_core.models.errors import ErrorBody, ErrorDetail
from booking_core.models.json import JsonObject
from booking_core.models.scopes import Scope
from booking_core.records.idempotency import STORED_REFUSALS, Answer
from booking_server.api import errors
from booking_server.api.dependencies import ApiRouter, ServiceDep, credentials_of
from booking_server.api.errors import KEY_REFUSALS, REQUEST_ID, DeclaredRefusal, examples_of, refusals
from booking_server.api.openapi import data
from booking_server.api.parameters import QueryParameters

_API = "/api/v1/"


def generator(app: FastAPI) -> Callable[[], JsonObject]:
    """Return the function that replaces `app.openapi`, as in FastAPI's "Extending OpenAPI"."""

    def openapi() -> JsonObject:
        from booking_server.api.openapi import webhooks  # its models are for the document only

        if not app.openapi_schema:
            _describe_queries(QueryParameters)
            with warnings.catch_warnings():
                # FastAPI ignores this warning about the alias that it adds to a body, but our models are built here.
                warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)
                described = utils.get_openapi(
                    title=app.title,
                    version=app.version,
                    description=data.description(),
                    license_info=app.license_info,
                    tags=[{"name": name, "description": text} for name, text in data.examples()["tags"].items()],
                    servers=app.servers,
                    routes=app.routes,
                    webhooks=[*webhooks.router().routes, *app.webhooks.routes],
                    separate_input_output_schemas=False,
                )
            app.openapi_schema = complete(described)
        return app.openapi_schema

    return openapi


def _describe_queries(model: type[QueryParameters]) -> None:
    """Describe parameters by their docstrings: FastAPI reads the fields of a parameter model, and not its schema."""
    for name, text in docstrings.of_fields(model).items():
        model.model_fields[name].description = text
    for subclass in model.__subclasses__():
        _describe_queries(subclass)


def rendered(document: JsonObject) -> bytes:
    """Return the document as it is served and kept in the repository."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def complete(document: JsonObject) -> JsonObject:
    """Return the document with the facts that hold for all operations of the API; other operations stay unchanged."""
    document = _with_page_names(document)
    document["info"]["x-changelog"] = data.changes()
    document["security"] = [{"bearer": []}]
    components = document["components"]
    components |= {kind: dict(data.components()[kind]) for kind in ("parameters", "headers")}
    for path, item in document["paths"].items():
        for method, operation in item.items() if path.startswith(_API) else ():
            _complete_operation(operation, method, path, components)
    for kind, item in document["webhooks"].items():
        _complete_webhook(item["post"], kind)
    components["responses"] = {
        name: _refused(status, examples_of(refusals(*refused)[status]))
        for status, (name, refused) in _SHARED.items()
        if refused
    }
    components["responses"]["InternalError"] = _internal_error()
    schemas = components["schemas"]
    if not any(path for path in document["paths"] if not path.startswith(_API)):
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
    components["schemas"] = {name: _tidied(schemas[name]) for name in sorted(schemas)}
    return document


def _with_page_names(document: JsonObject) -> JsonObject:
    """Return the document with plain names of pages: `Page[Booking]` is BookingPage, `EventPage[Event]` EventPage."""
    text = re.sub(rb"(?<=[/\"])\w*Page_(\w+)_(?=\")", rb"\1Page", orjson.dumps(document))
    renamed: JsonObject = orjson.loads(text)
    return renamed


# Operations ----------------------------------------------------------------------------------------------------------


def _complete_operation(operation: JsonObject, method: str, path: str, components: JsonObject) -> None:
    schemas = components["schemas"]
    scopes = [scope for requirement in operation.get("security", ()) for scope in requirement["bearer"]]
    is_public = "security" not in operation
    if is_public:
        operation["security"] = []
    elif len(scopes) == 1:
        operation["x-required-scope"] = scopes[0]
        needs = f"Needs the scope `{scopes[0]}`."
        operation["description"] = " ".join(filter(None, (_one_line(operation.get("description", "")), needs)))
    else:  # any of them
        operation["security"] = [{"bearer": [scope]} for scope in scopes] or [{"bearer": []}]
    if "description" in operation:
        operation["description"] = _one_line(operation["description"])
    if "requestBody" in operation:
        _complete_body(operation)
    takes_key = _complete_parameters(operation, components["parameters"])
    malformed = _malformed(operation, schemas)
    common = _common(operation, method, path, scopes, malformed, is_public=is_public)
    _complete_responses(operation, common, schemas, is_stored=takes_key)
    if "304" in operation["responses"]:
        operation["parameters"].append({"$ref": "#/components/parameters/IfNoneMatch"})
        for status in ("200", "304"):
            operation["responses"][status]["headers"] |= _header_refs({"etag": "ETag"})


def _complete_parameters(operation: JsonObject, common: JsonObject) -> bool:
    """Name the shared parameters by reference, and return whether the operation takes an Idempotency-Key.

    Args:
        common: the shared parameters by name; the Idempotency-Key is added to them.
    """
    parameters, takes_key = [], False
    for parameter in operation.get("parameters", ()):
        if "x-required" in parameter["schema"]:
            takes_key = True
            name = "IdempotencyKeyRequired" if parameter["schema"]["x-required"] else "IdempotencyKeyOptional"
            common[name] = _idempotency_key(parameter)
            parameters.append({"$ref": f"#/components/parameters/{name}"})
        else:
            parameters.append(_parameter(parameter))
    operation["parameters"] = [*parameters, {"$ref": "#/components/parameters/RequestId"}]
    return takes_key


def _parameter(parameter: JsonObject) -> JsonObject:
    """Return the parameter with its description once, its example beside its schema, and without the type null."""
    schema = _tidied(_without_null(parameter["schema"]))
    schema.pop("description", None)
    examples = schema.pop("examples", None)
    return parameter | {"schema": schema} | ({"example": examples[0]} if examples else {})


def _idempotency_key(parameter: JsonObject) -> JsonObject:
    described = _parameter(parameter)
    return described | {"required": described["schema"].pop("x-required")}


def _complete_body(operation: JsonObject) -> None:
    """Add the example of a body, and drop the default of a body that may be absent."""
    media = operation["requestBody"]["content"]["application/json"]
    media["example"] = data.examples()["bodies"][_model_of(media)]
    for repeated in ("default", "title"):
        media["schema"].pop(repeated, None)


def _model_of(media: JsonObject) -> str:
    """Return the name of the model of a body; empty for no model."""
    reference: str = media.get("schema", {}).get("$ref", "")
    return reference.rpartition("/")[2]


def _without_null(schema: JsonObject) -> JsonObject:
    """Return the schema of a parameter that may be absent, but never null."""
    if "anyOf" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    (alternative,) = [alternative for alternative in schema["anyOf"] if alternative != {"type": "null"}]
    return {**alternative, **rest}


def _common(
    operation: JsonObject, method: str, path: str, scopes: Sequence[str], malformed: BookingError, *, is_public: bool
) -> list[DeclaredRefusal]:
    """Return the refusals of the checks that every operation of this kind makes, in their order (decision R1)."""
    if is_public:
        return [kinds.RateLimited, kinds.HeadersTooLarge]
    common: list[DeclaredRefusal] = [*KEY_REFUSALS, kinds.RateLimited, kinds.AppNotEnabled, kinds.PlanUpgradeRequired]
    if scopes:
        common.append(kinds.InsufficientScope(Scope(scopes[0])))
    writes = method != "get"
    if writes or len(operation["parameters"]) > 1 + path.count("{"):
        common.append(malformed)
    if {"$ref": "#/components/parameters/IdempotencyKeyRequired"} in operation["parameters"]:
        common.append(kinds.IdempotencyKeyRequired)
    if "{" in path:
        common.append(kinds.NotFound)
    if writes:
        common += [kinds.PayloadTooLarge, kinds.UnsupportedMediaType]
    if any("IdempotencyKey" in parameter.get("$ref", "") for parameter in operation["parameters"]):
        common += [kinds.IdempotencyInProgress, kinds.IdempotencyKeyReused]
    return [*common, kinds.HeadersTooLarge, kinds.Unavailable]


def _malformed(operation: JsonObject, schemas: JsonObject) -> BookingError:
    """Return the refusal of a parameter that is empty, or of a body without its required fields."""
    query = [parameter["name"] for parameter in operation["parameters"] if parameter.get("in") == "query"]
    if query:
        return kinds.Malformed.at(query[0], "is empty", "too_short")
    media = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    required = schemas.get(_model_of(media), {}).get("required", ())
    if not required:
        return kinds.Malformed("The body is not valid JSON.")
    details = [ErrorDetail(field=name, reason="required", message="is required") for name in required]
    return kinds.Malformed(f"{required[0]}: is required", details=details)


# Responses -----------------------------------------------------------------------------------------------------------


def _complete_responses(
    operation: JsonObject, common: Iterable[DeclaredRefusal], schemas: JsonObject, *, is_stored: bool
) -> None:
    responses = operation["responses"]
    invalid = responses.get("422", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if invalid.get("$ref", "").endswith("/HTTPValidationError"):
        del responses["422"]
    examples = {int(status): examples_of(response) for status, response in refusals(*common).items()}
    is_walked = any(parameter.get("name") == "starting_after" for parameter in operation["parameters"])
    documented = {}
    for status, response in responses.items():
        if int(status) < 400:
            documented[status] = _success(response, schemas, is_stored=is_stored, is_walked=is_walked)
        else:  # the operation's declaration replaces the common example of the same code
            examples[int(status)] = examples.get(int(status), {}) | examples_of(response)
    for number, of_status in examples.items():
        name = _SHARED.get(number, ("", ()))[0]
        documented[str(number)] = _component(name) if name else _refused(number, of_status, is_stored=is_stored)
    documented["500"] = _component("InternalError")
    operation["responses"] = {status: documented[status] for status in sorted(documented)}


_KINDS = {(status, str(kind.code)): kind for kind, status in errors.STATUS.items()}
_HEADERS_OF: Mapping[type[BookingError], Mapping[str, str]] = {
    **{kind: {"WWW-Authenticate": "WWWAuthenticate"} for kind in KEY_REFUSALS},
    kinds.MethodNotAllowed: {"Allow": "Allow"},
    kinds.IdempotencyInProgress: {"Retry-After": "RetryAfterInProgress"},
    kinds.RateLimited: {"Retry-After": "RetryAfter"},
    kinds.Unavailable: {"Retry-After": "RetryAfter"},
}
"""Additional headers of a response, by their component."""


def _refused(status: int, examples: JsonObject, *, is_stored: bool = False) -> JsonObject:
    """Return the response of refusals with the examples of their codes."""
    refused = [_KINDS[status, code] for code in examples]
    headers = _headers(
        *(_HEADERS_OF.get(kind, {}) for kind in refused),
        is_stored=is_stored and any(kind in STORED_REFUSALS for kind in refused),
    )
    return _error_response([f"- `{kind.code}`: {kind.message}" for kind in refused], headers, examples)


def _error_response(lines: Sequence[str], headers: JsonObject, examples: JsonObject) -> JsonObject:
    """Return a response with the error body as its schema, and the codes that it can have there.

    The codes are next to the reference and not in `allOf`. So generated clients have one class of errors, and its
    `code` stays open for later codes.
    """
    for example in examples.values():
        # FastAPI drops null values in an example.
        example["value"] = _with_fields(example["value"])
    codes = {"properties": {"code": {"type": "string", "enum": list(examples)}}}
    schema = {"$ref": "#/components/schemas/ErrorBody", **codes}
    content = {"application/json": {"schema": schema, "examples": examples}}
    return {"description": "\n".join(lines), "headers": headers, "content": content}


def _with_fields(error: JsonObject) -> JsonObject:
    if "details" not in error:
        return error
    return error | {"details": [{"field": None} | detail for detail in error["details"]]}


def _success(response: JsonObject, schemas: JsonObject, *, is_stored: bool, is_walked: bool) -> JsonObject:
    documented = {"description": response["description"], "headers": _headers(is_stored=is_stored)}
    if content := response.get("content"):
        schema = content["application/json"]["schema"]
        schema.pop("title", None)
        example = _example(_model_of(content["application/json"]), schemas, is_walked=is_walked)
        documented["content"] = {
            "application/json": {"schema": schema, **({} if example is None else {"example": example})}
        }
    return documented


def _example(model: str, schemas: JsonObject, *, is_walked: bool) -> Any:
    example = _example_of(model, schemas)
    if example is not None:
        return example
    item = _example_of(model.removesuffix("Page"), schemas)
    if item is None:
        return None
    page = {"data": [item], "has_more": is_walked, "next_cursor": data.CURSOR if is_walked else None}
    return page | {"resume_cursor": data.CURSOR} if model == "EventPage" else page


def _example_of(model: str, schemas: JsonObject) -> Any:
    """Return the example of a model, from the data file or from the model itself."""
    examples = schemas.get(model, {}).get("examples", [None])
    return data.examples()["resources"].get(model, examples[0])


def _component(name: str) -> JsonObject:
    return {"$ref": f"#/components/responses/{name}"}


def _internal_error() -> JsonObject:
    body = orjson.loads(errors.internal(REQUEST_ID).body)
    return _error_response([f"- `{body['code']}`: {body['error']}"], _headers(), {body["code"]: {"value": body}})


_SHARED: Mapping[int, tuple[str, Sequence[type[BookingError]]]] = {
    401: ("Unauthorized", KEY_REFUSALS),
    405: ("MethodNotAllowed", [kinds.MethodNotAllowed]),
    413: ("PayloadTooLarge", [kinds.PayloadTooLarge]),
    415: ("UnsupportedMediaType", [kinds.UnsupportedMediaType]),
    429: ("RateLimited", [kinds.RateLimited]),
    431: ("HeadersTooLarge", [kinds.HeadersTooLarge]),
    500: ("InternalError", []),
    503: ("ServiceUnavailable", [kinds.Unavailable]),
}
"""Statuses that mean the same in every operation, with the name of their component."""


# Webhooks ------------------------------------------------------------------------------------------------------------


def _complete_webhook(operation: JsonObject, kind: str) -> None:
    operation["security"] = []
    if kind in data.examples()["event_data"]:
        # Not declared with the body: FastAPI drops null fields of an example.
        operation["requestBody"]["content"]["application/json"]["example"] = data.envelope(kind)
    operation["parameters"] = [_parameter(parameter) for parameter in operation["parameters"]]
    operation["responses"] = {
        status: {"description": operation["responses"][status]["description"]} for status in ("2XX", "default")
    }


# Components ----------------------------------------------------------------------------------------------------------


def _headers(*more: Mapping[str, str], is_stored: bool = False) -> JsonObject:
    """Return the headers that every response has, and more: their components by name."""
    names = dict(_HEADERS_EVERYWHERE) | ({"Idempotent-Replayed": "IdempotentReplayed"} if is_stored else {})
    for headers in more:
        names |= headers
    return _header_refs({name: names[name] for name in sorted(names, key=str.lower)})


def _header_refs(components: Mapping[str, str]) -> JsonObject:
    """Return references to header components, by the header's name."""
    return {name: {"$ref": f"#/components/headers/{component}"} for name, component in components.items()}


_HEADERS_EVERYWHERE = {
    "x-request-id": "RequestId",
    "x-ratelimit-limit": "RateLimitLimit",
    "x-ratelimit-remaining": "RateLimitRemaining",
    "x-ratelimit-reset": "RateLimitReset",
}

# Schemas -------------------------------------------------------------------------------------------------------------

_REFERENCE = re.compile(r"\s*\((?:API v1|decisions?) [^)]*\)|^Decision \w+\.$")
"""Points a developer to the reason of a rule; a reader of the document has no such page."""


def _one_line(text: str) -> str:
    return _REFERENCE.sub("", " ".join(text.split()))


def _tidied(schema: Any) -> Any:
    """Return the schema without titles and null defaults, its description on one line, its integers as int64."""
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidied = {key: _tidied(value) for key, value in schema.items() if not (key == "default" and value is None)}
    if isinstance(tidied.get("title"), str):
        del tidied["title"]
    if tidied.get("type") == "integer":
        if "maximum" not in tidied:
            tidied["format"] = "int64"
        # FastAPI's model of a schema makes them floats.
        tidied |= {bound: int(tidied[bound]) for bound in ("minimum", "maximum") if bound in tidied}
    if not isinstance(tidied.get("description"), str):  # none, or a property of that name
        return tidied
    description = _one_line(tidied.pop("description"))
    return {"description": description, **tidied} if description else tidied


# Its operation --------------------------------------------------------------------------------------------------------

router = ApiRouter(prefix="/api/v1/openapi.json", tags=["Description"])


class OpenApi(Resource):
    """An OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]


@router.get(
    "",
    summary="This description",
    response_model=OpenApi,
    response_description="The description.",
    responses={429: {"model": ErrorBody} | refusals(kinds.RateLimited)[429]},  # FastAPI finds the schema of errors here
)
async def get_openapi(request: Request, service: ServiceDep) -> Answer:
    """Needs no key. It takes precedence over other documentation."""

    def run() -> Answer:
        service.authenticator.count_address(credentials_of(request))
        return Answer(200, _rendered(request.app))

    # In a thread: a shared store of the limiter is called over a socket, and the first rendering would block the event
    # loop for about a second.
    return await asyncio.to_thread(run)


_rendering = threading.Lock()


def _rendered(app: FastAPI) -> bytes:
    """Return the document as JSON, rendered at the first call."""
    with _rendering:
        if not hasattr(app.state, "openapi_bytes"):
            app.state.openapi_bytes = rendered(app.openapi())
        document: bytes = app.state.openapi_bytes
        return document
