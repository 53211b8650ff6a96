"""OCTO's supplier, products, availability and calendar, as the standard says."""

import json
import re
from datetime import datetime
from typing import Any

import httpx
import pytest
from support.api.api import Api, body_of
from support.api.client import WholeResponses
from support.api.octo import UNKNOWN, JsonObject, refused
from support.world.operations import Operations
from support.world.world import ADULT, DAY, FAMILY, SECRET, FixedClock, World

from booking_core.base.clock import SECOND
from booking_core.base.settings import RateLimit, Settings
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.scopes import Scope
from booking_server.app import create_app
from booking_server.octo import catalogue
from booking_server.octo import router as octo
from booking_server.octo.catalogue import utc

BOTH = "octo/content, octo/unknown,octo/pricing"
PRICE: JsonObject = {"net": None, "currency": "NOK", "currencyPrecision": 2, "includedTaxes": []}


def call(api: Api, method: str, path: str, capabilities: str = "", **arguments: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {api.key}", "Octo-Capabilities": capabilities, **arguments.pop("headers", {})}
    answer: httpx.Response = api.client.request(method, f"/octo{path}", headers=headers, **arguments)
    return answer


def read(api: Api, path: str, capabilities: str = "") -> Any:
    return body_of(call(api, "GET", path, capabilities))


def check(api: Api, path: str, body: JsonObject, capabilities: str = "") -> Any:
    return body_of(call(api, "POST", path, capabilities, json=body))


@pytest.fixture
def product(api: Api) -> str:
    return api.world.experience()


def of(product: str, **over: Any) -> JsonObject:
    days = {"localDateStart": "2026-11-21", "localDateEnd": "2026-12-21"}
    return {"productId": product, "optionId": "DEFAULT", **days, **over}


# Supplier and products ------------------------------------------------------------------------------------------------


def test_the_supplier_is_the_organization_of_the_key(api: Api) -> None:
    contact = {"website": "https://fjord.example", "contact_email": "hi@fjord.example", "contact_phone": "+471"}
    api.world.change(tables.organizations, api.world.org, **contact)
    organization = api.get("/me").json()["organization"]
    assert read(api, "/supplier") == {
        "id": organization["id"],
        "name": organization["name"],
        "endpoint": f"{api.world.installation.public_url}/octo",
        "contact": {
            "website": "https://fjord.example",
            "email": "hi@fjord.example",
            "telephone": "+471",
            "address": None,
        },
    }


@pytest.mark.parametrize(
    ("capabilities", "active"),
    [("", ""), ("octo/pricing", "octo/pricing"), (BOTH, "octo/pricing, octo/content"), ("octo/pickups", "")],
)
def test_the_response_names_the_active_capabilities(api: Api, product: str, capabilities: str, active: str) -> None:
    for path in ("/products", f"/products/{product}", "/products/invalid"):
        assert call(api, "GET", path, capabilities).headers["octo-capabilities"] == active
    content = read(api, f"/products/{product}", capabilities)
    assert ("pricingPer" in content, "title" in content) == ("pricing" in active, "content" in active)
    assert [capability["id"] for capability in read(api, "/capabilities")] == ["octo/pricing", "octo/content"]


def test_products_are_the_published_experiences(api: Api, product: str) -> None:
    hidden = api.world.experience(is_published=False)
    others = [api.world.experience() for _ in range(100)]
    products = read(api, "/products")
    assert [entry["id"] for entry in products] == sorted([product, *others])
    assert read(api, f"/products/{product.upper()}") == products[0]
    for unknown in (hidden, UNKNOWN, "invalid"):
        answer = call(api, "GET", f"/products/{unknown}")
        assert (refused(answer), answer.json()["productId"]) == ((400, "INVALID_PRODUCT_ID"), unknown)


def test_a_list_of_products_reads_no_departure_by_itself(
    api: Api, product: str, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_PRODUCTS_MAX", 120)
    others = [api.world.experience() for _ in range(130)]
    for days in range(2, 20):
        api.world.departure(product, starts_at=api.world.clock() + days * DAY)
    monkeypatch.setattr("booking_core.catalogue.departures.find_available", None)
    statements.clear()
    products = read(api, "/products")
    assert [entry["id"] for entry in products] == sorted([product, *others])[:120]
    assert products[0]["options"][0]["availabilityLocalStartTimes"] == ["13:00"]
    assert len(statements) == 5  # the key, the start times, the types of the units, two pages


def test_start_times_are_local_before_and_after_a_change_of_the_clocks(api: Api, product: str) -> None:
    api.world.clock.advance(119 * DAY)  # 20 March 2027; the clocks of Oslo change on 28 March
    same, other = api.world.experience(), api.world.experience()
    for day in (21, 27, 29):
        in_utc = 10 if day < 28 else 9
        _depart(api, same, f"2027-03-{day}T{in_utc:02}:00:00+00:00")
        _depart(api, other, f"2027-03-{day}T10:00:00+00:00")
    times = {one["id"]: one["options"][0]["availabilityLocalStartTimes"] for one in read(api, "/products")}
    assert times == {product: ["00:00"], same: ["11:00"], other: ["11:00", "12:00"]}


def _depart(api: Api, experience: str, start: str) -> None:
    api.world.departure(experience, starts_at=int(datetime.fromisoformat(start).timestamp()) * SECOND)


@pytest.mark.parametrize(
    ("kinds", "types"),
    [
        ((None, None), ["ADULT", "OTHER"]),
        (("SENIOR", None), ["SENIOR", "OTHER"]),
        ((None, "FAMILY"), ["ADULT", "FAMILY"]),
    ],
)
def test_a_unit_has_the_type_of_its_tier_or_place(api: Api, kinds: tuple[str | None, ...], types: list[str]) -> None:
    tiers = [
        tier | ({"octo_unit_type": kind} if kind else {}) for tier, kind in zip((ADULT, FAMILY), kinds, strict=True)
    ]
    product = api.world.experience(price_tiers=json.dumps(tiers))
    (option,) = read(api, f"/products/{product}", "octo/pricing")["options"]
    assert [unit["type"] for unit in option["units"]] == types
    assert [unit["restrictions"]["paxCount"] for unit in option["units"]] == [1, 4]
    assert option["units"][0]["pricingFrom"] == [{"original": 89000, "retail": 89000, **PRICE}]
    assert all("octo_unit_type" not in tier for tier in api.get(f"/experiences/{product}").json()["price_tiers"])


def test_an_option_has_the_start_times_and_the_terms(api: Api, product: str) -> None:
    (option,) = read(api, f"/products/{product}")["options"]
    assert option["availabilityLocalStartTimes"] == ["00:00"]
    for days in (2, 3):
        api.world.departure(product, starts_at=api.world.clock() + days * DAY)
    (option,) = read(api, f"/products/{product}")["options"]
    assert option["availabilityLocalStartTimes"] == ["13:00"]
    terms = [option[f"cancellationCutoff{end}"] for end in ("", "Amount", "Unit")]
    assert terms == ["24 hours", 24, "hour"]


def test_the_content_of_a_product_is_that_of_its_experience(api: Api) -> None:
    product = api.world.experience(
        excerpt="By kayak", latitude=60.4, longitude=5.3, address="Quay 1", image_url="https://x.example/a.jpg"
    )
    answer = call(api, "GET", f"/products/{product}", "octo/content")
    assert [answer.headers[name] for name in ("content-language", "available-languages")] == ["en", "en"]
    assert "content-language" not in call(api, "GET", "/products", "octo/pricing").headers
    texts = answer.json()
    assert (texts["title"], texts["shortDescription"], texts["durationMinutesFrom"]) == ("Fjord kayak", "By kayak", 150)
    assert [media["src"] for media in texts["media"]] == ["https://x.example/a.jpg"]
    assert [place["place"]["latitude"] for place in texts["locations"]] == [60.4]
    assert [text["language"] for text in texts["commentary"]] == ["en", "nb"]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("2026-12-24T10:00:00+01:00", "2026-12-24T09:00:00Z"),
        ("2026-12-24T10:00:00-05:00", "2026-12-24T15:00:00Z"),
        ("2026-12-24T10:00:00+00:00", "2026-12-24T10:00:00Z"),
        ("2026-12-24T00:30:00+01:00", "2026-12-23T23:30:00Z"),
        ("2026-12-31T23:30:00-05:00", "2027-01-01T04:30:00Z"),
        ("2026-12-24T10:00:00+05:45", "2026-12-24T04:15:00Z"),
        ("2026-12-24T10:00:00-03:30", "2026-12-24T13:30:00Z"),
    ],
)
def test_a_timestamp_is_shown_in_utc(timestamp: str, expected: str) -> None:
    assert utc(timestamp) == expected


