"""Every operation of OCTO: its lane, statements and events, the ids of another organization, and its repetition."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.api.api import Api
from support.api.octo import ADULT, CONTACT, JsonObject, Octo, refused
from support.api.refusals import nothing_changes
from support.databases.databases import departure_held
from support.faults.statements import failing_at
from support.world.world import World

from booking_core.db import tables
from booking_server.octo import models, router

KEYS, LISTS, WRITES = "keys", "lists", "writes"
SEATS = 150
"""Seats for an order at each statement of an operation."""
RUSH = 60


class Call(NamedTuple):
    method: str
    path: str
    body: JsonObject | None = None
    code: str | None = None
    """The code of its refusal if nothing of the organization has its ids; None: it is answered without a result."""


class Operation(NamedTuple):
    """An operation: a call that succeeds, its lane, its statements on SQLite and on PostgreSQL, and its events."""

    call: Callable[[Octo], Call]
    lane: str
    statements: tuple[int, int]
    events: tuple[str, ...] = ()


def about(stage: str, method: str, path: str = "", body: JsonObject | None = None) -> Callable[[Octo], Call]:
    """Return a function that makes a booking of that stage, and returns a call about it."""

    def call(octo: Octo) -> Call:
        uuid = getattr(octo, stage)(1)["uuid"]
        return Call(method, f"/bookings/{uuid}{path}", body, "INVALID_BOOKING_UUID")

    return call


def changing(stage: str) -> Callable[[Octo], Call]:
    """Return a function that makes a booking of that stage, and returns a call that changes all of it."""

    def call(octo: Octo) -> Call:
        contact = CONTACT | {"fullName": "Ada King"}
        body = {"availabilityId": octo.ids[1], "unitItems": [ADULT] * 2, "contact": contact}
        return about(stage, "PATCH", "", body)(octo)

    return call


def available(path: str) -> Callable[[Octo], Call]:
    """Return a function that returns a call for the availability of the product."""

    def call(octo: Octo) -> Call:
        days = {"localDateStart": octo.ids[0][:10], "localDateEnd": octo.ids[1][:10]}
        return Call("POST", path, {"productId": octo.product, "optionId": "DEFAULT", **days}, "INVALID_PRODUCT_ID")

    return call


def listed(octo: Octo) -> Call:
    octo.confirmed(1, resellerReference="R-1")
    return Call("GET", "/bookings?resellerReference=R-1")


BOOKED = ("customer.created", "booking.created", "booking.confirmed")
OPERATIONS: dict[str, Operation] = {
    "GET /capabilities": Operation(lambda _: Call("GET", "/capabilities"), KEYS, (1, 1)),
    "GET /supplier": Operation(lambda _: Call("GET", "/supplier"), KEYS, (1, 1)),
    "GET /products": Operation(lambda _: Call("GET", "/products"), LISTS, (4, 4)),
    "GET /products/{id}": Operation(
        lambda octo: Call("GET", f"/products/{octo.product}", None, "INVALID_PRODUCT_ID"), LISTS, (4, 4)
    ),
    "POST /availability": Operation(available("/availability"), LISTS, (3, 3)),
    "POST /availability/calendar": Operation(available("/availability/calendar"), LISTS, (3, 3)),
    "GET /bookings": Operation(listed, LISTS, (3, 3)),
    "GET /bookings/{uuid}": Operation(about("reserved", "GET"), LISTS, (4, 4)),
    "GET /bookings/{uuid}, booked": Operation(about("confirmed", "GET"), LISTS, (4, 4)),
    "POST /bookings": Operation(
        lambda octo: Call("POST", "/bookings", octo.order(1, uuid=str(uuid4())), "INVALID_PRODUCT_ID"), WRITES, (9, 8)
    ),
    "PATCH /bookings/{uuid}": Operation(changing("reserved"), WRITES, (15, 13)),
    "PATCH /bookings/{uuid}, booked": Operation(
        changing("confirmed"), WRITES, (38, 27), ("booking.rescheduled", "booking.updated", "booking.updated")
    ),
    "POST /bookings/{uuid}/confirm": Operation(
        about("reserved", "POST", "/confirm", {"contact": CONTACT}), WRITES, (19, 12), BOOKED
    ),
    "POST /bookings/{uuid}/extend": Operation(
        about("reserved", "POST", "/extend", {"expirationMinutes": 20}), WRITES, (8, 8)
    ),
    "POST /bookings/{uuid}/cancel": Operation(about("reserved", "POST", "/cancel"), WRITES, (9, 7)),
    "POST /bookings/{uuid}/cancel, booked": Operation(
        about("confirmed", "POST", "/cancel"), WRITES, (13, 9), ("booking.cancelled",)
    ),
}
CHANGES = [name for name, operation in OPERATIONS.items() if operation.lane == WRITES]

each_operation = pytest.mark.parametrize("name", OPERATIONS)
each_change = pytest.mark.parametrize("name", CHANGES)


def send(octo: Octo, call: Call) -> httpx.Response:
    return octo.call(call.method, call.path, **({} if call.body is None else {"json": call.body}))


def test_the_table_has_every_operation() -> None:
    served = {
        f"{method} {route.path.removeprefix('/octo')}"  # type: ignore[attr-defined]
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    assert {name.partition(",")[0] for name in OPERATIONS} == served


@each_operation
def test_an_operation_takes_a_fixed_number_of_statements(octo: Octo, statements: list[str], name: str) -> None:
    call = OPERATIONS[name].call(octo)
    statements.clear()
    assert send(octo, call).status_code == 200
    assert len(statements) == OPERATIONS[name].statements[not octo.world.database.is_sqlite]


@each_operation
def test_an_operation_runs_in_its_organizations_turn(octo: Octo, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    call, service, lanes = OPERATIONS[name].call(octo), octo.api.client.app.state.service, []  # type: ignore[attr-defined]
    read, write = service.reads.read_for, service.write

    def noted_read(*arguments: Any, is_list: bool) -> Any:
        lanes.append(LISTS if is_list else KEYS)
        return read(*arguments, is_list=is_list)

    def noted_write(*arguments: Any, organization_id: str, **options: Any) -> Any:
        lanes.append(WRITES)
        assert organization_id == octo.world.org
        return write(*arguments, organization_id=organization_id, **options)

    monkeypatch.setattr(service.reads, "read_for", noted_read)
    monkeypatch.setattr(service, "write", noted_write)
    assert send(octo, call).status_code == 200
    assert lanes == [OPERATIONS[name].lane]


@each_operation
def test_an_operation_publishes_the_events_of_the_api(octo: Octo, name: str) -> None:
    call = OPERATIONS[name].call(octo)
    before = len(octo.api.event_types())
    assert send(octo, call).status_code == 200
    assert tuple(octo.api.event_types()[before:]) == OPERATIONS[name].events


@each_operation
def test_an_operation_reaches_nothing_of_another_organization(octo: Octo, new_world: Any, name: str) -> None:
    other = Octo(Api(octo.api.client, new_world()))
    call = OPERATIONS[name].call(other)
    with nothing_changes(other.world), nothing_changes(octo.world):
        answer = send(octo, call)
    if call.code is None:
        assert answer.status_code == 200
        assert not set(_ids(other)) & set(re.findall(r"[0-9a-f-]{36}", answer.text))
    else:
        assert refused(answer) == (400, call.code)


def _ids(octo: Octo) -> list[str]:
    rows = [row for table in (tables.bookings, tables.reservations) for row in octo.world.rows(table)]
    return [octo.world.org, octo.product, *(row["id"] for row in rows)]


@pytest.mark.parametrize("stage", ["reserved", "confirmed"])
def test_a_booking_is_not_changed_to_a_product_of_another_organization(octo: Octo, new_world: Any, stage: str) -> None:
    other, uuid = Octo(Api(octo.api.client, new_world())), getattr(octo, stage)(1)["uuid"]
    with nothing_changes(octo.world), nothing_changes(other.world):
        answer = octo.call("PATCH", f"/bookings/{uuid}", json={"productId": other.product})
    assert refused(answer) == (400, "INVALID_PRODUCT_ID")


def test_a_uuid_of_another_organization_is_unused_here(octo: Octo, new_world: Any) -> None:
    other = Octo(Api(octo.api.client, new_world()))
    uuid = other.confirmed(2)["uuid"]
    with nothing_changes(other.world):
        reserved = octo.reserved(1, uuid=uuid)
    assert (reserved["uuid"], reserved["status"], reserved["productId"]) == (uuid, "ON_HOLD", octo.product)


# Repeated, and failing -----------------------------------------------------------------------------------------------


@each_change
def test_a_repeated_change_is_carried_out_once(octo: Octo, name: str) -> None:
    call = OPERATIONS[name].call(octo)
    first = send(octo, call)
    with nothing_changes(octo.world):
        again = send(octo, call)
    assert (again.status_code, again.json()) == (200, first.json())


@pytest.mark.exhaustive(but=("sqlite-POST", "postgresql-POST"))
@each_change
def test_a_failure_at_any_statement_leaves_all_to_the_retry(api: Api, statements: list[str], name: str) -> None:
    octo = Octo(api, seats=SEATS)
    send(octo, OPERATIONS[name].call(octo))  # of a new customer, which takes one statement more
    call = OPERATIONS[name].call(octo)
    statements.clear()
    expected = send(octo, call).json()["status"]
    count = len(statements)
    for number in range(count):
        call = OPERATIONS[name].call(octo)
        with nothing_changes(octo.world), failing_at(api.world.database, number):
            answer = send(octo, call)
        assert refused(answer) == (500, "INTERNAL_SERVER_ERROR")
        assert send(octo, call).json()["status"] == expected
    assert octo.world.examine() == []


# Made up -------------------------------------------------------------------------------------------------------------

MODELS: dict[str, type[BaseModel]] = {
    "POST /availability": models.AvailabilityBody,
    "POST /availability/calendar": models.CalendarBody,
    "GET /bookings": models.BookingsQuery,
    "POST /bookings": models.ReservationBody,
    "PATCH /bookings/{uuid}": models.UpdateBody,
    "PATCH /bookings/{uuid}, booked": models.UpdateBody,
    "POST /bookings/{uuid}/confirm": models.ConfirmationBody,
    "POST /bookings/{uuid}/extend": models.ExtendBody,
    "POST /bookings/{uuid}/cancel": models.CancellationBody,
}
EXAMPLES = 300
"""Made-up requests of an operation."""
FAR_INSTANTS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "1970-01-01T00:00:00Z")
"""Ids of no availability, at the ends of what an instant can be."""


def values_of(schema: JsonObject, model: JsonObject, texts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a part of a model's JSON schema, within its limits and beyond them."""
    if "$ref" in schema:
        return values_of(model["$defs"][schema["$ref"].rpartition("/")[2]], model, texts)
    if "anyOf" in schema:
        return st.one_of([values_of(choice, model, texts) for choice in schema["anyOf"]])
    if schema["type"] == "object":
        fields = {name: values_of(field, model, texts) for name, field in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional=fields)
    if schema["type"] == "array":
        return st.lists(values_of(schema["items"], model, texts), max_size=3)
    scalars = {"string": texts, "integer": st.integers(1, 60) | st.integers(), "boolean": st.booleans()}
    return scalars.get(schema["type"], st.none())


