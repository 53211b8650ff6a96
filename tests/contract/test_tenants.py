"""Resources of another organization do not exist (API v1 section 1, decisions R5, L1)."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from support.api.api import Api, error_of, fresh_key
from support.api.endpoints import OPERATIONS, Operation
from support.api.refusals import field_of, invalid_field, nothing_changes, refused
from support.databases.databases import rows_held
from support.world.operations import Operations
from support.world.resources import LISTINGS, Listing

from booking_core.db import tables
from booking_core.models.scopes import Scope

Create = Callable[[Api, str], dict[str, str]]

ADA = {"name": "Ada", "email": "ada@example.com"}
ALWAYS = {"x-request-id": "the-same-for-both"}


class Belongings:
    """A resource of every kind of the organization."""

    def __init__(self, api: Api) -> None:
        world = api.world
        self.experience = world.experience()
        self.departure = world.departure(self.experience, seats=7)
        self.booking: dict[str, Any] = api.book(self.departure).json()
        self.customer = api.get("/customers").json()["data"][0]
        self.event = api.get("/events").json()["data"][0]
        self.gift_card = world.gift_card("GIFT-0001")
        bodies = (self.booking, self.customer, self.event)
        self.ids = [world.org, self.experience, self.departure, self.gift_card, *(body["id"] for body in bodies)]


def _endpoint(api: Api, _: str) -> dict[str, str]:
    body = {"url": "https://hooks.example.com/a", "event_types": ["booking.created"]}
    return {"id": api.post("/webhooks", body).json()["id"]}


def _delivery(api: Api, url: str) -> dict[str, str]:
    endpoint = _endpoint(api, url)
    sent = api.post(f"/webhooks/{endpoint['id']}/test").json()
    return endpoint | {"deliveryId": sent["id"]}


def _departure(api: Api, _: str) -> dict[str, str]:
    return {"id": api.world.departure(api.world.experience())}


def _hold(api: Api, url: str) -> dict[str, str]:
    body = {"experience_date_id": _departure(api, url)["id"], "seats": 1}
    return {"id": api.post("/holds", body).json()["id"]}


def _checkout(api: Api, _: str) -> dict[str, str]:
    departure = api.world.departure(api.world.experience())
    return {"id": Operations(api.world).check_out(departure)["id"]}


def _row(listing: Listing) -> Create:
    return lambda api, url: {"id": listing.filled(api.world, url, [api.world.clock()])[0]}


OWNED: dict[str, Create] = {
    **{f"{listing.path}/{{id}}": _row(listing) for listing in LISTINGS},
    "/departures/{id}": _departure,
    "/holds/{id}": _hold,
    "/checkouts/{id}": _checkout,
    "/webhooks/{id}": _endpoint,
    "/webhooks/{id}/deliveries/{deliveryId}": _delivery,
}
"""Functions that create the resource of a path, and return the parameters of the path."""

BODY = {
    "name": "Grace",
    "guests": [{"tier_id": "adult", "count": 1}],
    **dict.fromkeys(("departure_id", "event_id"), "0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21"),
    "event_types": ["booking.created"],
    "since": "2026-11-20T00:00:00Z",
}
"""A body that each operation would take: they ignore the fields of others."""


@pytest.mark.one_database
@pytest.mark.parametrize(
    "operation", [operation for operation in OPERATIONS if "{" in operation.path], ids=lambda operation: operation.id
)
def test_no_operation_reaches_a_resource_of_another_organization(
    api: Api, other_api: Api, new_world: Any, shared_database_url: str, operation: Operation
) -> None:
    path = operation.path.removeprefix("/api/v1")
    if path.startswith("/sandbox/"):
        api, other_api = (Api(api.client, new_world(clock_offset=0)) for _ in range(2))
    resource = max((prefix for prefix in OWNED if path.removeprefix("/sandbox").startswith(prefix)), key=len)
    ids = OWNED[resource](other_api, shared_database_url)
    unknown = dict.fromkeys(ids, str(uuid.uuid4()))

    def call(parameters: dict[str, str]) -> Any:
        body = {} if operation.method == "GET" else {"json": BODY}
        headers = ALWAYS | {"Idempotency-Key": fresh_key()}
        return api.call(operation.method, path.format(**parameters), headers=headers, **body)

    with nothing_changes(other_api.world):
        answer, nothing = call(ids), call(unknown)
    refused(answer, 404, "not_found")
    assert (answer.content, answer.headers) == (nothing.content, nothing.headers)
    assert other_api.get(resource.format(**ids)).status_code == 200


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/bookings", {"guests": [{"tier_id": "adult", "count": 1}], "payment": "invoice", "customer": ADA}),
        ("/bookings/quote", {"guests": [{"tier_id": "adult", "count": 1}]}),
        ("/holds", {"seats": 1}),
        ("/holds", {"guests": [{"tier_id": "adult", "count": 1}]}),
        ("/bookings/{booking_id}/reschedule", {}),
        ("/bookings/{booking_id}/reschedule/preview", {}),
    ],
)
def test_another_organizations_departure_is_not_found(
    api: Api, other_api: Api, path: str, body: dict[str, Any]
) -> None:
    departure, booking_id = Belongings(other_api).departure, Belongings(api).booking["id"]
    with nothing_changes(other_api.world), nothing_changes(api.world, leaving_out={"idempotency"}):
        answer, nothing = (
            api.post(path.format(booking_id=booking_id), body | {"departure_id": departure_id}, headers=ALWAYS)
            for departure_id in (departure, str(uuid.uuid4()))
        )
    refused(answer, 404, "not_found")
    assert answer.content == nothing.content


def test_tiers_and_add_ons_of_another_are_unknown(api: Api, other_api: Api) -> None:
    tier = '[{"id":"their-tier","name":"T","price":{"amount_minor":1,"currency":"NOK"},"seats_per_unit":1}]'
    add_on = '[{"id":"their-add-on","label":"A","price":{"amount_minor":1,"currency":"NOK"}}]'
    other_api.world.departure(other_api.world.experience(price_tiers=tier, add_ons=add_on))
    departure = api.world.departure(api.world.experience())
    with nothing_changes(api.world, leaving_out={"idempotency"}):
        tiers = api.book(departure, guests=[{"tier_id": "their-tier", "count": 1}])
        add_ons = api.book(departure, add_ons=[{"id": "their-add-on", "count": 1}])
    assert field_of(refused(tiers, 422, "validation_failed")) == "guests.0.tier_id"
    assert field_of(refused(add_ons, 422, "validation_failed")) == "add_ons.0.id"


def test_a_filter_by_ids_of_another_organization_finds_nothing(api: Api, other_api: Api) -> None:
    Belongings(api)
    belongings = Belongings(other_api)
    other_api.post("/customers", {"name": "Only Theirs", "email": "only.theirs@example.com"})
    other_api.book(belongings.departure, customer={"name": "Only Theirs", "email": "only.theirs@example.com"})
    for query in (
        f"/availability?from=2026-11-20&experience_id={belongings.experience}",
        f"/departures?date=2026-11-23&experience_id={belongings.experience}",
        f"/bookings?experience_id={belongings.experience}",
        f"/bookings?departure_id={belongings.departure}",
        f"/bookings?customer_id={belongings.customer['id']}",
        "/bookings?email=only.theirs@example.com",
        "/customers?email=only.theirs@example.com",
        f"/events?resource_id={belongings.booking['id']}",
    ):
        assert other_api.call("GET", query).json()["data"], query
        answer = api.call("GET", query)
        assert (query, answer.status_code, answer.json()["data"], answer.json()["has_more"]) == (query, 200, [], False)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("path", "issued", "filters"),
    [
        ("/bookings", {}, {"status": "confirmed"}),
        ("/bookings", {"status": "confirmed"}, {}),
        ("/bookings", {"status": "confirmed"}, {"status": "cancelled"}),
        ("/bookings", {"departure_from": "2026-11-01"}, {"departure_from": "2026-11-02"}),
        ("/events", {"type": "booking.*"}, {"type": "booking.created"}),
        ("/experiences", {}, {"published": "true"}),
    ],
    ids=str,
)
def test_a_cursor_belongs_to_its_filters(api: Api, path: str, issued: dict[str, str], filters: dict[str, str]) -> None:
    departure = api.world.departure(api.world.experience())
    api.world.experience()
    for _ in range(2):
        api.book(departure)
    cursor = api.get(path, limit=1, **issued).json()["next_cursor"]
    assert cursor
    assert api.get(path, **issued, limit=2, starting_after=cursor).status_code == 200
    assert invalid_field(api.get(path, **filters, starting_after=cursor)) == "starting_after"


@pytest.mark.usefixtures("postgresql_only")
def test_a_booking_of_another_organization_is_not_locked(api: Api, other_api: Api, shared_database_url: str) -> None:
    """It is answered at once while its row is locked: a lock would wait, and another organization would notice."""
    booking = other_api.book(other_api.world.departure(other_api.world.experience())).json()["id"]
    with rows_held(shared_database_url, "SELECT 1 FROM bookings WHERE id = %s FOR UPDATE", booking):
        refused(api.cancel(booking), 404, "not_found")


def test_an_event_requires_the_read_scope_of_its_resource(api: Api) -> None:
    belongings = Belongings(api)
    assert belongings.event["type"].startswith("booking.")
    blind = api.with_scopes(Scope.CUSTOMERS_READ, Scope.BOOKINGS_WRITE)
    for path in (f"/events/{belongings.event['id']}", "/events?type=booking.created", "/events?type=booking.*"):
        assert refused(blind.call("GET", path), 403, "insufficient_scope")["required_scope"] == "bookings:read"
    mixed = blind.get("/events", type="customer.created,booking.created")
    assert refused(mixed, 403, "insufficient_scope")["required_scope"] == "bookings:read"
    assert refused(blind.get("/events", resource_type="booking"), 403, "insufficient_scope")
    assert {event["type"] for event in blind.get("/events").json()["data"]} == {"customer.created"}


def test_fields_that_the_server_sets_are_refused(api: Api, other_api: Api) -> None:
    departure = api.world.departure(api.world.experience())
    forged = {
        "id": str(uuid.uuid4()),
        "organization_id": other_api.world.org,
        "org_id": other_api.world.org,
        "status": "cancelled",
        "booking_number": 4711,
        "source": "admin",
        "price": 1,
        "total": {"amount_minor": 1, "currency": "NOK"},
        "totals": {"total": {"amount_minor": 1, "currency": "NOK"}},
        "manage_url": "https://evil.example.com",
        "created_at": "2001-01-01T00:00:00Z",
        "guests": [{"tier_id": "adult", "count": 2, "unit_price": {"amount_minor": 1, "currency": "NOK"}, "seats": 0}],
    }
    booking = api.book(departure, **forged).json()
    assert booking["id"] != forged["id"]
    assert (booking["status"], booking["booking_number"], booking["source"]) == ("confirmed", 1, "api")
    assert booking["totals"]["total"]["amount_minor"] == 2 * 89000
    assert booking["created_at"] == "2026-11-21T13:00:00+01:00"
    assert "evil" not in booking["manage_url"]
    assert api.world.row(tables.departures, departure)["seats_taken"] == 2
    assert other_api.get("/bookings").json()["data"] == []
    assert error_of(api.book(departure, payment={"method": "card", "status": "paid"})) == (400, "validation_failed")


def test_an_address_that_another_knows_is_a_new_customer_here(api: Api, other_api: Api) -> None:
    body = {"name": "Ada Lovelace", "email": "ada@example.com"}
    there = other_api.post("/customers", body)
    response = api.post("/customers", {**body, "name": "Another Ada"})
    assert (there.status_code, response.status_code) == (201, 201)
    assert response.json()["id"] != there.json()["id"]
    assert other_api.get("/customers").json()["data"][0]["name"] == "Ada Lovelace"


def test_the_code_of_another_organizations_card_is_not_found(api: Api, other_api: Api) -> None:
    refused(api.get(f"/gift-cards/{Belongings(other_api).gift_card}", include="code"), 404, "not_found")


def test_the_code_of_a_card_needs_the_scope_of_cards(api: Api) -> None:
    belongings = Belongings(api)
    blind = api.with_scopes(*(scope for scope in Scope if scope is not Scope.GIFT_CARDS_READ))
    for card in (belongings.gift_card, uuid.uuid4()):
        answer = refused(blind.get(f"/gift-cards/{card}", include="code"), 403, "insufficient_scope")
        assert answer["required_scope"] == "gift_cards:read"


def test_every_id_that_is_answered_belongs_to_the_caller(api: Api, other_api: Api) -> None:
    belongings, their = Belongings(api), Belongings(other_api)
    lists = ("/me", "/experiences", "/bookings", "/customers", "/gift-cards", "/events")
    days = ("/availability?from=2026-11-20", "/departures?date=2026-11-23")
    text = "".join(api.call("GET", path).text for path in (*lists, *days))
    for own_id, their_id in zip(belongings.ids, their.ids, strict=True):
        assert own_id in text
        assert their_id not in text
