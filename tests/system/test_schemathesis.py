"""The service answers every request as its description says.

Requests are made up from the description, right ones and wrong ones: every operation, both databases, NUL and all
other characters included. Half of the ids are ids of rows: requests get further than the parser.

Generating a request costs several times its answer, so each is generated once and sent to a service on either database.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
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
from starlette.testclient import TestClient
from support.api.api import Api, fresh_key
from support.api.client import WholeResponses
from support.api.endpoints import DOCUMENT
from support.world.operations import Operations
from support.world.world import SECRET, FixedClock, make_world

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.upkeep import doctor
from booking_server.app import create_app

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
MAX_EXAMPLES = int(os.environ.get("BOOKING_TEST_EXAMPLES", "3"))
"""Made-up requests for each operation, and as many wrong ones."""

OPERATIONS = [f"{method.upper()} {path}" for path, item in DOCUMENT["paths"].items() for method in item]
WITHOUT_INPUT = "GET /api/v1/openapi.json"
"""Nothing could be wrong in its requests."""
DATE_TIME = r"^2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9](:[0-5][0-9]){2}(Z|[+-]0[0-9]:[0-5][0-9])$"
EXAMPLE_KEY = DOCUMENT["components"]["parameters"]["IdempotencyKeyRequired"]["example"]
Strategy = st.SearchStrategy[Any]


def _ids(api: Api) -> dict[str, list[str]]:
    """Rows of every kind, by the part of the path that they stand in."""
    world = api.world
    experience = world.experience()
    departure = world.departure(experience, seats=1_000_000)
    hook = {"url": "https://receiver.example/hook", "event_types": ["booking.created", "booking.cancelled"]}
    webhooks = [api.call("POST", "/webhooks", json=hook).json()["id"] for _ in range(2)]
    bookings = [api.book(departure, count=count).json()["id"] for count in (1, 2, 3)]
    api.cancel(bookings[0])
    hold = {"experience_date_id": departure, "seats": 1}
    holds = [api.post("/holds", hold).json()["id"] for _ in range(2)]
    api.book(departure, hold_id=holds[0])
    logs = [api.get(f"/webhooks/{endpoint_id}/deliveries").json()["data"] for endpoint_id in webhooks]
    deliveries = [row["id"] for log in logs for row in log]
    return {
        "webhooks": webhooks,
        "deliveries": deliveries,
        "experiences": [experience],
        "departures": [departure],
        "gift-cards": [world.gift_card("KAYAK-7KQ2", amount_minor=200_000)],
        "bookings": bookings,
        "checkouts": [Operations(world).check_out(departure)["id"]],
        "holds": holds,
        "customers": [row["id"] for row in api.get("/customers").json()["data"]],
        "events": [row["id"] for row in api.get("/events", limit=100).json()["data"]],
    }


@pytest.fixture(scope="module")
def databases_of_module(new_database_url: Callable[[str], str], databases: Any) -> Iterator[dict[str, Database]]:
    """A database of this module's own of either kind, with an organization for each test. The doctor examines both."""
    with ExitStack() as opened:
        by_backend: dict[str, Database] = {}
        for backend in ("sqlite", "postgresql"):
            by_backend[backend] = Database(new_database_url(backend), clock=FixedClock())
            opened.callback(by_backend[backend].close)
        databases.new()
        yield by_backend
        assert [finding for database in by_backend.values() for finding in database.read(doctor.examine)] == []


@pytest.fixture(scope="module")
def clients(databases_of_module: Mapping[str, Database]) -> Iterator[dict[str, TestClient]]:
    """The application on each of the databases."""
    with ExitStack() as running:
        by_backend: dict[str, TestClient] = {}
        for backend, database in databases_of_module.items():
            url = database.url.render_as_string(hide_password=False)
            settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
            app = create_app(settings, database=database, flush_s=math.inf)
            # Made-up hosts are not looked up: DNS may take its time to say that there is no such name.
            app.state.service.is_public_address = lambda url: len(url) % 5 > 0
            by_backend[backend] = running.enter_context(WholeResponses(app))
        yield by_backend


@dataclass(frozen=True)
class Side:
    """An organization with rows, on one of the databases."""

    backend: str
    api: Api
    ids: dict[str, list[str]]
    app: Callable[..., Any]
    """The service, which takes the ids of the first side for its own."""


@pytest.fixture
def sides(databases_of_module: Mapping[str, Database], clients: Mapping[str, TestClient]) -> list[Side]:
    sides: list[Side] = []
    for backend, client in clients.items():
        api = Api(client, make_world(databases_of_module[backend], FixedClock()))
        ids = _ids(api)
        pairs = _pairs(sides[0].ids if sides else ids, ids)
        sides.append(Side(backend, api, ids, _requests_only(client.app, pairs)))
    return sides


def _pairs(first: Mapping[str, list[str]], second: Mapping[str, list[str]]) -> dict[bytes, bytes]:
    """Return the own id for each id of the first side."""
    assert {kind: len(rows) for kind, rows in first.items()} == {kind: len(rows) for kind, rows in second.items()}
    pairs = [pair for kind, rows in first.items() for pair in zip(rows, second[kind], strict=True)]
    assert all(len(first_id) == len(second_id) for first_id, second_id in pairs)
    return {first_id.encode(): second_id.encode() for first_id, second_id in pairs}


