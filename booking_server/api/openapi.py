"""The machine-readable description of the API: OpenAPI 3.1, built from the operations and the wire models.

Nothing is said twice: statuses and codes follow from what an operation declares and from the table of errors, schemas
are those of the models that parse and answer, and the examples of refusals are the refusals themselves. Words, and the
examples of success, stand in `booking_server.api.description`. `python -m booking_server.api.openapi` prints it.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, create_model
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core.core_schema import AfterValidatorFunctionSchema, IntSchema

from booking_core import errors as refusals
from booking_core.errors import BookingError
from booking_core.idempotency import STORED_REFUSALS
from booking_core.models import base
from booking_core.models.base import Id, Open, Resource
from booking_core.models.bookings import Booking, CancelReason, CancelReasonName
from booking_core.models.customers import Customer
from booking_core.models.errors import ErrorBody
from booking_core.models.events import Envelope, EventType, EventTypeName
from booking_core.models.gift_cards import GiftCard
from booking_core.models.limits import API_VERSION, IDEMPOTENCY_KEY_LENGTH_MAX, IDEMPOTENCY_KEY_LENGTH_MIN
from booking_core.models.money import Money
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_core.models.webhooks import Delivery, WebhookEndpoint
from booking_server.api import bodies, changelog, description, errors
from booking_server.api.description import CURSOR, EXAMPLES, REQUEST_ID
from booking_server.api.operations import Operation
from booking_server.api.params import Param
from booking_server.api.routers import OPERATIONS

Json = dict[str, Any]
Refs = Mapping[type[BaseModel], Json]
"""Where the schema of a model stands."""

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def document() -> Json:
    """The whole description."""
    operations = (*OPERATIONS, description.OPERATION)
    refs, schemas = _schemas(operations)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Booking Service",
            "version": API_VERSION,
            "description": description.PROSE,
            "license": {"name": "MIT", "identifier": "MIT"},
            "x-changelog": changelog.machine_readable(),
        },
        "servers": [{"url": "/", "description": "The service that served this description."}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": words} for name, words in description.TAGS.items()],
        "paths": _paths(operations, refs),
        "webhooks": {str(kind): {"post": _webhook(kind, refs)} for kind in EventType},
        "components": {
            "schemas": schemas,
            "responses": {name: _shared_answer(status, kinds) for status, (name, kinds) in _SHARED.items()},
            "parameters": _PARAMETERS,
            "headers": _HEADERS,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "svc_ and 40 characters",
                    "description": "An API key, made in the organization's settings and shown once.",
                }
            },
        },
    }


def rendered() -> bytes:
    """The description as it is served and kept in the repository."""
    return json.dumps(document(), indent=2, ensure_ascii=False).encode() + b"\n"


# Operations ------------------------------------------------------------------------------------------------------


def _paths(operations: Iterable[Operation], refs: Refs) -> Json:
    ordered = sorted(operations, key=lambda operation: (operation.path, _METHODS.index(operation.method)))
    return {
        path: {operation.method.lower(): _operation(operation, refs) for operation in there}
        for path, there in groupby(ordered, key=lambda operation: operation.path)
    }


def _operation(operation: Operation, refs: Refs) -> Json:
    needs = f"Needs the scope `{operation.scope}`." if operation.scope else ""
    shown: Json = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": " ".join(filter(None, (operation.description, needs))),
        "parameters": _parameters(operation),
    }
    if operation is description.OPERATION:
        shown["security"] = []
    if operation.scope:
        shown["x-required-scope"] = str(operation.scope)
    if operation.body:
        content: Json = {"schema": refs[operation.body]}
        if operation.example is not None:
            content["example"] = operation.example
        shown["requestBody"] = {"required": not operation.body_optional, "content": {"application/json": content}}
    shown["responses"] = _responses(operation, refs)
    return shown


def _parameters(operation: Operation) -> list[Json]:
    shown = [_path_parameter(name) for name in re.findall(r"{(\w+)}", operation.path)]
    shown += [_query_parameter(param) for param in operation.query]
    if operation.idempotency:
        shown.append(_parameter(f"IdempotencyKey{operation.idempotency.capitalize()}"))
    return [*shown, _parameter("RequestId")]


def _path_parameter(name: str) -> Json:
    words = {
        "id": "The id of the resource, in any case.",
        "deliveryId": "The id of the delivery, or of any of its attempts (the `Svc-Delivery-Id` header).",
    }
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": words[name],
        "schema": {"type": "string", "format": "uuid", "pattern": base.UUID_PATTERN},
        "example": EXAMPLES[Booking]["id"],
    }


def _query_parameter(param: Param) -> Json:
    schema = dict(param.schema)
    if schema.get("format") == "date":
        schema["pattern"] = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
    elif schema["type"] == "string" and not schema.keys() & {"enum", "format", "pattern"}:
        schema["pattern"] = _SINGLE_LINE
    shown: Json = {"name": param.name, "in": "query", "description": param.description, "schema": schema}
    if param.required:
        shown["required"] = True
    if param.example is not None:
        shown["example"] = param.example
    return shown


def _parameter(name: str) -> Json:
    return {"$ref": f"#/components/parameters/{name}"}


def _idempotency_key(*, required: bool) -> Json:
    middle = f"{{{IDEMPOTENCY_KEY_LENGTH_MIN - 2},{IDEMPOTENCY_KEY_LENGTH_MAX - 2}}}"
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "required": required,
        "description": (
            "Makes a retry safe: the same key and body are answered as the first time. Printable ASCII; a random UUID "
            "for each thing that is to be done is a good one."
        ),
        "schema": {
            "type": "string",
            "minLength": IDEMPOTENCY_KEY_LENGTH_MIN,
            "maxLength": IDEMPOTENCY_KEY_LENGTH_MAX,
            "pattern": f"^[!-~][ -~]{middle}[!-~]$",
        },
        "example": "4f1c2a9e-7b3d-4e60-8a15-c9d2e6f0b7a3",
    }


_PARAMETERS: Mapping[str, Json] = {
    "IdempotencyKeyOptional": _idempotency_key(required=False),
    "IdempotencyKeyRequired": _idempotency_key(required=True),
    "RequestId": {
        "name": "x-request-id",
        "in": "header",
        "description": (
            "Comes back on the answer when it is at most 128 characters of `A-Z a-z 0-9 . _ -`; else one is made."
        ),
        "schema": {"type": "string"},
        "example": "nightly-sync-0042",
    },
}


# Answers ---------------------------------------------------------------------------------------------------------


def _responses(operation: Operation, refs: Refs) -> Json:
    shown = {status: _success(operation, *answer, refs) for status, answer in operation.answers.items()}
    by_status: dict[int, list[type[BookingError]]] = {}
    for kind in _refusals(operation):
        by_status.setdefault(errors.STATUS[kind], []).append(kind)
    for status, kinds in by_status.items():
        shown[status] = _shared(status) if status in _SHARED else _refusal(kinds, operation)
    shown[errors.INTERNAL_STATUS] = _shared(errors.INTERNAL_STATUS)
    return {str(status): shown[status] for status in sorted(shown)}


def _refusals(operation: Operation) -> list[type[BookingError]]:
    """Every way in which the operation can refuse, in the order of the checks (decision R1)."""
    if operation is description.OPERATION:
        return [refusals.RateLimited, refusals.HeadersTooLarge]
    found = [*_OF_EVERY_KEY]
    if operation.scope or operation.any_scope:
        found.append(refusals.InsufficientScope)
    writes = operation.method != "GET"
    if writes or operation.query:
        found.append(refusals.Malformed)
    if operation.idempotency == "required":
        found.append(refusals.IdempotencyKeyRequired)
    if "{" in operation.path:
        found.append(refusals.NotFound)
    if writes:
        found += [refusals.PayloadTooLarge, refusals.UnsupportedMediaType]
    if operation.idempotency:
        found += [refusals.IdempotencyInProgress, refusals.IdempotencyKeyReused]
    return list(dict.fromkeys([*found, *operation.refusals, *_OF_EVERY_OPERATION]))


_OF_EVERY_OPERATION = (refusals.HeadersTooLarge, refusals.Unavailable)

_OF_EVERY_KEY = (
    refusals.ApiKeyMissing,
    refusals.ApiKeyInvalid,
    refusals.ApiKeyRevoked,
    refusals.ApiKeyExpired,
    refusals.RateLimited,
    refusals.AppNotEnabled,
    refusals.PlanUpgradeRequired,
)

_SHARED: Mapping[int, tuple[str, Sequence[type[BookingError]]]] = {
    401: ("Unauthorized", _OF_EVERY_KEY[:4]),
    405: ("MethodNotAllowed", [refusals.MethodNotAllowed]),
    413: ("PayloadTooLarge", [refusals.PayloadTooLarge]),
    415: ("UnsupportedMediaType", [refusals.UnsupportedMediaType]),
    429: ("RateLimited", [refusals.RateLimited]),
    431: ("HeadersTooLarge", [refusals.HeadersTooLarge]),
    500: ("InternalError", []),
    503: ("ServiceUnavailable", [refusals.Unavailable]),
}
"""Statuses that mean the same wherever they occur, by the name under which they are said once."""


def _success(operation: Operation, words: str, model: type[Resource] | None, refs: Refs) -> Json:
    shown: Json = {"description": words, "headers": _headers(replayed=bool(operation.idempotency))}
    if model is not None:
        content: Json = {"schema": refs[model]}
        example = _example(model, walked=any(param.name == "starting_after" for param in operation.query))
        if example is not None:
            content["example"] = example
        shown["content"] = {"application/json": content}
    return shown


def _example(model: type[Resource], *, walked: bool) -> Any:
    if not issubclass(model, Page):
        return EXAMPLES.get(model)
    (item,) = model.__pydantic_generic_metadata__["args"]
    if item not in EXAMPLES:
        return None
    page = {"data": [EXAMPLES[item]], "has_more": walked, "next_cursor": CURSOR if walked else None}
    return page | {"resume_cursor": CURSOR} if "resume_cursor" in model.model_fields else page


def _shared(status: int) -> Json:
    return {"$ref": f"#/components/responses/{_SHARED[status][0]}"}


def _shared_answer(status: int, kinds: Sequence[type[BookingError]]) -> Json:
    if status == errors.INTERNAL_STATUS:
        body = json.loads(errors.internal(REQUEST_ID).body)
        return _error_answer({body["code"]: body}, f"- `{body['code']}`: {body['error']}", _headers())
    return _refusal(kinds)


def _refusal(kinds: Sequence[type[BookingError]], operation: Operation | None = None) -> Json:
    shown = [json.loads(errors.answer(_refused(kind, operation), REQUEST_ID).body) for kind in kinds]
    words = "\n".join(f"- `{kind.code}`: {kind.message}" for kind in kinds)
    once = bool(operation and operation.idempotency)
    headers = _headers(kinds, replayed=once and any(kind in STORED_REFUSALS for kind in kinds))
    return _error_answer({body["code"]: body for body in shown}, words, headers)


def _error_answer(examples: Mapping[str, Json], words: str, headers: Json) -> Json:
    """A refusal whose `code` is one of those that can stand there.

    Said beside the reference and not with `allOf`, so that generated clients have one class of errors, whose `code`
    stays open for the codes of tomorrow.
    """
    codes = {"properties": {"code": {"type": "string", "enum": list(examples)}}}
    return {
        "description": words,
        "headers": headers,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/ErrorBody", **codes},
                "examples": {code: {"value": body} for code, body in examples.items()},
            }
        },
    }


def _refused(kind: type[BookingError], operation: Operation | None) -> BookingError:
    """The refusal as it could happen there."""
    name = operation.id if operation else ""
    if kind is refusals.Malformed and operation:
        return _malformed(operation)
    if kind is refusals.Unprocessable:
        return description.UNPROCESSABLE.get(name) or refusals.Unprocessable()
    if kind is refusals.Conflict:
        return description.CONFLICT.get(name) or refusals.Conflict("conflict", refusals.Conflict.message)
    if kind is refusals.InsufficientScope:
        scopes = (operation.scope, *operation.any_scope) if operation else ()
        return refusals.InsufficientScope(next(filter(None, scopes), Scope.BOOKINGS_READ))
    if kind is refusals.InsufficientCapacity:
        return refusals.InsufficientCapacity(1)
    if kind is refusals.RateLimited:
        return refusals.RateLimited(7)
    if kind is refusals.MethodNotAllowed:
        return refusals.MethodNotAllowed(["GET"])
    return kind()


def _malformed(operation: Operation) -> BookingError:
    if operation.query:
        return refusals.Malformed.at(operation.query[0].name, "is empty", "empty")
    try:
        if operation.body:
            bodies.validate(operation.body, b"{}")
    except refusals.Malformed as error:
        return error
    return refusals.Malformed("The body is not valid JSON.")


# Headers ---------------------------------------------------------------------------------------------------------


def _header(words: str, schema: Json, example: object, *, required: bool = False) -> Json:
    return {"description": words, "required": required, "schema": schema, "example": example}


_SECONDS = {"type": "integer", "minimum": 1}
_HEADERS: Mapping[str, Json] = {
    "Allow": _header("The methods that the path takes.", {"type": "string"}, "GET, POST", required=True),
    "IdempotentReplayed": _header(
        "Present when this is the answer of an earlier request with the same key.",
        {"type": "string", "enum": ["true"]},
        "true",
    ),
    "RateLimitLimit": _header("Requests that the window allows.", {"type": "integer", "minimum": 1}, 600),
    "RateLimitRemaining": _header("Requests that are left now.", {"type": "integer", "minimum": 0}, 599),
    "RateLimitReset": _header(
        "Unix seconds at which all of them are available again.", {"type": "integer"}, 1795262401
    ),
    "RequestId": _header(
        "Yours, or one that was made.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
        REQUEST_ID,
        required=True,
    ),
    "RetryAfter": _header("Seconds to wait before the next try.", _SECONDS, 7, required=True),
    "RetryAfterInProgress": _header("With `idempotency_in_progress`: seconds to wait.", _SECONDS, 1),
    "WWWAuthenticate": _header("The scheme to use.", {"type": "string"}, "Bearer", required=True),
}
_HEADERS_EVERYWHERE = {
    "x-request-id": "RequestId",
    "x-ratelimit-limit": "RateLimitLimit",
    "x-ratelimit-remaining": "RateLimitRemaining",
    "x-ratelimit-reset": "RateLimitReset",
}
_HEADERS_OF: Mapping[type[BookingError], Mapping[str, str]] = {
    **{kind: {"WWW-Authenticate": "WWWAuthenticate"} for kind in _OF_EVERY_KEY[:4]},
    refusals.MethodNotAllowed: {"Allow": "Allow"},
    refusals.IdempotencyInProgress: {"Retry-After": "RetryAfterInProgress"},
    refusals.RateLimited: {"Retry-After": "RetryAfter"},
    refusals.Unavailable: {"Retry-After": "RetryAfter"},
}


def _headers(kinds: Iterable[type[BookingError]] = (), *, replayed: bool = False) -> Json:
    named = dict(_HEADERS_EVERYWHERE)
    for kind in kinds:
        named |= _HEADERS_OF.get(kind, {})
    if replayed:
        named["Idempotent-Replayed"] = "IdempotentReplayed"
    return {name: {"$ref": f"#/components/headers/{named[name]}"} for name in sorted(named, key=str.lower)}


# Webhooks --------------------------------------------------------------------------------------------------------


class BookingEventData(Resource):
    object: Booking
    """As REST shows it, with `manage_url` null."""


class BookingCancelledData(BookingEventData):
    reason: Open[CancelReason, CancelReasonName]
    """Who or what cancelled it."""


class PreviousDeparture(Resource):
    id: Id
    starts_at: AwareDatetime


class BookingRescheduledData(BookingEventData):
    previous_departure: PreviousDeparture
    """Where it was before."""


class CustomerEventData(Resource):
    object: Customer


class GiftCardEventData(Resource):
    object: GiftCard
    """As lists show it, without its `code`."""


class GiftCardRedeemedData(GiftCardEventData):
    redeemed_amount: Money
    booking_id: Id


class WebhookEventData(Resource):
    object: WebhookEndpoint


class WebhookDeliveryDeadData(WebhookEventData):
    delivery_id: Id
    event_id: Id
    """Of the event that was not delivered."""
    event_type: Open[EventType, EventTypeName]


class Ping(Resource):
    message: str
    endpoint_id: Id


class PingData(Resource):
    object: Ping


_DATA: Mapping[EventType, type[Resource]] = {
    EventType.BOOKING_CREATED: BookingEventData,
    EventType.BOOKING_CONFIRMED: BookingEventData,
    EventType.BOOKING_CANCELLED: BookingCancelledData,
    EventType.BOOKING_RESCHEDULED: BookingRescheduledData,
    EventType.CUSTOMER_CREATED: CustomerEventData,
    EventType.CUSTOMER_UPDATED: CustomerEventData,
    EventType.GIFT_CARD_ISSUED: GiftCardEventData,
    EventType.GIFT_CARD_REDEEMED: GiftCardRedeemedData,
    EventType.WEBHOOK_AUTO_DISABLED: WebhookEventData,
    EventType.WEBHOOK_ENABLED: WebhookEventData,
    EventType.WEBHOOK_SECRET_ROTATED: WebhookEventData,
    EventType.WEBHOOK_DELIVERY_DEAD: WebhookDeliveryDeadData,
    EventType.PING: PingData,
}


def _delivered(kind: EventType) -> type[Resource]:
    """The envelope with its type and its data told apart."""
    name = re.sub(r"[._]", " ", kind).title().replace(" ", "")
    fields: Any = {"type": (Literal.__getitem__(kind), ...), "data": (_DATA[kind], ...)}
    return create_model(f"{name}Event", __base__=Envelope, __doc__=description.EVENTS[kind], **fields)


_DELIVERED = {kind: _delivered(kind) for kind in EventType}


def _webhook(kind: EventType, refs: Refs) -> Json:
    return {
        "operationId": "on_" + kind.replace(".", "_"),
        "tags": ["Webhooks"],
        "summary": description.EVENTS[kind],
        "description": description.WEBHOOKS_PROSE,
        "security": [],
        "parameters": [_webhook_header(name, kind) for name in _WEBHOOK_HEADERS],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": refs[_DELIVERED[kind]], "example": description.envelope(kind)}},
        },
        "responses": {
            "2XX": {"description": "The event is taken."},
            "default": {"description": "The attempt failed and is made again later."},
        },
    }


def _webhook_header(name: str, kind: EventType) -> Json:
    words, example = _WEBHOOK_HEADERS[name]
    schema: Json = {"type": "string"}
    if name == "Svc-Event-Type":
        schema["const"] = example = str(kind)
    return {
        "name": name,
        "in": "header",
        "required": True,
        "description": words,
        "schema": schema,
        "example": example,
    }


_EVENT_ID = EXAMPLES[Delivery]["event_id"]
_AT = "1795262400"
_WEBHOOK_HEADERS: Mapping[str, tuple[str, str]] = {
    "Svc-Signature": (
        "`t` is the Unix time of the attempt; each `v1` a signature, two while a secret is being rotated.",
        f"t={_AT},v1=1f7d0d8c5f0c2b9f6a4e3d2c1b0a99887766554433221100ffeeddccbbaa9988",
    ),
    "Svc-Event-Id": ("The same as `id` in the body.", _EVENT_ID),
    "Svc-Event-Type": ("The same as `type` in the body.", ""),
    "Svc-Delivery-Id": (
        "This attempt. Another for each retry: not for deduplication.",
        EXAMPLES[Delivery]["attempts"][0]["id"],
    ),
    "User-Agent": ("Who is calling.", "Svc-Webhooks/1.0"),
    "webhook-id": ("Standard Webhooks: the event id.", _EVENT_ID),
    "webhook-timestamp": ("Standard Webhooks: the Unix time of the attempt.", _AT),
    "webhook-signature": (
        "Standard Webhooks: HMAC-SHA256 in base64 under the decoded secret, one for each live secret.",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
}


# Schemas ---------------------------------------------------------------------------------------------------------

_CONTROLS = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
_BLANKS = r"\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_SINGLE_LINE = f"^[^{_CONTROLS}]*$"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_PATTERNS: Mapping[Any, str] = {
    base.single_line: _SINGLE_LINE,
    base.multi_line: r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f]*$",
    base._trimmed: f"^[^{_CONTROLS}]*[^{_CONTROLS}{_BLANKS}][^{_CONTROLS}]*$",
    base.mailbox: rf"^{_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})+$",
}
"""What the checks of the wire allow, for a reader who cannot run them. All are exact but the last: internationalised
addresses are taken too, and no expression that every engine reads could tell which."""

_REFERENCE = re.compile(r"\s*\((?:API v1|decisions?) [^)]*\)|^Decision \w+\.$")
"""Points a developer to the reason of a rule; a reader of the description has no such page."""


class _Schemas(GenerateJsonSchema):
    """The schemas of wire models, with the checks that their types do not show."""

    def normalize_name(self, name: str) -> str:
        """`Page[Booking]` is the schema BookingPage, `EventPage[Event]` is EventPage."""
        page = re.fullmatch(r"\w*Page\[(\w+)\]", name)
        return super().normalize_name(f"{page[1]}Page" if page else name)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def function_after_schema(self, schema: AfterValidatorFunctionSchema) -> Json:
        shown = super().function_after_schema(schema)
        pattern = _PATTERNS.get(schema["function"]["function"])
        return shown | {"pattern": pattern} if pattern else shown

    def int_schema(self, schema: IntSchema) -> Json:
        shown = super().int_schema(schema)
        return shown | {"format": "int64"} if self.mode == "serialization" else shown


def _schemas(operations: Iterable[Operation]) -> tuple[Refs, Json]:
    """Where the schema of each model is, and all of them by name."""
    requests = [operation.body for operation in operations if operation.body]
    answers = [model for operation in operations for _, model in operation.answers.values() if model]
    refs, found = models_json_schema(
        [
            *((model, "validation") for model in requests),
            *((model, "serialization") for model in (ErrorBody, *answers, *_DELIVERED.values())),
        ],
        ref_template="#/components/schemas/{model}",
        schema_generator=_Schemas,
    )
    schemas = {name: _tidied(found["$defs"][name]) for name in sorted(found["$defs"])}
    return {model: ref for (model, _), ref in refs.items() if issubclass(model, BaseModel)}, schemas


def _tidied(schema: Any) -> Any:
    """The schema less what only repeats its name or its type, its words on one line."""
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _tidied(value) for key, value in schema.items() if not (key == "default" and value is None)}
    if isinstance(kept.get("title"), str):
        del kept["title"]
    if not isinstance(kept.get("description"), str):  # none, or a property of that name
        return kept
    words = _REFERENCE.sub("", " ".join(kept.pop("description").split()))
    return {"description": words, **kept} if words else kept


if __name__ == "__main__":
    sys.stdout.buffer.write(rendered())