# Availability ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seats", "held_seats", "columns", "status", "available"),
    [
        (4, 0, {}, "AVAILABLE", True),
        (4, 2, {}, "AVAILABLE", True),
        (4, 3, {}, "LIMITED", True),
        (4, 4, {}, "SOLD_OUT", False),
        (4, 0, {"status": "closed"}, "CLOSED", False),
        (4, 0, {"status": "cancelled"}, "CLOSED", False),
    ],
)
def test_the_status_of_an_availability_follows_its_seats(
    api: Api, product: str, seats: int, held_seats: int, columns: JsonObject, status: str, available: bool
) -> None:
    departure = api.world.departure(product, seats=seats, **columns)
    if held_seats:
        Operations(api.world).hold(departure, held_seats)
    (availability,) = check(api, "/availability", of(product))
    assert (availability["status"], availability["available"], availability["vacancies"], availability["capacity"]) == (
        status,
        available,
        seats - held_seats,
        seats,
    )
    (day,) = check(api, "/availability/calendar", of(product))
    assert (day["status"], day["available"], day["localDate"]) == (status, available, "2026-11-23")


def test_an_availability_is_named_by_its_local_start(api: Api, product: str) -> None:
    ids = ["2026-11-23T13:00:00+01:00", "2026-11-25T13:00:00+01:00"]
    for days in (2, 3, 4):
        api.world.departure(product, starts_at=api.world.clock() + days * DAY)
    api.world.departure(api.world.experience())
    window = {"localDateStart": None, "localDateEnd": None}
    availabilities = check(api, "/availability", of(product, **window, availabilityIds=[*ids, "invalid", ids[0]]))
    assert [entry["id"] for entry in availabilities] == ids
    assert availabilities[0] == {
        "id": ids[0],
        "localDateTimeStart": ids[0],
        "localDateTimeEnd": "2026-11-23T15:30:00+01:00",
        "utcCutoffAt": "2026-11-23T12:00:00Z",
        "allDay": False,
        "available": True,
        "status": "AVAILABLE",
        "vacancies": 12,
        "capacity": 12,
        "maxUnits": 12,
        "openingHours": [],
    }


