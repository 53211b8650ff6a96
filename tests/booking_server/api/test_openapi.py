"""The description: complete, valid, and in agreement with the application's answers."""

import itertools
import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker
from pydantic import TypeAdapter, ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from starlette.testclient import TestClient
from support.api import raw
from support.api.api import Api, booking_body, fresh_key
from support.api.endpoints import DOCUMENT, OPERATIONS
from support.world.operations import Operations
from support.world.world import SECRET

from booking_core.base.settings import RateLimit, Settings
from booking_core.models import base
from booking_core.models.errors import ErrorCode
from booking_core.models.events import EventType
from booking_core.models.limits import API_VERSION
from booking_core.models.scopes import Scope
from booking_server.api.openapi import document
from booking_server.api.openapi.data import changelog_page
from booking_server.app import create_app, describe

pytestmark = pytest.mark.one_database


@cache
def rendered() -> bytes:
    return document.rendered(describe().openapi())


COMMITTED = Path(__file__).parents[3] / "openapi.json"

REGISTRY = Registry().with_resource("urn:openapi", DRAFT202012.create_resource(DOCUMENT))
FORMATS = FormatChecker(formats=["uuid"])


@FORMATS.checks("date-time", raises=ValueError)
def _is_instant(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def walk(node: Any, pointer: str = "#") -> Iterator[tuple[str, Any]]:
    """Yield every value of the document with the pointer to it."""
    yield pointer, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from walk(value, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")


def at(pointer: str) -> Any:
    """Return the value at a pointer."""
    return REGISTRY.resolver("urn:openapi").lookup(pointer).contents


@cache
def schema_at(pointer: str) -> Draft202012Validator:
    """Return a validator of the schema at a pointer."""
    return Draft202012Validator({"$ref": f"urn:openapi{pointer}"}, registry=REGISTRY, format_checker=FORMATS)


def resolved(node: Any, pointer: str) -> tuple[Any, str]:
    return (at(node["$ref"]), node["$ref"]) if "$ref" in node else (node, pointer)


def operations() -> Iterator[tuple[str, str, Any]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


# The document ----------------------------------------------------------------------------------------------------


def test_the_committed_description_is_the_one_that_is_served() -> None:
    assert COMMITTED.read_bytes() == rendered(), "openapi.json has drifted: run `make openapi` and commit it"


CHANGELOG = [
    ("2026-09-01", "2026-09-01", "Initial beta release"),
    ("2026-09-09", "2026-09-09", "Breaking: webhook headers and user agent renamed"),
    ("2026-09-15", "2026-09-09", "Additive: `payment.source` on the booking"),
]
"""API v1 section 9."""


def test_the_changelog_of_versions_is_served_and_stands_in_the_docs() -> None:
    served = DOCUMENT["info"]["x-changelog"]
    for entry, (date, version, words) in zip(served, CHANGELOG, strict=False):
        assert (entry["date"], entry["version"]) == (date, version)
        assert entry["change"].startswith(words)
    dates = [entry["date"] for entry in served]
    assert dates == sorted(dates)
    for former, entry in itertools.pairwise(served):
        is_additive = entry["change"].startswith("Additive: ")
        assert (entry["version"] == former["version"], entry["breaking"]) == (is_additive, not is_additive)
    assert served[-1]["version"] == API_VERSION
    page = (COMMITTED.parent / "docs/api-changelog.md").read_text()
    assert page == changelog_page(), "docs/api-changelog.md has drifted: run `make openapi` and commit it"
    for entry in served:
        row = f"| {entry['date']} | {entry['version']} | {entry['change']} |"
        assert row in page
        assert row in DOCUMENT["info"]["description"]


def test_the_jitter_of_retry_waits_is_said_where_a_receiver_reads() -> None:
    readmes = [COMMITTED.parent / name for name in ("README.md", "webhook_verify/README.md")]
    texts = [*(path.read_text() for path in readmes), DOCUMENT["webhooks"]["booking.created"]["post"]["description"]]
    for text in texts:
        assert "lengthened by up to 5 % of random jitter" in " ".join(text.split())
        assert "never shortened" in " ".join(text.split())


def test_what_an_import_does_not_tell_is_said() -> None:
    assert "imports with a catalogue file have no events" in " ".join(DOCUMENT["info"]["description"].split())


def test_the_feed_says_that_it_continues_after_either_cursor() -> None:
    parameters = DOCUMENT["paths"]["/api/v1/events"]["get"]["parameters"]
    (cursor,) = [parameter for parameter in parameters if parameter.get("name") == "starting_after"]
    assert {"`next_cursor`", "`resume_cursor`"} <= set(cursor["description"].split())


def test_it_is_openapi() -> None:
    assert [str(error) for error in OPENAPI_31_VALIDATOR.iter_errors(json.loads(rendered()))] == []
    assert DOCUMENT["info"]["version"] == API_VERSION


def test_every_schema_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for _, node in walk(DOCUMENT["paths"]):
        if isinstance(node, dict) and isinstance(node.get("schema"), dict):
            Draft202012Validator.check_schema(node["schema"])


def test_every_reference_leads_somewhere_and_every_component_is_used() -> None:
    references = {node["$ref"] for _, node in walk(DOCUMENT) if isinstance(node, dict) and "$ref" in node}
    for reference in references:
        at(reference)
    unused = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "parameters", "headers", "responses")
        for name in DOCUMENT["components"][kind]
    } - references
    # No operation can answer it: it is a path's answer to a method that it does not list.
    assert unused == {"#/components/responses/MethodNotAllowed"}


def test_names_are_readable() -> None:
    assert {"BookingPage", "EventPage", "ErrorBody"} <= DOCUMENT["components"]["schemas"].keys()
    for name in DOCUMENT["components"]["schemas"]:
        assert re.fullmatch(r"[A-Z][A-Za-z]+", name), name


def test_every_example_fits_its_schema() -> None:
    checked = 0
    for pointer, node in walk(DOCUMENT):
        if not (isinstance(node, dict) and isinstance(node.get("schema"), dict)):
            continue
        examples = [node["example"]] if "example" in node else []
        examples += [example["value"] for example in node.get("examples", {}).values()]
        for example in examples:
            schema_at(f"{pointer}/schema").validate(example)
            checked += 1
    assert checked > 200


def test_every_body_has_an_example() -> None:
    for method, path, operation in operations():
        for node in (operation.get("requestBody", {}), *operation["responses"].values()):
            content = resolved(node, "")[0].get("content", {}).get("application/json")
            assert not content or content.keys() & {"example", "examples"}, (method, path)


def test_every_code_is_named() -> None:
    codes = {
        code
        for _, node in walk([DOCUMENT["paths"], DOCUMENT["components"]["responses"]])
        if isinstance(node, dict) and "$ref" in node
        for code in node.get("properties", {}).get("code", {}).get("enum", [])
    }
    assert codes == {str(code) for code in ErrorCode}


def test_every_operation_is_there() -> None:
    described = {(method, path) for method, path, _ in operations()}
    assert described == {(op.method, op.path) for op in OPERATIONS} | {("GET", "/api/v1/openapi.json")}


def test_a_scope_is_named_for_people_and_for_programs() -> None:
    declared = {(op.method, op.path): op.scope for op in OPERATIONS}
    for method, path, operation in operations():
        scope = declared.get((method, path))
        assert operation.get("x-required-scope") == scope
        assert scope is None or f"`{scope}`" in operation["description"]


def codes(path: str, method: str) -> dict[str, list[str]]:
    answers = {}
    for status, node in DOCUMENT["paths"][path][method]["responses"].items():
        if status == "304":
            continue  # without a body
        content = resolved(node, "")[0]["content"]["application/json"]
        if "code" in (properties := content["schema"].get("properties", {})):
            answers[status] = properties["code"]["enum"]
    return answers


def test_each_status_names_its_own_codes() -> None:
    keys = ["api_key_missing", "api_key_invalid", "api_key_revoked", "api_key_expired"]
    assert codes("/api/v1/bookings", "post") == {
        "400": ["validation_failed", "idempotency_key_required"],
        "401": keys,
        "403": ["app_not_enabled", "plan_upgrade_required", "insufficient_scope"],
        "404": ["not_found"],
        "409": ["idempotency_in_progress", "conflict", "insufficient_capacity"],
        "413": ["payload_too_large"],
        "415": ["unsupported_media_type"],
        "422": ["idempotency_key_reused", "validation_failed"],
        "429": ["rate_limited"],
        "431": ["headers_too_large"],
        "500": ["internal_error"],
        "503": ["service_unavailable"],
    }
    assert codes("/api/v1/me", "get").keys() == {"401", "403", "429", "431", "500", "503"}
    assert codes("/api/v1/openapi.json", "get").keys() == {"429", "431", "500"}
    assert codes("/api/v1/events/{id}", "get")["403"][-1] == "insufficient_scope"


def test_every_answer_names_its_headers() -> None:
    everywhere = {"x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
    more = {"401": {"WWW-Authenticate"}, "429": {"Retry-After"}, "503": {"Retry-After"}}
    for method, path, operation in operations():
        for status, node in operation["responses"].items():
            headers = resolved(node, "")[0]["headers"].keys()
            assert everywhere | more.get(status, set()) <= headers, (method, path, status)
    assert DOCUMENT["components"]["responses"]["MethodNotAllowed"]["headers"].keys() >= {"Allow"}


def test_every_event_type_is_a_webhook() -> None:
    assert DOCUMENT["webhooks"].keys() == {str(kind) for kind in EventType}
    for kind, item in DOCUMENT["webhooks"].items():
        body = item["post"]["requestBody"]["content"]["application/json"]
        envelope = at(body["schema"]["$ref"])
        assert envelope["properties"]["type"]["const"] == kind == body["example"]["type"]
        assert "object" in at(envelope["properties"]["data"]["$ref"])["required"]
        names = {parameter["name"] for parameter in item["post"]["parameters"]}
        assert names >= {"Svc-Signature", "Svc-Event-Id", "Svc-Event-Type", "Svc-Delivery-Id", "User-Agent"}
        assert names >= {"webhook-id", "webhook-timestamp", "webhook-signature"}


def test_it_speaks_to_readers_without_our_papers() -> None:
    assert not re.search(r"\(API v1|decisions? [A-Z]\d", rendered().decode())


# What may be sent ------------------------------------------------------------------------------------------------

_TEXTS = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("\x00\t\n\r \x1f\x7f\x85\xa0\u2000\u2028\u3000\ufeff"))
)


