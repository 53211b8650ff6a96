"""The SDK covers every operation of the OpenAPI document: no resource is released without it."""

import inspect
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from booking_sdk import BookingClient, BookingError
from booking_sdk._sync import client as sync_client

DOCUMENT = json.loads((Path(__file__).parents[2] / "openapi.json").read_text(encoding="utf-8"))
OPERATIONS = {
    (method.upper(), path): operation["operationId"]
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if method in ("get", "post", "put", "patch", "delete")
}
NOT_IN_THE_SDK = {("GET", "/api/v1/openapi.json")}
"""Operations without a resource method: `client.request` can send them."""

ARGUMENTS: dict[str, Any] = {
    "date_from": date(2026, 6, 1),
    "day": date(2026, 6, 1),
    "since": datetime(2026, 6, 1, tzinfo=UTC),
    "to": datetime(2026, 6, 1, tzinfo=UTC),
    "seconds": 60,
    "guests": [],
    "customer": {},
    "event_types": [],
    "payment": "invoice",
}
NO_REQUEST = {("webhooks", "unwrap")}


def test_operation_ids_are_unique() -> None:
    assert len(set(OPERATIONS.values())) == len(OPERATIONS) > 20


def first_request(method: Callable[..., Any], placeholder: str) -> None:
    """Call a method with its required arguments, and start the iteration when it returns an iterator."""
    parameters = inspect.signature(method).parameters
    names = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty]
    # One of two names is required.
    names += ["departure_id"] if "experience_date_id" in parameters else []
    next(iter(method(**{name: ARGUMENTS.get(name, placeholder) for name in names})))


def test_sdk_sends_every_operation() -> None:
    placeholder, sent = str(uuid4()), set()

    def record(request: httpx.Request) -> httpx.Response:
        sent.add((request.method, request.url.path.replace(placeholder, "{id}")))
        return httpx.Response(404, json={"error": "No.", "code": "not_found"})

    http_client = httpx.Client(transport=httpx.MockTransport(record))
    client = BookingClient("svc_" + "k" * 40, base_url="https://api.test", http_client=http_client)
    methods = [client.me]
    for resource in sync_client._RESOURCES:
        members = inspect.getmembers(getattr(client, resource), inspect.ismethod)
        methods += [each for name, each in members if not name.startswith("_") and (resource, name) not in NO_REQUEST]
    for method in methods:
        with pytest.raises(BookingError):
            first_request(method, placeholder)
    documented = {(method, re.sub(r"\{[^}]+\}", "{id}", path)) for method, path in OPERATIONS.keys() - NOT_IN_THE_SDK}
    assert sent == documented


def test_every_resource_of_the_client_is_listed() -> None:
    """`with_options` drops the resources of this list from the copy."""
    properties = {name for name, member in vars(BookingClient).items() if hasattr(member, "attrname")}
    assert properties == sync_client._RESOURCES