def test_units_decide_about_availability_and_its_price(api: Api, product: str) -> None:
    api.world.departure(product, seats=5)
    units = [{"id": "adult", "quantity": 1}, {"id": "family", "quantity": 1}]
    (offer,) = check(api, "/availability", of(product, units=units), BOTH)
    assert (offer["available"], offer["pricing"]) == (True, {"original": 339000, "retail": 339000, **PRICE})
    assert [price["retail"] for price in offer["unitPricing"]] == [89000, 250000]
    (offer,) = check(api, "/availability", of(product, units=[*units, units[0]]))
    assert (offer["available"], offer["status"]) == (False, "AVAILABLE")
    unknown = call(api, "POST", "/availability", json=of(product, units=[{"id": "horse", "quantity": 1}]))
    assert (refused(unknown), unknown.json()["unitId"]) == ((400, "INVALID_UNIT_ID"), "horse")


def test_a_total_above_the_largest_amount_is_refused(api: Api, product: str) -> None:
    api.world.departure(product, prices=json.dumps({"adult": 2**62}))
    units = [{"id": "adult", "quantity": 2}]
    answer = call(api, "POST", "/availability", "octo/pricing", json=of(product, units=units))
    assert refused(answer) == (400, "UNPROCESSABLE_ENTITY")
    order = {"productId": product, "optionId": "DEFAULT", "availabilityId": "2026-11-23T13:00:00+01:00"}
    reserved = call(api, "POST", "/bookings", json=order | {"unitItems": [{"unitId": "adult"}] * 2})
    assert refused(reserved) == (400, "UNPROCESSABLE_ENTITY")


