"""`POST /stripe/webhooks/{organization}`: every signed event is applied, refused, or handed to staff."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.api.api import Api, body_of
from support.receivers.stripe_ledger import Ledger
from support.world.checkouts import Event, Webhooks, actor_of, checkout_body, intent_row

from booking_core.bookings import checkouts as core_checkouts
from booking_server.adapters.stripe_intents import parse_event

SEATS = 20  # of the fixture `departure`
TOTAL = 178_000
AMOUNTS = {"succeeded": "amount_received", "refunded": "amount_refunded", "disputed": "amount"}
TOO_MUCH = (2**63, 2**64 - 1, 2**64, 10**30)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, TOTAL, 2**63 - 1, *TOO_MUCH, 1e300, 0.5]),
    st.text(max_size=300),
    st.sampled_from(["pi_of_others", "eur", "isk", "mga", "won", "succeeded", "\x00", "\ud800", "{}", "x" * 201]),
    st.lists(st.integers() | st.text(max_size=5), max_size=2),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=2),
)


class Shop:
    """A booking with a payment at Stripe, and the events about it."""

    def __init__(self, api: Api, ledger: Ledger, departure_id: str, *, is_paid: bool) -> None:
        self.api, self.webhooks = api, Webhooks(ledger, api.world.org, cell=api.world.installation.cell)
        checkout = body_of(api.post("/checkouts", checkout_body(departure_id)), 201)
        self.booking_id, self.intent_id = checkout["id"], checkout["payment"]["intent_id"]
        ledger.pay(self.intent_id)
        if is_paid:
            assert self.send(self.event("succeeded")) == 200

    def event(self, name: str, **over: Any) -> Event:
        """Return an event about the booking's payment, with other values of the object that it shows."""
        event = copy.deepcopy(getattr(self.webhooks, name)(self.intent_id))
        event["data"]["object"] |= over
        return event

    def send(self, event: Event) -> int:
        now_s = self.api.world.clock() / 1e6
        return int(self.webhooks.send(self.api.client, event, now_s=now_s).status_code)

    @property
    def reason(self) -> tuple[str, str | None]:
        row = intent_row(self.api.world, self.booking_id)
        return row["status"], row["last_error"]

    def waiting(self) -> list[str]:
        """Return the bookings whose payment waits for staff."""
        world = self.api.world
        listed = world.database.read(
            lambda tx: core_checkouts.find_intents(tx, actor_of(world), state="waiting", limit=100)
        )
        return [row["booking_id"] for row in listed]


@pytest.mark.one_database
@pytest.mark.parametrize("amount", TOO_MUCH)
@pytest.mark.parametrize(
    ("name", "reason"), [("succeeded", "amount_differs"), ("refunded", "refund_differs"), ("disputed", None)]
)
def test_an_impossible_amount_waits_for_staff_despite_later_events(
    api: Api, ledger: Ledger, departure: str, name: str, reason: str | None, amount: int
) -> None:
    """A payment of such an amount does not confirm its booking; refunds and disputes are of a payment that does."""
    is_paid = name != "succeeded"
    shop = Shop(api, ledger, departure, is_paid=is_paid)
    event = shop.event(name, **{AMOUNTS[name]: amount})
    for stripe_event in (event, shop.event("succeeded"), event) if name == "refunded" else (event,):
        assert shop.send(stripe_event) == 200
    assert reason is None or shop.reason == ("needs_review", reason)
    assert shop.waiting() == [shop.booking_id]
    status = api.get(f"/checkouts/{shop.booking_id}").json()["booking"]["status"]
    assert is_paid or status == "pending"
    assert api.world.examine() == []


@pytest.mark.one_database
@pytest.mark.parametrize("value", [5, 2**63, 0.5, True, ["x"], {"x": 1}, None, "", "x", "\x00"])
def test_a_payment_is_applied_by_its_intent_whatever_its_metadata_hold(
    api: Api, ledger: Ledger, departure: str, caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    shop = Shop(api, ledger, departure, is_paid=False)
    metadata = {"organization_id": api.world.org, "booking_id": value}
    stranger = shop.event("succeeded", id="pi_of_nobody", metadata=metadata)
    assert shop.send(stranger) == 200
    assert shop.reason == ("open", None)
    assert "the payment pi_of_nobody" in caplog.text
    assert shop.send(shop.event("succeeded", metadata=metadata)) == 200
    assert shop.reason == ("succeeded", None)


OBJECT = {"id": "pi_1", "payment_intent": "pi_1", "status": "open", "currency": "nok", "amount": 5}
"""The fields that an event of any type has."""
DECLINED = {"code": "card_declined", "decline_code": "insufficient_funds"}
REFUNDS = {"data": [{"id": "re_2"}, {"id": "re_1"}]}


@pytest.mark.parametrize(
    ("kind", "over", "fields"),
    [
        pytest.param(
            "payment_intent.payment_failed", {}, {"error": "payment_failed", "state": "declined"}, id="failed"
        ),
        pytest.param(
            "payment_intent.payment_failed",
            {"last_payment_error": DECLINED},
            {"error": "insufficient_funds"},
            id="card",
        ),
        pytest.param(
            "payment_intent.payment_failed",
            {"last_payment_error": {"code": "x" * 101}},
            {"error": "x" * 100},
            id="long",
        ),
        pytest.param("charge.refunded", {"refunds": REFUNDS}, {"refund_id": "re_2", "is_whole": False}, id="in part"),
        pytest.param("charge.refunded", {"refunded": True}, {"refund_id": None, "is_whole": True}, id="whole"),
        pytest.param("charge.refunded", {"amount_refunded": 3}, {"refunded_minor": 3}, id="amount"),
        pytest.param("charge.dispute.created", {}, {"reason": "unknown", "is_closed": False}, id="dispute"),
        pytest.param("charge.dispute.updated", {"reason": "fraudulent"}, {"reason": "fraudulent"}, id="reason"),
        pytest.param("charge.dispute.closed", {"status": "prevented"}, {"is_closed": True}, id="closed"),
    ],
)
def test_an_event_is_read_with_its_optional_fields(kind: str, over: dict[str, Any], fields: dict[str, Any]) -> None:
    update = parse_event(json.dumps({"type": kind, "data": {"object": OBJECT | over}}).encode())
    assert {name: getattr(update, name) for name in fields} == fields


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value of a JSON document."""
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


def replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at a path; the document itself if it has no such path any more."""
    if not path:
        return value
    if not isinstance(node, dict | list):
        return node
    changed = copy.copy(node)
    changed[path[0]] = replaced(node[path[0]], path[1:], value)
    return changed


@pytest.mark.one_database
@pytest.mark.exhaustive(but="postgresql-succeeded")
@pytest.mark.parametrize("is_paid", [False, True])
@pytest.mark.parametrize("name", ["succeeded", "failed", "refunded", "disputed"])
def test_no_signed_event_is_a_server_error(api: Api, ledger: Ledger, departure: str, name: str, is_paid: bool) -> None:
    shop = Shop(api, ledger, departure, is_paid=is_paid)
    template = shop.event(name)
    places = list(paths(template))

    @settings(
        max_examples=25,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        st.lists(st.tuples(st.sampled_from(places), VALUES), min_size=1, max_size=3, unique_by=lambda change: change[0])
    )
    @example([(("data", "object", AMOUNTS.get(name, "amount")), 2**63)])
    def check(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
        event = template
        for path, value in sorted(changes, key=lambda change: -len(change[0])):
            event = replaced(event, path, value)
        assert shop.send(event) in (200, 400)

    check()
    assert api.world.examine() == []
