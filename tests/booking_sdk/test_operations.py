"""Each operation of the OpenAPI document has methods that send all its parameters and fields, and read its response."""

import inspect
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from booking_sdk import BookingClient
from booking_sdk._sync import client as sync_client

DOCUMENT = json.loads((Path(__file__).parents[2] / "openapi.json").read_text(encoding="utf-8"))
OPERATIONS = {
    (method.upper(), re.sub(r"{\w+}", "{}", path)): operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if method in ("get", "post", "put", "patch", "delete")
}
NOT_IN_THE_SDK = {"get_openapi"}
"""Operations without a resource method: `client.request` can send them."""

BEGIN, END = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 6, 2, tzinfo=UTC)
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("date_from", "day", "departure_from"), BEGIN.date()),
    **dict.fromkeys(("date_to", "departure_to"), END.date()),
    **dict.fromkeys(("since", "updated_since", "created_since"), BEGIN),
    **dict.fromkeys(("until", "to", "created_until"), END),
    **dict.fromkeys(("limit", "page_size", "max_items", "booking_number", "seats", "seconds"), 7),
    **dict.fromkeys(("expires_in_seconds", "overlap_seconds", "max_per_second"), 7),
    **dict.fromkeys(("undo", "dry_run", "include_code", "external_reference_unique", "email_subscription"), True),
    **dict.fromkeys(("published", "send_confirmation_email", "notify_staff"), False),
    "types": ["text"],
    "event_types": ["text"],
    "statuses": ["text"],
    "metadata": {"channel": "acme"},
    "headers": {"X-Name": "text"},
    "guests": [{"tier_id": "adult", "count": 1}],
    "add_ons": [{"id": "drysuit", "count": 1}],
    "customer": {"name": "Ada", "email": "ada@example.com"},
    "options": None,
}
"""Arguments by the name of their parameter. All others are texts, and are their own name."""
RENAMED = {"page_size": "limit", "types": "type", "include_code": "include"}
RENAMED |= {"day": "date", "date_from": "from", "date_to": "to", "experience_date_id": "departure_id"}
NOT_SENT = {"idempotency_key", "max_items", "options"}
"""Parameters of the methods that are no parameters of the API."""
IGNORED = {"quote_booking": {"customer", "payment"}}
"""Documented names that no method sends, because the service ignores them."""
OTHER_METHODS = {"webhooks.unwrap", "events.follow", "sandbox.wait_until_ready"}
"""Methods that send no request, or the request of another method."""


class Service:
    """Answers with the examples of the document, and records the operation and the content of the last request."""

    def __init__(self) -> None:
        transport = httpx.MockTransport(self.answer)
        self.client = BookingClient("svc_x", base_url="https://api.test", http_client=httpx.Client(transport=transport))

    def answer(self, request: httpx.Request) -> httpx.Response:
        # An id in a path is the name of its parameter, as `booking_id`.
        self.path = request.url.path
        self.operation = OPERATIONS[request.method, re.sub(r"/\w+_id\b", "/{}", self.path)]
        self.sent = {**request.url.params, **json.loads(request.content or "{}")}
        self.key = request.headers.get("idempotency-key")
        status = next(status for status in self.operation["responses"] if status.startswith("2"))
        content = self.operation["responses"][status].get("content")
        self.example = content["application/json"]["example"] if content else None
        return httpx.Response(int(status), json=self.example) if content else httpx.Response(int(status))

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the methods that send requests, by their names."""
        methods: dict[str, Callable[..., Any]] = {"me": self.client.me}
        for resource in sorted(sync_client._RESOURCES):
            for name, method in inspect.getmembers(getattr(self.client, resource), inspect.ismethod):
                if not name.startswith("_"):
                    methods[f"{resource}.{name}"] = method
        return {name: method for name, method in methods.items() if name not in OTHER_METHODS}

    def call(self, method: Callable[..., Any]) -> Any:
        """Call a method with every argument. Return its result, or the first item of an iterator."""
        names = [name for name in parameters_of(method) if name != "experience_date_id"]
        result = method(**{name: ARGUMENTS.get(name, name) for name in names})
        return next(result) if "iterate" in method.__name__ else result

    def documented(self) -> set[str]:
        """Return the names in the query and in the body of the operation."""
        query = [parameter for parameter in self.operation.get("parameters", []) if parameter.get("in") == "query"]
        names = {parameter["name"] for parameter in query}
        if "requestBody" in self.operation:
            schema = self.operation["requestBody"]["content"]["application/json"]["schema"]
            names |= DOCUMENT["components"]["schemas"][schema["$ref"].split("/")[-1]]["properties"].keys()
        return {RENAMED.get(name, name) for name in names} - IGNORED.get(self.operation["operationId"], set())


METHODS = Service().methods()


def parameters_of(method: Callable[..., Any]) -> list[str]:
    """Return the names of a method's parameters, with those of the TypedDict of its keywords."""
    names: list[str] = []
    for parameter in inspect.signature(method).parameters.values():
        is_unpacked = parameter.kind is inspect.Parameter.VAR_KEYWORD
        names += get_args(parameter.annotation)[0].__annotations__ if is_unpacked else [parameter.name]
    return names