def test_a_day_of_the_calendar_has_the_best_of_its_departures(api: Api, product: str) -> None:
    start = api.world.clock() + 2 * DAY
    for position, seats in enumerate((0, 4, 2)):
        prices = json.dumps({"adult": 1000 * (3 - position)})
        api.world.departure(product, seats=seats, starts_at=start + position, prices=prices)
    (day,) = check(api, "/availability/calendar", of(product), "octo/pricing")
    assert (day["status"], day["available"], day["vacancies"], day["capacity"]) == ("AVAILABLE", True, 4, 6)
    assert [(price["unitId"], price["retail"]) for price in day["unitPricingFrom"]] == [
        ("adult", 1000),
        ("family", 250000),
    ]


def test_thousands_of_availabilities_take_the_statements_of_one(api: Api, product: str, statements: list[str]) -> None:
    counts: list[int] = []
    for departures in (1, 20):
        for position in range(departures):
            api.world.departure(product, starts_at=api.world.clock() + DAY + len(counts) * 1000 + position)
        statements.clear()
        check(api, "/availability", of(product))
        counts.append(len(statements))
    assert counts == [3, 3]  # the key, the experience, the departures


WRONG: dict[str, list[JsonObject]] = {
    "INVALID_PRODUCT_ID": [{"productId": value} for value in ("invalid", UNKNOWN, None)],
    "INVALID_OPTION_ID": [{"optionId": "invalid"}],
    "BAD_REQUEST": [
        *({"localDateStart": value} for value in (None, "2026-02-30", 20261121)),
        *({"localDateStart": None, "localDateEnd": None}, {"units": [{"id": "adult", "quantity": 0}]}, {"units": {}}),
    ],
    "UNPROCESSABLE_ENTITY": [{"localDateStart": "2026-12-22"}, {"localDateEnd": "2027-12-21"}],
    "": [
        {"localDateStart": first, "localDateEnd": last}
        for first, last in (("0001-01-01", "0001-01-02"), ("9999-12-30", "9999-12-31"))
    ],
}
"""Fields of a request by the code of their refusal; without one there is nothing on these days."""


@pytest.mark.parametrize("path", ["/availability", "/availability/calendar"])
@pytest.mark.parametrize(("over", "code"), [(over, code) for code, rows in WRONG.items() for over in rows])
def test_a_wrong_field_has_the_standards_code(api: Api, product: str, path: str, over: JsonObject, code: str) -> None:
    answer = call(api, "POST", path, json=of(product, **over))
    if code:
        assert refused(answer) == (400, code)
    else:
        assert answer.json() == []


@pytest.mark.parametrize("ids", [["2026-11-23T13:00:00+01:00"], []])
def test_a_window_and_ids_together_are_refused(api: Api, product: str, ids: list[str]) -> None:
    answer = call(api, "POST", "/availability", json=of(product, availabilityIds=ids))
    assert refused(answer) == (400, "BAD_REQUEST")


# Keys, scopes and paths -----------------------------------------------------------------------------------------------