@pytest.mark.parametrize("kind", [base.ShortText, base.LineId, base.Note], ids=["ShortText", "LineId", "Note"])
@given(text=_TEXTS)
def test_a_pattern_tells_what_the_parser_takes(kind: Any, text: str) -> None:
    assert _fits(TypeAdapter(kind), text) == _takes(TypeAdapter(kind), text)


@given(text=_TEXTS)
def test_a_name_that_fits_is_taken(text: str) -> None:
    # A longer one is taken too when the blanks around it make it so.
    assert _fits(TypeAdapter(base.Name), text) == (_takes(TypeAdapter(base.Name), text) and len(text) <= 200)


@given(text=st.one_of(st.from_regex(base.MAILBOX_PATTERN, fullmatch=True), st.emails(), _TEXTS))
def test_an_address_that_fits_is_taken(text: str) -> None:
    assert _takes(TypeAdapter(base.Email), text) or not _fits(TypeAdapter(base.Email), text)


@pytest.mark.exhaustive
@given(text=st.from_regex(base._USUAL, fullmatch=True))
def test_what_is_taken_by_its_looks_would_be_taken_anyway(text: str) -> None:
    assert base._is_mailbox(base.single_line(text))


def _fits(adapter: TypeAdapter[str], text: str) -> bool:
    schema = adapter.json_schema()
    long_enough = schema.get("minLength", 0) <= len(text) <= schema["maxLength"]
    return long_enough and bool(re.fullmatch(schema["pattern"], text))


