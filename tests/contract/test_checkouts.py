"""`/api/v1/checkouts`: a pending booking with one payment at Stripe, for any number of requests."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from support.api.api import Api, body_of, error_of
from support.api.refusals import conflict_reason, nothing_changes, reason_of
from support.faults import canaries
from support.receivers.stripe_ledger import KEY, Fault, Ledger
from support.world import checkouts
from support.world.checkouts import PUBLISHABLE_KEY, Webhooks, checkout_body, intent_row
from support.world.operations import Operations
from support.world.world import NEWER_SECRET, World

from booking_core.base.clock import MINUTE
from booking_core.base.errors import Unavailable
from booking_core.base.tokens import SecretKeys
from booking_core.bookings import checkouts as core_checkouts
from booking_core.db import tables
from booking_core.models.scopes import Scope
from booking_core.payments import stripe_accounts
from booking_server import stripe_webhooks
from booking_server.monitoring.metrics import STRIPE_OUTCOMES

SEATS = 5  # of the fixture `departure`
TOTAL = 178_000
COUNTED = "booking_stripe_webhooks"


def create(api: Api, departure_id: str, *, key: str | None = None, **over: Any) -> dict[str, Any]:
    return dict(body_of(api.post("/checkouts", checkout_body(departure_id, **over), key=key), 201))


# Created ---------------------------------------------------------------------------------------------------------


def test_a_checkout_refused_before_stripe_keeps_no_seats(api: Api, running: Ledger, departure: str) -> None:
    checkouts.configure(api.world)
    with checkouts.calling(api.client, running, of_one_max=0), nothing_changes(api.world):
        refused = api.post("/checkouts", checkout_body(departure), key="behind-too-many")
        assert error_of(refused) == (503, "service_unavailable")
    with checkouts.calling(api.client, running):
        assert create(api, departure, key="behind-too-many")["booking"]["status"] == "pending"


def test_a_checkout_is_a_pending_booking_with_a_payment(api: Api, ledger: Ledger, departure: str) -> None:
    checkout = create(api, departure)
    booking, payment = checkout["booking"], checkout["payment"]
    assert checkout["id"] == booking["id"]
    assert (booking["status"], booking["source"]) == ("pending", "online")
    assert booking["payment"] == {"method": "card", "source": "stripe", "status": "pending"}
    assert checkout == api.get(f"/checkouts/{checkout['id']}").json()
    intent = ledger.intents[payment["intent_id"]]
    assert payment == {
        "intent_id": intent["id"],
        "client_secret": intent["client_secret"],
        "publishable_key": PUBLISHABLE_KEY,
        "amount": {"amount_minor": TOTAL, "currency": "NOK"},
        "expires_at": api.world.organization.zone.iso(api.world.clock() + 30 * MINUTE),
    }
    assert (intent["amount"], intent["currency"]) == (TOTAL, "nok")
    assert intent["metadata"] == {"organization_id": api.world.org, "booking_id": checkout["id"]}
    assert ledger.requests == [("create", f"checkout-{checkout['id']}")]
    assert api.world.examine() == []


def test_a_repeated_request_gets_the_same_answer_and_no_second_intent(api: Api, ledger: Ledger, departure: str) -> None:
    body = checkout_body(departure)
    first = api.post("/checkouts", body, key="one-and-the-same")
    again = api.post("/checkouts", body, key="one-and-the-same")
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert len(ledger.requests) == 1
    assert len(api.world.rows(tables.bookings)) == 1


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.DROPPED_AFTER, Fault.GARBAGE])
def test_stripe_that_fails_is_503_and_the_same_request_makes_one_intent(
    api: Api, ledger: Ledger, departure: str, fault: Fault
) -> None:
    ledger.next_faults[:] = [fault]
    body, count = checkout_body(departure), len(ledger.intents)
    refused = api.post("/checkouts", body, key="after-a-failure")
    assert error_of(refused) == (503, "service_unavailable")
    assert refused.headers["retry-after"] == "5"
    checkout = body_of(api.post("/checkouts", body, key="after-a-failure"), 201)
    assert len(ledger.intents) == count + 1
    assert ledger.intents[checkout["payment"]["intent_id"]]["metadata"]["booking_id"] == checkout["id"]
    assert len(api.world.rows(tables.bookings)) == 1


def test_a_payment_that_stripe_refuses_releases_the_seats(api: Api, ledger: Ledger, world: World) -> None:
    departure = world.departure(world.experience(price_tiers="[]", price_from_minor=10), seats=5)
    body = checkout_body(departure, guests=[{"tier_id": "standard", "count": 1}])
    for _ in range(2):
        assert conflict_reason(api.post("/checkouts", body, key="far-too-little")) == "payment_refused"
    ops = Operations(world)
    assert ops.abandon_due() == 1
    assert ops.seats_taken(departure) == 0
    assert world.examine() == []


@pytest.mark.parametrize(
    ("status", "code", "refusal", "reason"),
    [
        pytest.param(402, "card_declined", (409, "conflict"), "payment_refused", id="for good"),
        pytest.param(400, "lock_timeout", (503, "service_unavailable"), "(lock_timeout)", id="another request"),
        pytest.param(401, None, (503, "service_unavailable"), "(http_401)", id="the key"),
    ],
)
def test_an_error_of_stripe_refuses_the_payment_or_asks_for_another_request(
    api: Api,
    ledger: Ledger,
    departure: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    status: int,
    code: str | None,
    refusal: tuple[int, str],
    reason: str,
) -> None:
    error = {"type": "card_error" if status == 402 else "invalid_request_error", "code": code}
    monkeypatch.setattr(ledger, "in_between", (status, json.dumps({"error": error}).encode()))
    answer = api.post("/checkouts", checkout_body(departure))
    assert (error_of(answer), reason in answer.text) == (refusal, True)
    assert ("Stripe refuses the key of an organization" in caplog.text) == (status == 401)


def test_nothing_left_to_pay_is_confirmed_at_once_without_stripe(api: Api, ledger: Ledger, departure: str) -> None:
    _, code = Operations(api.world).issue(TOTAL)
    checkout = create(api, departure, gift_card_code=code)
    assert (checkout["booking"]["status"], checkout["payment"]) == ("confirmed", None)
    assert ledger.requests == []
    assert api.get(f"/checkouts/{checkout['id']}").json()["payment"] is None


def test_a_checkout_keeps_a_reference_and_metadata_as_a_booking_does(api: Api, ledger: Ledger, departure: str) -> None:
    fields = {"external_reference": "A-1042", "metadata": {"channel": "acme"}}
    unique = {"external_reference_unique": True}
    booking = create(api, departure, count=1, **fields, **unique)["booking"]
    assert {name: booking[name] for name in fields} == fields
    (listed,) = api.get("/bookings", external_reference="A-1042").json()["data"]
    assert listed["id"] == booking["id"]
    refused = api.post("/checkouts", checkout_body(departure, 1, **fields, **unique))
    assert conflict_reason(refused) == "external_reference_taken"
    assert len(ledger.requests) == 1
    assert create(api, departure, count=1, **fields)["booking"]["external_reference"] == "A-1042"
    for wrong in ({"metadata": {"no blanks": ""}}, unique):
        assert error_of(api.post("/checkouts", checkout_body(departure, 1, **wrong))) == (400, "validation_failed")


def test_without_an_account_cards_are_refused_and_nothing_is_written(api: Api, departure: str) -> None:
    _, code = Operations(api.world).issue(TOTAL - 1)
    with nothing_changes(api.world, leaving_out={"idempotency"}):
        refused = api.post("/checkouts", checkout_body(departure, gift_card_code=code))
    assert conflict_reason(refused) == "card_payments_not_configured"
    _, whole = Operations(api.world).issue(TOTAL)
    assert create(api, departure, gift_card_code=whole)["booking"]["status"] == "confirmed"


def test_an_account_that_no_live_key_opens_is_none(ledger: Ledger, world: World) -> None:
    keys = SecretKeys(NEWER_SECRET)
    assert world.database.read(lambda tx: stripe_accounts.exists(tx, world.org))
    assert world.database.read(lambda tx: stripe_accounts.find(tx, keys, world.org)) is None


def test_a_repeated_request_is_answered_when_the_account_was_removed(api: Api, ledger: Ledger, departure: str) -> None:
    body, world = checkout_body(departure), api.world
    first = api.post("/checkouts", body, key="with-an-account").json()
    world.database.write(lambda tx: stripe_accounts.remove(tx, checkouts.actor_of(world)))
    again = api.post("/checkouts", body, key="with-an-account").json()
    assert again == first | {"payment": first["payment"] | {"publishable_key": None}}


def test_an_amount_that_cannot_be_charged_is_refused(api: Api, ledger: Ledger, world: World) -> None:
    departure = world.departure(world.experience(currency="KWD", price_tiers="[]", price_from_minor=1234), seats=5)
    refused = api.post("/checkouts", checkout_body(departure, guests=[{"tier_id": "standard", "count": 1}]))
    assert (error_of(refused), reason_of(refused)) == ((422, "validation_failed"), "amount_not_chargeable")
    assert world.rows(tables.bookings) == []


def test_a_key_without_the_scope_for_bookings_pays_and_sees_no_link(api: Api, ledger: Ledger, departure: str) -> None:
    shop = api.with_scopes(Scope.CHECKOUTS_WRITE)
    checkout = create(shop, departure)
    assert shop.get(f"/checkouts/{checkout['id']}").json()["booking"]["manage_url"] is None
    assert api.get(f"/checkouts/{checkout['id']}").json()["booking"]["manage_url"].startswith("http")
    assert error_of(shop.get(f"/bookings/{checkout['id']}")) == (403, "insufficient_scope")


def test_a_request_that_comes_after_the_end_makes_no_intent(api: Api, ledger: Ledger, departure: str) -> None:
    ledger.next_faults[:] = [Fault.ERROR_BEFORE]
    body = checkout_body(departure)
    assert api.post("/checkouts", body, key="much-too-late").status_code == 503
    api.world.clock.advance(31 * MINUTE)
    assert conflict_reason(api.post("/checkouts", body, key="much-too-late")) == "checkout_expired"
    assert len(ledger.requests) == 0


def test_the_number_of_statements_is_bounded(api: Api, ledger: Ledger, departure: str, statements: list[str]) -> None:
    create(api, departure)
    statements.clear()
    create(api, departure, count=1)
    assert len(statements) <= (30 if api.world.database.is_sqlite else 24), "\n".join(statements)


# Read ------------------------------------------------------------------------------------------------------------


def test_a_checkout_shows_its_secret_only_while_the_guest_can_pay(api: Api, ledger: Ledger, departure: str) -> None:
    checkout = create(api, departure)
    read = api.get(f"/checkouts/{checkout['id']}").json()
    assert read["payment"] == checkout["payment"]
    pay(api, ledger, checkout["payment"]["intent_id"])
    paid = api.get(f"/checkouts/{checkout['id']}").json()
    assert (paid["booking"]["status"], paid["booking"]["payment"]["status"]) == ("confirmed", "paid")
    assert paid["payment"]["client_secret"] is None


def test_a_booking_of_another_source_is_no_checkout(api: Api, departure: str) -> None:
    booking = api.book(departure).json()
    assert error_of(api.get(f"/checkouts/{booking['id']}")) == (404, "not_found")


# Webhooks --------------------------------------------------------------------------------------------------------


def webhooks_of(world: World, ledger: Ledger) -> Webhooks:
    return Webhooks(ledger, world.org, cell=world.installation.cell)


def pay(api: Api, ledger: Ledger, intent_id: str) -> None:
    ledger.pay(intent_id)
    response = send(api, ledger, "succeeded", intent_id)
    assert (response.status_code, response.json()) == (200, {"received": True})


def send(api: Api, ledger: Ledger, name: str, intent_id: str, **over: Any) -> Any:
    webhooks = webhooks_of(api.world, ledger)
    event = getattr(webhooks, name)(intent_id)
    return webhooks.send(api.client, event, now_s=over.pop("now_s", api.world.clock() / 1e6), **over)


@pytest.mark.parametrize(
    "over",
    [
        {"secret": "whsec_of_somebody_else"},
        {"now_s": 0.0},
        {"headers": {"Stripe-Signature": ""}},
        {"headers": {"Stripe-Signature": "t=1,v1=00"}},
        {"content": b'{"type":"payment_intent.succeeded"}'},
    ],
    ids=["secret", "old", "missing", "malformed", "body"],
)
def test_an_unsigned_stripe_webhook_is_refused_and_logged_in_one_line(
    api: Api, ledger: Ledger, departure: str, caplog: pytest.LogCaptureFixture, over: dict[str, Any]
) -> None:
    checkout = create(api, departure)
    intent_id = checkout["payment"]["intent_id"]
    ledger.pay(intent_id)
    assert error_of(send(api, ledger, "succeeded", intent_id, **over)) == (400, "validation_failed")
    assert len([record for record in caplog.records if record.name == "booking.stripe"]) == 1
    assert api.get(f"/checkouts/{checkout['id']}").json()["booking"]["status"] == "pending"
    secrets = (checkout["payment"]["client_secret"], checkouts.SECRET, KEY, "ada@example.com")
    assert not any(secret in caplog.text for secret in secrets)


@pytest.mark.parametrize("token", ["nobody", "00000000-0000-0000-0000-000000000000", "%00", "a/b"])
def test_a_webhook_for_no_organization_is_not_found(api: Api, ledger: Ledger, token: str) -> None:
    webhooks = webhooks_of(api.world, ledger)
    event = webhooks.of("customer.created", {})
    path = f"/stripe/webhooks/{token}"
    assert webhooks.send(api.client, event, now_s=api.world.clock() / 1e6, path=path).status_code == 404


def test_a_body_that_is_too_large_is_refused(api: Api, ledger: Ledger) -> None:
    webhooks = webhooks_of(api.world, ledger)
    event = webhooks.of("customer.created", {"text": "x" * 300_000})
    assert webhooks.send(api.client, event, now_s=api.world.clock() / 1e6).status_code == 413


def test_a_webhook_of_another_organization_changes_nothing(
    api: Api, ledger: Ledger, departure: str, new_world: Any
) -> None:
    checkout = create(api, departure)
    ledger.pay(checkout["payment"]["intent_id"])
    others = new_world()
    checkouts.configure(others)
    webhooks = webhooks_of(others, ledger)
    event = webhooks.succeeded(checkout["payment"]["intent_id"])
    assert webhooks.send(api.client, event, now_s=api.world.clock() / 1e6).status_code == 200
    assert intent_row(api.world, checkout["id"])["status"] == "open"
    assert json.dumps(others.rows(tables.payment_intents)) == "[]"


def test_a_webhook_without_a_database_is_503_and_is_not_lost(
    api: Api, ledger: Ledger, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stripe sends an event again that was not answered with 200."""
    intent_id = create(api, departure)["payment"]["intent_id"]
    ledger.pay(intent_id)

    def be_unavailable(*_: object, **__: object) -> None:
        raise Unavailable

    for module, name in ((stripe_accounts, "find"), (core_checkouts, "apply")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, be_unavailable)
            refused = send(api, ledger, "succeeded", intent_id)
        assert error_of(refused) == (503, "service_unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        assert intent_row(api.world, api.world.rows(tables.bookings)[0]["id"])["status"] == "open"
    assert send(api, ledger, "succeeded", intent_id).status_code == 200
    assert api.event_types() == ["customer.created", "booking.created", "booking.confirmed"]


STRANGER = {"id": "pi_of_others", "status": "succeeded", "currency": "nok", "amount_received": 5, "metadata": {}}
SHAPES = [{}, [], {"id": 5}, STRANGER | {"amount_received": "5"}]
"""Objects that Stripe never sends."""


def test_each_webhook_is_answered_and_counted_by_its_outcome(
    api: Api, ledger: Ledger, departure: str, new_world: Callable[[], World]
) -> None:
    """Operators have alerts by these counts; a webhook without a signature can come from anywhere, and has none."""
    paid, other = (create(api, departure)["payment"]["intent_id"] for _ in range(2))
    for intent_id in (paid, other):
        ledger.pay(intent_id)
    ledger.intents[other]["amount_received"] = 5
    without_account = webhooks_of(new_world(), ledger)

    def post(name: str, payload: Any, webhooks: Webhooks | None = None) -> Any:
        webhooks = webhooks or webhooks_of(api.world, ledger)
        return webhooks.send(api.client, webhooks.of(name, payload), now_s=api.world.clock() / 1e6)

    before = outcomes(api)
    answers = {
        "ignored": post("customer.created", {}),
        "unknown": post("payment_intent.succeeded", STRANGER),
        "unsigned": send(api, ledger, "succeeded", paid, headers={"Stripe-Signature": ""}),
        "wrong_signature": send(api, ledger, "succeeded", paid, secret="whsec_of_somebody_else"),
        "no_account": post("customer.created", {}, without_account),
    }
    statuses = {name: answer.status_code for name, answer in answers.items()}
    refused = {"unsigned": 400, "wrong_signature": 400, "no_account": 404}
    assert statuses == {"ignored": 200, "unknown": 200} | refused
    assert [post("payment_intent.succeeded", shape).status_code for shape in SHAPES] == [400] * len(SHAPES)
    assert {row["status"] for row in api.world.rows(tables.payment_intents)} == {"open"}
    assert [send(api, ledger, "succeeded", intent_id).status_code for intent_id in (paid, other)] == [200, 200]
    once = dict.fromkeys((*answers, "done", "needs_review"), 1)
    assert outcomes(api) - before == once | {"refused": len(SHAPES)}


def test_a_webhook_that_meets_an_outage_counts_as_failed(
    api: Api, ledger: Ledger, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent_id = create(api, departure)["payment"]["intent_id"]
    before = outcomes(api)
    for failure in (Unavailable(reason="queue"), RuntimeError("a defect")):
        with monkeypatch.context() as patched:
            patched.setattr(stripe_webhooks, "_apply", AsyncMock(side_effect=failure))
            assert send(api, ledger, "succeeded", intent_id).status_code >= 500
    assert outcomes(api) - before == {"failed": 2}


def outcomes(api: Api) -> Counter[str]:
    """Return the webhooks of the process so far by outcome."""
    service = checkouts.app_of(api.client)
    (family,) = [family for family in service.state.monitor.metrics.registry.collect() if family.name == COUNTED]
    counts = {
        sample.labels["outcome"]: int(sample.value) for sample in family.samples if sample.name == f"{COUNTED}_total"
    }
    assert set(counts) == set(STRIPE_OUTCOMES)
    return Counter(counts)


# Secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_no_secret_of_a_payment_is_stored_in_plain_or_logged(
    api: Api, ledger: Ledger, departure: str, shared_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    checkout = create(api, departure)
    client_secret, intent_id = checkout["payment"]["client_secret"], checkout["payment"]["intent_id"]
    ledger.next_faults[:] = [Fault.ERROR_BEFORE, Fault.GARBAGE]
    for number in range(2):
        api.post("/checkouts", checkout_body(departure, 1), key=f"refused-{number}-{api.world.org}")
    pay(api, ledger, intent_id)
    send(api, ledger, "succeeded", intent_id, secret="whsec_of_somebody_else")
    api.get(f"/checkouts/{checkout['id']}")
    looked_for = [
        canaries.canary("client secret", client_secret),
        canaries.canary("API key", KEY),
        canaries.canary("webhook secret", checkouts.SECRET),
    ]
    places = canaries.stored(shared_database_url) | {"log": caplog.text.encode()}
    assert canaries.sweep(looked_for, places) == set()