def plain(value: Any) -> str:
    """Return a value as a text that is the same in a query, in JSON, and in Python."""
    return (value.isoformat() if isinstance(value, date) else str(value)).lower()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_sends_each_argument_under_its_documented_name(name: str) -> None:
    service = Service()
    method = service.methods()[name]
    service.call(method)
    parameters, ids = parameters_of(method), re.findall(r"/(\w+_id)\b", service.path)
    assert ids == parameters[: len(ids)]
    names = {RENAMED.get(name, name) for name in {*parameters} - NOT_SENT - {*ids}}
    assert service.sent.keys() == names
    assert names <= service.documented()
    for name in names.intersection(parameters):
        assert plain(service.sent[name]) == plain(ARGUMENTS.get(name, name)), name
    assert service.key == ("idempotency_key" if "idempotency_key" in parameters else None)
    assert service.key or "IdempotencyKey" not in str(service.operation["parameters"])


@pytest.mark.parametrize("name", METHODS)
def test_a_method_returns_the_example_of_its_response(name: str) -> None:
    service = Service()
    result, example = service.call(service.methods()[name]), service.example
    if "iterate" in name:
        example = example["data"][0]
    assert result == example if example is None else result.to_json() == example


def test_the_methods_send_every_documented_name_of_every_operation() -> None:
    service, unsent = Service(), dict[str, set[str]]()
    for method in service.methods().values():
        service.call(method)
        unsent.setdefault(service.operation["operationId"], service.documented()).difference_update(service.sent)
    assert unsent.keys() == {operation["operationId"] for operation in OPERATIONS.values()} - NOT_IN_THE_SDK
    assert {name for names in unsent.values() for name in names} == set()


def test_every_resource_of_the_client_is_listed() -> None:
    """`with_options` drops the resources of this list from the copy."""
    properties = {name for name, member in vars(BookingClient).items() if hasattr(member, "attrname")}
    assert properties == sync_client._RESOURCES


PAIRS = [(name, name.replace("iterate_", "").replace("iterate", "list")) for name in METHODS if ".iterate" in name]


@pytest.mark.parametrize(("iterate", "one_page"), PAIRS)
def test_an_iterator_has_the_filters_of_its_list(iterate: str, one_page: str) -> None:
    filters = {*parameters_of(METHODS[iterate])} - {"page_size", "max_items"}
    assert filters == {*parameters_of(METHODS[one_page])} - {"limit"}


@pytest.mark.parametrize("name", [name for pair in PAIRS for name in pair])
def test_a_list_refuses_an_argument_that_it_does_not_have(name: str) -> None:
    service = Service()
    ids = [parameter for parameter in parameters_of(METHODS[name]) if parameter in ("endpoint_id", "gift_card_id")]
    required = {"date_from": BEGIN.date()} if name.startswith("availability") else {}
    with pytest.raises(TypeError, match=r"unexpected .*colour"):
        service.methods()[name](*ids[:1], colour="red", **required)