def _takes(adapter: TypeAdapter[str], text: str) -> bool:
    try:
        adapter.validate_python(text)
    except ValidationError:
        return False
    return True


# Answers ---------------------------------------------------------------------------------------------------------


def conforms(response: httpx.Response | raw.RawAnswer, method: str, path: str) -> dict[str, Any]:
    """Return the body of an answer, and check that it conforms to the document's schema of that path."""
    pointer = f"#/paths/{path.replace('/', '~1')}/{method.lower()}/responses"
    assert str(response.status_code) in at(pointer), response.content
    answer, pointer = resolved(at(f"{pointer}/{response.status_code}"), f"{pointer}/{response.status_code}")
    sent = {name.lower(): value for name, value in response.headers.items()}
    for name, node in answer["headers"].items():
        header, where = resolved(node, f"{pointer}/headers/{name}")
        assert name.lower() in sent or not header["required"], name
        if name.lower() in sent:
            value = sent[name.lower()]
            schema_at(f"{where}/schema").validate(int(value) if header["schema"]["type"] == "integer" else value)
    assert sent["content-type"] == "application/json"
    schema_at(f"{pointer}/content/application~1json/schema").validate(response.json())
    return response.json()  # type: ignore[no-any-return]


def test_what_is_read_conforms(api: Api) -> None:
    experience = api.world.experience()
    departure = api.world.departure(experience)
    booking = api.book(departure, add_ons=[{"id": "drysuit", "count": 1}]).json()
    customer = conforms(api.get("/customers"), "GET", "/api/v1/customers")["data"][0]
    events = conforms(api.get("/events", order="asc"), "GET", "/api/v1/events")["data"]
    assert len(events) == 3
    card, code = Operations(api.world).issue(150_000)
    (listed,) = conforms(api.get("/bookings", limit=1), "GET", "/api/v1/bookings")["data"]
    assert listed == booking
    manifest = api.get(f"/departures/{departure}/manifest")
    assert conforms(manifest, "GET", "/api/v1/departures/{id}/manifest")["data"]
    assert conforms(api.get("/departures", date="2026-11-23"), "GET", "/api/v1/departures")["data"]
    conforms(api.get(f"/gift-cards/{card}/transactions"), "GET", "/api/v1/gift-cards/{id}/transactions")
    for path in ("/me", "/experiences", "/gift-cards", "/openapi.json"):
        conforms(api.get(path), "GET", f"/api/v1{path}")
    window = {"from": "2026-11-20", "to": "2026-12-20"}
    assert conforms(api.get("/availability", **window), "GET", "/api/v1/availability")["data"]
    one = {
        "departures": departure,
        "experiences": experience,
        "bookings": booking["id"],
        "customers": customer["id"],
        "events": events[0]["id"],
    }
    for resource, row_id in one.items():
        conforms(api.get(f"/{resource}/{row_id}"), "GET", f"/api/v1/{resource}/{{id}}")
    body = conforms(api.get(f"/gift-cards/{card}", include="code"), "GET", "/api/v1/gift-cards/{id}")
    assert body["code"] == code