SCOPES = [
    ("GET", "/capabilities", None),
    ("GET", "/supplier", None),
    ("GET", "/products", Scope.EXPERIENCES_READ),
    ("GET", f"/products/{UNKNOWN}", Scope.EXPERIENCES_READ),
    ("POST", "/availability", Scope.AVAILABILITY_READ),
    ("POST", "/availability/calendar", Scope.AVAILABILITY_READ),
    ("GET", "/bookings", Scope.BOOKINGS_READ),
    ("GET", f"/bookings/{UNKNOWN}", Scope.BOOKINGS_READ),
    ("POST", "/bookings", Scope.BOOKINGS_WRITE),
    ("PATCH", f"/bookings/{UNKNOWN}", Scope.BOOKINGS_WRITE),
    ("POST", f"/bookings/{UNKNOWN}/confirm", Scope.BOOKINGS_WRITE),
    ("POST", f"/bookings/{UNKNOWN}/extend", Scope.BOOKINGS_WRITE),
    ("POST", f"/bookings/{UNKNOWN}/cancel", Scope.BOOKINGS_WRITE),
]


@pytest.mark.parametrize(("method", "path", "scope"), SCOPES)
def test_a_request_needs_a_key_with_the_scope_of_the_api(api: Api, method: str, path: str, scope: Scope | None) -> None:
    assert refused(call(api, method, path, headers={"Authorization": ""})) == (401, "UNAUTHORIZED")
    unknown = f"Bearer svc_{'0' * 40}"
    assert refused(call(api, method, path, headers={"Authorization": unknown})) == (403, "FORBIDDEN")
    if scope is None:
        return
    without = api.with_scopes(*(set(Scope) - {scope}))
    assert refused(call(without, method, path, json={})) == (403, "FORBIDDEN")
    assert call(api.with_scopes(scope), method, path, json={}).status_code in (200, 400)


def test_every_operation_is_in_the_table_of_scopes(api: Api) -> None:
    operations = {(method, path.replace(UNKNOWN, "*")) for method, path, _ in SCOPES}
    served = {
        (method, re.sub(r"\{\w+\}", "*", route.path.removeprefix("/octo")))  # type: ignore[attr-defined]
        for route in octo.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    assert operations == served


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "", 404),
        ("GET", "/nothing", 404),
        ("DELETE", "/supplier", 405),
        ("GET", "/supplier/", 404),
        ("PUT", "/bookings", 405),
    ],
)
def test_another_path_or_method_is_refused_in_the_standard_shape(api: Api, method: str, path: str, status: int) -> None:
    answer = call(api, method, path, "octo/pricing", headers={"Accept": "text/html"})
    assert refused(answer) == (status, "BAD_REQUEST")
    assert answer.headers["octo-capabilities"] == "octo/pricing"


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        *((text, "application/json", 400) for text in (b"", b"{", b"[]", b'{"productId": "\\ud800"}', b"[" * 100_000)),
        (b"{}", "text/plain", 415),
        (b" " * 300_000, "application/json", 413),
    ],
)
@pytest.mark.parametrize("path", ["/availability", "/bookings"])
def test_an_unreadable_body_is_a_bad_request(api: Api, path: str, content: bytes, kind: str, status: int) -> None:
    answer = call(api, "POST", path, content=content, headers={"Content-Type": kind})
    assert refused(answer) == (status, "BAD_REQUEST")


def test_the_rate_limit_of_a_key_counts_the_requests_of_both(
    world: World, shared_database_url: str, session_clock: FixedClock
) -> None:
    settings = Settings(
        database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=RateLimit(2, 60)
    )
    app = create_app(settings, database=Database(shared_database_url, clock=session_clock))
    with WholeResponses(app) as client:
        api = Api(client, world)
        assert api.get("/me").status_code == 200
        assert call(api, "GET", "/supplier").status_code == 200
        answer = call(api, "GET", "/supplier")
    assert refused(answer) == (429, "BAD_REQUEST")
    assert int(answer.headers["retry-after"]) >= 1
