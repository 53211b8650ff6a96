"""The limit of an endpoint: set, shown, changed and removed; refused outside its bounds."""

from typing import Any

import pytest
from support.api.api import Api
from support.api.refusals import invalid_field, nothing_changes
from support.world.hooks import Hooks

from booking_core.db import tables

URL = "https://hooks.example.com/in"


pytestmark = pytest.mark.usefixtures("public_addresses")


def create(api: Api, **over: Any) -> Any:
    return api.call("POST", "/webhooks", json={"url": URL, "event_types": ["booking.created"], **over})


def test_a_limit_is_set_shown_changed_and_removed(api: Api) -> None:
    endpoint = create(api, max_per_second=5).json()
    path = f"/webhooks/{endpoint['id']}"
    assert endpoint["max_per_second"] == api.get(path).json()["max_per_second"] == 5
    assert api.call("PATCH", path, json={"description": "The calendar"}).json()["max_per_second"] == 5
    assert api.call("PATCH", path, json={"max_per_second": 1000}).json()["max_per_second"] == 1000
    assert api.call("PATCH", path, json={"max_per_second": None}).json()["max_per_second"] is None
    assert api.world.row(tables.webhook_endpoints, endpoint["id"])["max_per_second"] is None
    assert create(api).json()["max_per_second"] is None
    assert api.world.examine() == []


def test_a_limit_outside_its_bounds_is_refused(api: Api) -> None:
    path = f"/webhooks/{create(api).json()['id']}"
    with nothing_changes(api.world):
        for limit in (0, -1, 1001, "5", 1.5, True, 10**30, []):
            changed = api.call("PATCH", path, json={"max_per_second": limit})
            for answer in (create(api, max_per_second=limit), changed):
                assert (limit, invalid_field(answer)) == (limit, "max_per_second")


def test_tests_and_redeliveries_count_as_queued_deliveries(api: Api) -> None:
    endpoint = create(api, max_per_second=1, event_types=["webhook.enabled"]).json()["id"]
    api.book(api.world.departure(api.world.experience()))
    event = api.get("/events").json()["data"][0]["id"]
    for _ in range(2):
        assert api.call("POST", f"/webhooks/{endpoint}/test").status_code == 202
    assert api.call("POST", f"/webhooks/{endpoint}/redeliver", json={"event_id": event}).status_code == 202
    claimed = [delivery for delivery in Hooks(api.world).claim(free=1000) if delivery.endpoint_id == endpoint]
    assert len(claimed) == 1
    deliveries = api.get(f"/webhooks/{endpoint}/deliveries").json()["data"]
    assert {delivery["status"] for delivery in deliveries} == {"queued"}
    assert {delivery["trigger"] for delivery in deliveries} == {"test", "redeliver"}