def test_what_is_delivered_conforms(api: Api) -> None:
    booking = api.book(api.world.departure(api.world.experience())).json()
    api.cancel(booking["id"])
    for event in api.get("/events", limit=100).json()["data"]:
        name = at(f"#/webhooks/{event['type']}")["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema_at(name).validate(event)


def test_what_is_written_conforms(api: Api) -> None:
    departure, key = api.world.departure(api.world.experience(), seats=2), fresh_key()
    create, cancel = ("POST", "/api/v1/bookings"), ("POST", "/api/v1/bookings/{id}/cancel")
    booking = conforms(api.book(departure, key=key), *create)
    assert conforms(api.book(departure, key=key), *create) == booking
    for verb in ("check-in", "no-show"):
        conforms(api.post(f"/bookings/{booking['id']}/{verb}", {}), "POST", f"/api/v1/bookings/{{id}}/{verb}")
        api.post(f"/bookings/{booking['id']}/{verb}", {"undo": True})
    customer = {"email": "grace@example.com", "name": "Grace Hopper"}
    for status in (201, 200):
        response = api.post("/customers", customer)
        assert response.status_code == status
        conforms(response, "POST", "/api/v1/customers")
    refused = {
        api.book(departure, key=key, count=2): (422, "idempotency_key_reused"),
        api.book(departure, count=2): (409, "insufficient_capacity"),
        api.book(departure, guests=[{"tier_id": "nobody", "count": 1}]): (422, "validation_failed"),
        api.book(booking["id"]): (404, "not_found"),
        api.book(departure, payment="card"): (400, "validation_failed"),
        api.call("POST", "/bookings", json=booking_body(departure)): (400, "idempotency_key_required"),
        api.post("/bookings", content=b"x" * 300_000): (413, "payload_too_large"),
        api.post("/bookings", content=b"a=1", headers={"Content-Type": "text/plain"}): (415, "unsupported_media_type"),
    }
    for response, expected in refused.items():
        assert (response.status_code, conforms(response, *create)["code"]) == expected
    assert conforms(api.cancel(booking["id"], reason="Rain"), *cancel)["status"] == "cancelled"
    conforms(api.cancel(departure), *cancel)
    started = api.world.departure(api.world.experience(), starts_at=api.world.clock())
    assert conforms(api.book(started), *create)["details"][0]["reason"] == "departure_started"


def test_refusals_of_keys_conform(api: Api) -> None:
    path = "/api/v1/bookings"
    world, now = api.world, api.world.clock()
    keys = {"": "api_key_missing", "svc_nobody": "api_key_invalid"}
    keys |= {world.key(revoked_at=now): "api_key_revoked", world.key(expires_at=now): "api_key_expired"}
    for key, code in keys.items():
        assert conforms(raw.call(api.client, "GET", path, key=key), "GET", path)["code"] == code
    reader = api.with_scopes(Scope.CUSTOMERS_READ)
    assert conforms(reader.get("/bookings"), "GET", path)["required_scope"] == "bookings:read"
    assert conforms(reader.get("/events", type="booking.*"), "GET", "/api/v1/events")["code"] == "insufficient_scope"
    conforms(api.get("/bookings", limit=0), "GET", path)
    wide = {"departure_from": "2026-01-01", "departure_to": "2026-12-31"}
    assert conforms(api.get("/bookings", **wide), "GET", path)["code"] == "validation_failed"


def test_a_method_that_a_path_does_not_list_conforms(api: Api) -> None:
    response = api.call("DELETE", "/openapi.json")
    assert (response.status_code, response.headers["allow"]) == (405, "GET")
    schema_at("#/components/responses/MethodNotAllowed/content/application~1json/schema").validate(response.json())


def test_anyone_may_read_it_within_the_limit_of_an_address(fresh_database_url: str) -> None:
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET, rate_limit=RateLimit(600, 60))
    with TestClient(create_app(settings)) as client:
        response = client.get("/api/v1/openapi.json")
        assert response.content == rendered()
        answered = 0
        while response.status_code == 200:
            answered += 1
            response = client.get("/api/v1/openapi.json")
    assert answered >= 60
    assert response.headers["x-ratelimit-limit"] == "60"
    assert conforms(response, "GET", "/api/v1/openapi.json")["code"] == "rate_limited"
