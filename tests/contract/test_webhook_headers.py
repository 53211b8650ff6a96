"""Headers of the client's own: sent with each delivery, sealed, and never shown."""

from typing import Any

import pytest
from support.api.api import Api
from support.api.refusals import invalid_field, nothing_changes
from support.world.hooks import Hooks

from booking_core.db import tables
from booking_core.upkeep import doctor
from booking_core.webhooks import ClaimedDelivery
from booking_server.worker.deliveries import signed_headers

OWN = {"Authorization": "Bearer canary-token", "X-Tenant": "fjord"}
SHOWN = dict.fromkeys(OWN, "********")


pytestmark = [pytest.mark.one_database, pytest.mark.usefixtures("public_addresses")]


def create(api: Api, **over: Any) -> Any:
    body = {"url": "https://hooks.example.com/in", "event_types": ["booking.created"], "headers": OWN, **over}
    answer = api.call("POST", "/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def change(api: Api, endpoint: str, **body: Any) -> Any:
    answer = api.call("PATCH", f"/webhooks/{endpoint}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def claimed(api: Api, endpoint: str) -> ClaimedDelivery:
    api.book(api.world.departure(api.world.experience()))
    (found,) = (each for each in Hooks(api.world).claim(free=1000) if each.endpoint_id == endpoint)
    return found


def test_headers_are_sent_last_and_shown_masked(api: Api) -> None:
    endpoint = create(api)
    assert endpoint["headers"] == SHOWN
    assert api.get(f"/webhooks/{endpoint['id']}").json()["headers"] == SHOWN
    delivery = claimed(api, endpoint["id"])
    assert signed_headers(delivery)[-2:] == list(OWN.items())
    assert "canary" not in repr(delivery)
    assert api.world.examine() == []


def test_no_row_and_no_event_has_a_value(api: Api) -> None:
    endpoint = create(api)["id"]
    api.call("POST", f"/webhooks/{endpoint}/rotate-secret", json={})
    for table in (tables.webhook_endpoints, tables.events, tables.audit):
        assert "canary" not in str(api.world.rows(table))


def test_headers_stay_are_replaced_and_removed(api: Api) -> None:
    endpoint = create(api)["id"]
    assert change(api, endpoint, description="The calendar")["headers"] == SHOWN
    assert dict(claimed(api, endpoint).headers or ()) == OWN
    assert change(api, endpoint, headers={"X-Key": "v w"})["headers"] == {"X-Key": "********"}
    assert claimed(api, endpoint).headers == (("X-Key", "v w"),)
    assert change(api, endpoint, headers={})["headers"] == {}
    assert claimed(api, endpoint).headers == ()
    assert api.world.row(tables.webhook_endpoints, endpoint)["headers_sealed"] is None


def test_a_deleted_endpoint_keeps_none(api: Api) -> None:
    endpoint = create(api)["id"]
    assert api.call("DELETE", f"/webhooks/{endpoint}").status_code == 204
    row = api.world.row(tables.webhook_endpoints, endpoint)
    assert (row["header_names"], row["headers_sealed"]) == (None, None)


RESERVED = ("Host", "content-type", "Svc-Signature", "Webhook-Id", "Transfer-Encoding", "Connection", "User-Agent")
HEADERS_REFUSED: dict[str, list[Any]] = {
    "reserved": [{name: "v"} for name in RESERVED],
    "name": [{"X Key": "v"}, {"": "v"}],
    "value": [{"X-Key": value} for value in ("", "a\r\nHost: b", " padded ", "naïve", "x" * 1025, 1)],
    "repeated": [{"X-Key": "a", "x-key": "b"}],
    "too-many": [{f"X-{number}": "v" for number in range(11)}],
    "no-object": ["X-Key: v"],
}


@pytest.mark.parametrize("refused", HEADERS_REFUSED.values(), ids=HEADERS_REFUSED)
def test_headers_that_cannot_be_sent_are_refused(api: Api, refused: list[Any]) -> None:
    for headers in refused:
        body = {"url": "https://hooks.example.com/in", "event_types": ["booking.created"], "headers": headers}
        with nothing_changes(api.world):
            answer = api.call("POST", "/webhooks", json=body)
        assert str(invalid_field(answer)).startswith("headers"), headers


def test_unopenable_headers_are_a_finding_and_stop_their_deliveries(api: Api) -> None:
    endpoint, other = create(api)["id"], create(api)["id"]
    foreign = api.world.row(tables.webhook_endpoints, other)["headers_sealed"]
    api.world.change(tables.webhook_endpoints, endpoint, headers_sealed=foreign)
    api.book(api.world.departure(api.world.experience()))
    sent = {each.endpoint_id for each in Hooks(api.world).claim(free=1000)}
    assert (endpoint in sent, other in sent) == (False, True)
    options = doctor.CheckOptions(openers=doctor.openers(api.world.installation.secret_keys))
    found = api.world.database.read(lambda tx: doctor.examine(tx, api.world.org, options))
    assert any("webhook headers" in each.invariant or "webhook headers" in each.message for each in found)