def _requests_only(app: Any, translations: Mapping[bytes, bytes]) -> Callable[..., Any]:
    """Return the application without its start and its stop, which replaces ids in paths and bodies."""
    anywhere = re.compile(b"|".join(translations))

    def translated(text: bytes) -> bytes:
        return anywhere.sub(lambda match: translations[match[0]], text)

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"  # started and stopped by the module's fixture

        async def received() -> Any:
            message = await receive()
            return {**message, "body": translated(message["body"])} if message.get("body") else message

        paths = {"path": translated(scope["path"].encode()).decode(), "raw_path": translated(scope["raw_path"])}
        await app({**scope, **paths}, received, send)

    return serve


@pytest.fixture(scope="module")
def schema() -> Any:
    config = SchemathesisConfig()
    config.projects.default.generation = GenerationConfig(allow_x00=True)
    return schemathesis.openapi.from_dict(_spelled_out(DOCUMENT), config=config)


@pytest.fixture
def described(schema: Any, sides: list[Side]) -> Iterator[Any]:
    """The description, with the rows that made-up requests name."""
    _lead_somewhere(schema, sides[0].ids)
    yield schema
    schema.hooks.unregister_all()


def _spelled_out(node: Any) -> Any:
    """Give each date-time with a pattern a pattern of a date-time.

    Requests are generated from the pattern, and then checked: a third of its texts are date-times. Among texts of any
    characters the search for one takes minutes.
    """
    if isinstance(node, list):
        return [_spelled_out(child) for child in node]
    if not isinstance(node, dict):
        return node
    spelled = {name: _spelled_out(value) for name, value in node.items()}
    return spelled | {"pattern": DATE_TIME} if node.get("format") == "date-time" and "pattern" in node else spelled


def _lead_somewhere(schema: Any, ids: dict[str, list[str]]) -> None:
    """Replaces half of the generated ids with ids of rows."""

    @schema.hook
    def flatmap_path_parameters(context: Any, path_parameters: Any) -> Strategy:
        if not path_parameters:
            return st.just(path_parameters)
        rows = ids[context.operation.path.split("/{")[0].rsplit("/", 1)[1]]
        of_rows = st.sampled_from(rows).map(lambda row: {**path_parameters, "id": row})
        if "deliveryId" in path_parameters:
            deliveries = st.sampled_from(ids["deliveries"])
            of_rows = st.builds(lambda parameters, row: {**parameters, "deliveryId": row}, of_rows, deliveries)
        return st.one_of(st.just(path_parameters), of_rows)

    @schema.hook
    def flatmap_body(context: Any, body: Any) -> Strategy:
        if not isinstance(body, dict) or "experience_date_id" not in body:
            return st.just(body)
        guests = st.integers(1, 3).map(lambda count: [{"tier_id": "adult", "count": count}])
        departure = {"experience_date_id": ids["departures"][0]}
        bookable = guests.map(lambda lines: {**body, **departure, "guests": lines, "add_ons": None})
        return st.one_of(st.just(body), st.just({**body, **departure}), bookable)


@pytest.mark.exhaustive(but=("GET /api/v1/me", "POST /api/v1/holds]"))
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_described(described: Any, sides: list[Side], label: str) -> None:
    method, path = label.split()
    for mode in GenerationMode:
        if mode is GenerationMode.POSITIVE or label != WITHOUT_INPUT:
            check_requests(described, described[path][method], sides, mode)


def check_requests(described: Any, operation: Any, sides: list[Side], mode: GenerationMode) -> None:
    """Check the answers to right or to wrong requests of an operation."""

    def check(case: Any) -> None:
        check_on(sides, case)

    for number, case in enumerate(_edges(described, operation, mode)):
        # A wrong request reaches little of the database but its key: it goes to one of the two, in turn.
        check_on(sides if mode is GenerationMode.POSITIVE else [sides[number % 2]], case)
    made_up = operation.as_strategy(generation_mode=mode)
    limits = settings(
        max_examples=MAX_EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    limits(given(case=made_up)(check))()


def check_on(sides: Iterable[Side], case: Any) -> None:
    if case.headers.get("Idempotency-Key") == EXAMPLE_KEY:  # every edge would come too late
        case.headers["Idempotency-Key"] = fresh_key()
    for side in sides:
        headers = {"Authorization": f"Bearer {side.api.key}"}
        try:
            case.call_and_validate(headers=headers, checks=CHECKS, app=side.app)
        except BaseException as failure:
            failure.add_note(f"on {side.backend}")
            raise


def _edges(described: Any, operation: Any, mode: GenerationMode) -> Iterable[Any]:
    """Yield each constraint of the document just kept, or just broken: one at a time, the same in every run."""
    config = described.config.generation_for(operation=operation)
    return described.iter_coverage_cases(operation, generation_modes=[mode], generation_config=config)
