"""Whatever a client sends, the service answers as its description says.

Requests are made up from the description, right ones and wrong ones: every operation, both databases, NUL and all
other characters included. Half of the ids lead somewhere, so that what is made up reaches the rooms behind the parser.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import GenerationConfig, SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support.api import Api, fresh_key
from support.endpoints import DOCUMENT
from support.operations import Operations

from booking_core.db import tables

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
MAX_EXAMPLES = int(os.environ.get("BOOKING_TEST_EXAMPLES", "12"))
"""Made-up requests for each operation, and as many wrong ones."""

OPERATIONS = [f"{method.upper()} {path}" for path, item in DOCUMENT["paths"].items() for method in item]
CASES = [(mode, label) for label in OPERATIONS for mode in GenerationMode]
CASES.remove((GenerationMode.NEGATIVE, "GET /api/v1/openapi.json"))  # nothing could be wrong in it
DATE_TIME = r"^2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9](:[0-5][0-9]){2}(Z|[+-]0[0-9]:[0-5][0-9])$"
EXAMPLE_KEY = DOCUMENT["components"]["parameters"]["IdempotencyKeyRequired"]["example"]
Strategy = st.SearchStrategy[Any]


def _ids(api: Api) -> dict[str, list[str]]:
    """Rows of every kind, by the part of the path that they stand in."""
    world = api.world
    experience = world.experience()
    departure = world.departure(experience, seats=1_000_000)
    card = world.insert(
        tables.gift_cards,
        **world.code_columns("KAYAK-7KQ2"),
        currency="NOK",
        initial_minor=200000,
        balance_minor=200000,
        created_at=world.clock(),
        updated_at=world.clock(),
    )
    hook = {"url": "https://receiver.example/hook", "event_types": ["booking.created", "booking.cancelled"]}
    webhooks = [api.call("POST", "/webhooks", json=hook).json()["id"] for _ in range(2)]
    bookings = [api.book(departure, count=count).json()["id"] for count in (1, 2, 3)]
    api.cancel(bookings[0])
    hold = {"experience_date_id": departure, "seats": 1}
    holds = [api.post("/holds", hold).json()["id"] for _ in range(2)]
    api.book(departure, hold_id=holds[0])
    logs = [api.get(f"/webhooks/{each}/deliveries").json()["data"] for each in webhooks]
    deliveries = [row["id"] for log in logs for row in log]
    return {
        "webhooks": webhooks,
        "deliveries": deliveries,
        "experiences": [experience],
        "departures": [departure],
        "gift-cards": [card],
        "bookings": bookings,
        "checkouts": [Operations(world).check_out(departure)["id"]],
        "holds": holds,
        "customers": [row["id"] for row in api.get("/customers").json()["data"]],
        "events": [row["id"] for row in api.get("/events", limit=100).json()["data"]],
    }


@pytest.fixture
def described(api: Api, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The description with the application behind it, and an organization in which there is something to find."""
    # Made-up hosts are not looked up: DNS may take its time to say that there is no such name.
    monkeypatch.setattr(api.client.app.state.service, "is_public_address", lambda url: len(url) % 5 > 0)
    config = SchemathesisConfig()
    config.projects.default.generation = GenerationConfig(allow_x00=True)
    schema = schemathesis.openapi.from_dict(_spelled_out(DOCUMENT), config=config)
    schema.app = _without_lifespan(api.client.app)
    _lead_somewhere(schema, _ids(api))
    return schema


def _spelled_out(node: Any) -> Any:
    """Give each date-time that has a pattern one that looks like a date-time.

    Requests are made up from the pattern, and then looked at: a third of what this one makes is a date-time. Among
    texts of any characters one is searched for in vain, which takes minutes.
    """
    if isinstance(node, list):
        return [_spelled_out(each) for each in node]
    if not isinstance(node, dict):
        return node
    spelled = {name: _spelled_out(value) for name, value in node.items()}
    return spelled | {"pattern": DATE_TIME} if node.get("format") == "date-time" and "pattern" in node else spelled


def _without_lifespan(app: Any) -> Callable[..., Any]:
    async def requests_only(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"  # started and stopped by whoever runs it for the whole session
        await app(scope, receive, send)

    return requests_only


def _lead_somewhere(schema: Any, ids: dict[str, list[str]]) -> None:
    """Lets half of the made-up ids be those of rows."""

    @schema.hook
    def flatmap_path_parameters(context: Any, path_parameters: Any) -> Strategy:
        if not path_parameters:
            return st.just(path_parameters)
        rows = ids[context.operation.path.split("/{")[0].rsplit("/", 1)[1]]
        found = st.sampled_from(rows).map(lambda row: {**path_parameters, "id": row})
        if "deliveryId" in path_parameters:
            deliveries = st.sampled_from(ids["deliveries"])
            found = st.builds(lambda named, row: {**named, "deliveryId": row}, found, deliveries)
        return st.one_of(st.just(path_parameters), found)

    @schema.hook
    def flatmap_body(context: Any, body: Any) -> Strategy:
        if not isinstance(body, dict) or "experience_date_id" not in body:
            return st.just(body)
        guests = st.integers(1, 3).map(lambda count: [{"tier_id": "adult", "count": count}])
        departure = {"experience_date_id": ids["departures"][0]}
        bookable = guests.map(lambda lines: {**body, **departure, "guests": lines, "add_ons": None})
        return st.one_of(st.just(body), st.just({**body, **departure}), bookable)


@pytest.mark.parametrize(("mode", "label"), CASES)
def test_every_answer_is_as_described(described: Any, api: Api, mode: GenerationMode, label: str) -> None:
    method, path = label.split()
    operation = described[path][method]

    def check(case: Any) -> None:
        if case.headers.get("Idempotency-Key") == EXAMPLE_KEY:  # every edge would be the one that comes too late
            case.headers["Idempotency-Key"] = fresh_key()
        case.call_and_validate(headers={"Authorization": f"Bearer {api.key}"}, checks=CHECKS)

    for case in _edges(described, operation, mode):
        check(case)
    made_up = operation.as_strategy(generation_mode=mode)
    limits = settings(
        max_examples=MAX_EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    limits(given(case=made_up)(check))()


def _edges(described: Any, operation: Any, mode: GenerationMode) -> Iterable[Any]:
    """Yield each constraint of the document just kept, or just broken: one at a time, the same in every run."""
    config = described.config.generation_for(operation=operation)
    return described.iter_coverage_cases(operation, generation_modes=[mode], generation_config=config)