@pytest.mark.exhaustive(but=("sqlite-POST /bookings]", "postgresql-POST /bookings]"))
@pytest.mark.parametrize("name", MODELS)
def test_a_made_up_request_is_answered_or_refused_as_the_standard_says(octo: Octo, name: str) -> None:
    call, model = OPERATIONS[name].call(octo), MODELS[name].model_json_schema()
    words = (*octo.ids, octo.ids[0][:10], octo.ids[1][:19], octo.product, "DEFAULT", "adult", *FAR_INSTANTS)
    texts = st.sampled_from(words) | st.text() | st.uuids().map(str)
    values = {field: values_of(schema, model, texts) | st.lists(texts) for field, schema in model["properties"].items()}
    field = st.sampled_from(sorted(values)).flatmap(lambda name: st.tuples(st.just(name), values[name]))

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(field, max_size=3).map(dict))
    def check(fields: JsonObject) -> None:
        sent = {"params": fields} if call.method == "GET" else {"json": (call.body or {}) | fields}
        answer = octo.call(call.method, call.path.partition("?")[0], **sent)
        assert answer.status_code == 200 or (refused(answer) and answer.status_code < 500), answer.text

    check()
    assert octo.world.examine() == []


# Beside another organization -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("postgresql_only")
def test_resellers_that_wait_for_a_departure_delay_no_other_organization(
    octo: Octo, new_world: Callable[..., World], shared_database_url: str
) -> None:
    other = Octo(Api(octo.api.client, new_world()))
    with ThreadPoolExecutor(RUSH) as threads:
        with departure_held(shared_database_url, octo.departures[0]):
            waiting = [threads.submit(octo.call, "POST", "/bookings", json=octo.order(1)) for _ in range(RUSH)]
            assert [other.confirmed(1)["status"] for _ in range(5)] == ["CONFIRMED"] * 5
            assert not all(one.done() for one in waiting)
        answers = [one.result() for one in waiting]
    assert {answer.status_code for answer in answers} <= {200, 400, 503}
    assert octo.vacancies() == 5 - sum(answer.status_code == 200 for answer in answers)
