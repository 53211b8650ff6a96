"""`POST /webhooks/{id}/redeliver`: any event that is kept is sent to an endpoint again."""

import uuid
from typing import Any

import pytest
from support.api.api import Api, body_of
from support.api.refusals import conflict_reason, nothing_changes
from support.world.hooks import Hooks
from support.world.world import DAY

from booking_core.db import tables
from booking_core.models.events import EventType
from booking_core.models.scopes import Scope
from booking_core.webhooks import ClaimedDelivery

CREATED, CUSTOMER = EventType.BOOKING_CREATED, EventType.CUSTOMER_CREATED


@pytest.fixture
def hooks(api: Api) -> Hooks:
    return Hooks(api.world)


@pytest.fixture
def endpoint(hooks: Hooks) -> str:
    return hooks.endpoint(CREATED)


@pytest.fixture
def events(api: Api, endpoint: str) -> dict[str, str]:
    """The id of each event of a booking, by type."""
    api.book(api.world.departure(api.world.experience()))
    return {row["type"]: row["id"] for row in api.world.rows(tables.events)}


def redeliver(api: Api, endpoint: str, event_id: str, status: int = 202) -> Any:
    return body_of(api.call("POST", f"/webhooks/{endpoint}/redeliver", json={"event_id": event_id}), status)


def claim(hooks: Hooks, endpoint: str) -> list[ClaimedDelivery]:
    """Claim all due deliveries of the database, and return the endpoint's."""
    return [delivery for delivery in hooks.claim(free=1000) if delivery.endpoint_id == endpoint]


def listed(api: Api, endpoint: str) -> list[Any]:
    return list(api.get(f"/webhooks/{endpoint}/deliveries").json()["data"])


def test_what_was_delivered_is_sent_again_with_the_same_body(
    api: Api, hooks: Hooks, endpoint: str, events: dict[str, str]
) -> None:
    (first,) = claim(hooks, endpoint)
    hooks.succeed(first)
    queued = redeliver(api, endpoint, events[CREATED].upper())
    assert (queued["status"], queued["trigger"], queued["event_id"]) == ("queued", "redeliver", events[CREATED])
    assert (queued["attempt_count"], queued["max_attempts"], queued["completed_at"]) == (1, 7, None)
    (again,) = claim(hooks, endpoint)
    assert (again.delivery_id, again.body, again.number) == (first.delivery_id, first.body, 2)
    hooks.succeed(again)
    assert [(row["status"], len(row["attempts"])) for row in listed(api, endpoint)] == [("succeeded", 2)]
    assert api.world.examine() == []


def test_what_is_about_to_be_sent_stays_as_it_is(api: Api, hooks: Hooks, endpoint: str, events: dict[str, str]) -> None:
    with nothing_changes(api.world):
        assert redeliver(api, endpoint, events[CREATED])["trigger"] == "event"
    hooks.fail(*claim(hooks, endpoint))
    (row,) = hooks.rows(endpoint)
    api.world.clock.at = row["next_attempt_at"]
    with nothing_changes(api.world):
        assert redeliver(api, endpoint, events[CREATED])["attempt_count"] == 1
    claim(hooks, endpoint)
    with nothing_changes(api.world):
        assert redeliver(api, endpoint, events[CREATED])["attempt_count"] == 1


def test_what_waits_for_its_next_attempt_is_sent_at_once(
    api: Api, hooks: Hooks, endpoint: str, events: dict[str, str]
) -> None:
    hooks.fail(*claim(hooks, endpoint))
    assert claim(hooks, endpoint) == []
    queued = redeliver(api, endpoint, events[CREATED])
    assert (queued["trigger"], queued["attempt_count"], queued["max_attempts"]) == ("redeliver", 1, 7)
    (again,) = claim(hooks, endpoint)
    assert (again.event_id, again.number) == (events[CREATED], 2)
    assert api.world.examine() == []


def test_what_was_missed_is_sent_and_the_rest_stays_missed(api: Api, hooks: Hooks, endpoint: str) -> None:
    api.call("PATCH", f"/webhooks/{endpoint}", json={"status": "disabled"})
    departure = api.world.departure(api.world.experience())
    for _ in range(3):
        api.book(departure)
    api.call("PATCH", f"/webhooks/{endpoint}", json={"status": "enabled"})
    missed = listed(api, endpoint)
    queued = redeliver(api, endpoint, missed[1]["event_id"])
    assert (queued["id"], queued["status"]) == (missed[1]["id"], "queued")
    assert [row["status"] for row in listed(api, endpoint)] == ["failed", "queued", "failed"]
    with nothing_changes(api.world):
        assert redeliver(api, endpoint, missed[1]["event_id"]) == queued
    assert api.world.examine() == []


def test_redelivering_an_unsubscribed_type_needs_its_read_scope(
    api: Api, hooks: Hooks, endpoint: str, events: dict[str, str]
) -> None:
    without = api.with_scopes(Scope.WEBHOOKS_MANAGE, Scope.BOOKINGS_READ)
    with nothing_changes(api.world):
        assert redeliver(without, endpoint, events[CUSTOMER], 403)["required_scope"] == "customers:read"
    api.world.clock.advance(DAY)
    queued = redeliver(api, endpoint, events[CUSTOMER])
    assert (queued["event_type"], queued["attempt_count"], queued["max_attempts"]) == (CUSTOMER, 0, 6)
    assert redeliver(api, endpoint, events[CUSTOMER]) == queued
    claimed = claim(hooks, endpoint)
    assert sorted(delivery.event_type for delivery in claimed) == [CREATED, CUSTOMER]
    hooks.succeed(*claimed)
    assert api.world.examine() == []


def test_what_cannot_be_sent_is_refused(api: Api, other_api: Api, endpoint: str, events: dict[str, str]) -> None:
    other = Hooks(api.world).endpoint(CREATED)
    api.post(f"/webhooks/{other}/test")
    api.call("POST", f"/webhooks/{endpoint}/rotate-secret", json={})
    event_ids = {row["type"]: row["id"] for row in api.world.rows(tables.events)}
    other_api.book(other_api.world.departure(other_api.world.experience()))
    foreign = other_api.world.rows(tables.events)[0]["id"]
    with nothing_changes(api.world):
        for event_id, reason in (
            (str(uuid.uuid4()), "unknown_event"),
            (foreign, "unknown_event"),
            (event_ids["ping"], "ping"),
            (event_ids["webhook.secret_rotated"], "event_about_endpoint"),
        ):
            assert redeliver(api, endpoint, event_id, 422)["details"][0]["reason"] == reason
        assert redeliver(api, endpoint, "no-uuid", 400)["code"] == "validation_failed"
        redeliver(other_api, endpoint, foreign, 404)
    api.call("PATCH", f"/webhooks/{other}", json={"status": "disabled"})
    answer = api.call("POST", f"/webhooks/{other}/redeliver", json={"event_id": event_ids[CREATED]})
    assert conflict_reason(answer) == "endpoint_not_enabled"


def test_a_redelivery_takes_a_bounded_number_of_statements(
    api: Api, hooks: Hooks, endpoint: str, events: dict[str, str], statements: list[str]
) -> None:
    hooks.succeed(*claim(hooks, endpoint))
    statements.clear()
    redeliver(api, endpoint, events[CREATED])
    assert len(statements) <= 12
