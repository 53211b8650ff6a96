"""`booking webhooks trigger`: events of every type, well formed, and sent well or ill."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.receivers.receivers import GARBAGE, Answer, Receipt, Receivers, plain, reset
from support.serving.commands import Booking, Environment
from support.world.world import World

from booking_cli.commands.webhooks import receiver
from booking_cli.framework import event_types
from booking_core.models.bookings import CancelReason
from booking_core.models.events import EventType
from booking_sdk.models import EVENT_CLASSES
from webhook_verify import Verifier, WebhookVerificationError, generate_secret

NOW = datetime.fromisoformat("2026-11-21T13:00:00.123456+01:00")


def sample(kind: str) -> dict[str, Any]:
    ids = count(1)
    return event_types.sample(kind, NOW, lambda: f"00000000-0000-4000-8000-{next(ids):012}")


def surplus(model: BaseModel) -> list[str]:
    """Return the fields, at any depth, that the model does not have."""
    names = list(model.model_extra or ())
    for value in (getattr(model, name) for name in type(model).model_fields):
        for entry in value if isinstance(value, list) else [value]:
            names += surplus(entry) if isinstance(entry, BaseModel) else []
    return names


# The events ------------------------------------------------------------------------------------------------------


def test_there_is_a_sample_of_every_type() -> None:
    assert set(event_types.TYPES) == {kind.value for kind in EventType}


@pytest.mark.parametrize("kind", event_types.TYPES)
def test_every_event_has_exactly_the_shape_of_the_wire(kind: str) -> None:
    event = EVENT_CLASSES[kind].model_validate(sample(kind))
    data: Any = event.data
    assert surplus(event) == []
    assert data.model_fields_set == type(data).model_fields.keys()
    assert data.object.model_fields_set == type(data.object).model_fields.keys() - {"code"}
    assert getattr(data.object, "manage_url", None) is None


def test_every_sample_is_another_event_of_now_and_keeps_what_belongs_together() -> None:
    first, second = sample("booking.rescheduled"), event_types.sample("booking.rescheduled", NOW, lambda: "other")
    assert first["created_at"] == "2026-11-21T13:00:00+01:00"
    assert first["id"] != second["id"]
    moved = first["data"]
    assert moved["previous_departure"]["id"] == moved["changes"]["departure"]["id"]
    assert moved["object"]["departure"]["starts_at"][11:16] == "10:00"
    assert moved["object"]["departure"]["starts_at"] > first["created_at"]


def test_what_an_event_says_fits_together() -> None:
    booking = sample("booking.confirmed")["data"]["object"]
    lines = [*booking["guests"], *booking["add_ons"]]
    totals = {name: money["amount_minor"] for name, money in booking["totals"].items()}
    assert totals["subtotal"] == sum(line["count"] * line["unit_price"]["amount_minor"] for line in lines)
    assert totals["total"] == totals["subtotal"] - totals["discount"] - totals["gift_card"]
    assert booking["status"] == "confirmed"
    cancelled = sample("booking.cancelled")["data"]
    assert (cancelled["object"]["status"], CancelReason(cancelled["reason"])) == ("cancelled", CancelReason.API)
    moved = sample("booking.rescheduled")["data"]
    assert moved["previous_departure"]["id"] != moved["object"]["departure"]["id"]
    redeemed = sample("gift_card.redeemed")["data"]
    card, spent = redeemed["object"], redeemed["redeemed_amount"]["amount_minor"]
    assert card["balance"]["amount_minor"] == card["initial_amount"]["amount_minor"] - spent
    assert sample("webhook.auto_disabled")["data"]["object"]["status"] == "auto_disabled"


@pytest.mark.parametrize("kind", event_types.TYPES)
def test_every_timestamp_has_the_offset_of_its_place_and_whole_seconds(kind: str) -> None:
    def timestamps(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for name, field in value.items():
                yield from [field] if name.endswith("_at") and field is not None else timestamps(field)

    texts = list(timestamps(sample(kind)))
    assert texts
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+01:00", text) for text in texts)


# Sending ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def receivers() -> Iterator[Receivers]:
    with Receivers() as opened:
        yield opened


@pytest.fixture
def secret(booking: Booking, environment: Environment) -> str:
    """The secret of the receiver, which the command has in its environment."""
    secret = generate_secret()
    environment("BOOKING_WEBHOOK_SECRET", secret)
    return secret


def verifying(secret: str) -> Callable[[Receipt], Answer]:
    """Return a receiver that verifies each delivery."""
    verifier = Verifier(secret)

    def choose(receipt: Receipt) -> Answer:
        try:
            delivery = verifier.verify(receipt.body, receipt.headers)
        except WebhookVerificationError as error:
            return plain(error.http_status, body=error.reason.encode())
        assert delivery.event_id == receipt.event_id
        return plain(200)

    return choose


@pytest.mark.parametrize("kind", event_types.TYPES)
def test_an_event_of_every_type_is_accepted_by_a_strict_receiver(
    booking: Booking, receivers: Receivers, secret: str, kind: str
) -> None:
    receiver = receivers.open(verifying(secret))
    sent = booking("webhooks", "trigger", kind, "--to", receiver.url, "-o", "json")
    assert (sent.code, sent.err) == (0, "")
    assert (sent.json["status"], sent.json["type"], sent.json["as_expected"]) == (200, kind, True)
    (receipt,) = receiver.receipts
    assert receipt.headers["user-agent"] == "Svc-Webhooks/1.0"
    assert receipt.headers["content-type"] == "application/json"
    assert receipt.attempt_id == sent.json["delivery_id"]
    assert receipt.event_id == json.loads(receipt.body)["id"] == sent.json["id"]
    assert receipt.headers.keys() >= {"webhook-id", "webhook-timestamp", "webhook-signature"}


def test_the_request_has_no_header_that_a_delivery_has_not(booking: Booking, receivers: Receivers, secret: str) -> None:
    receiver = receivers.open()
    booking("webhooks", "trigger", "ping", "--to", receiver.url)
    svc = {"svc-signature", "svc-event-id", "svc-event-type", "svc-delivery-id"}
    standard = {"webhook-id", "webhook-timestamp", "webhook-signature"}
    http = {"host", "content-type", "content-length", "user-agent"}
    assert receiver.receipts[0].headers.keys() == svc | standard | http


FAULTS = {
    "--stale": "timestamp_too_old",
    "--future": "timestamp_too_new",
    "--invalid-signature": "signature_mismatch",
    "--tampered": "signature_mismatch",
    "--no-signature": "header_missing",
}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.items())
def test_only_a_fault_that_the_receiver_refuses_exits_0(
    booking: Booking, receivers: Receivers, secret: str, fault: str, reason: str
) -> None:
    strict, careless, broken = receivers.open(verifying(secret)), receivers.open(), receivers.open(lambda _: plain(500))
    refused = booking("webhooks", "trigger", "booking.created", "--to", strict.url, fault, "--json")
    assert (refused.code, refused.json["fault"]) == (0, fault.removeprefix("--"))
    assert (refused.json["status"], refused.json["response"]) == (400, reason)
    result = booking("webhooks", "trigger", "booking.created", "--to", careless.url, fault, "--json")
    assert result.refusal == (1, "receiver_failed")
    assert (result.json["status"], result.json["as_expected"]) == (200, False)
    assert "verifies the signature" in result.error["hint"]
    failed = booking("webhooks", "trigger", "booking.created", "--to", broken.url, fault, "--json")
    assert (failed.refusal, failed.json["status"]) == ((1, "receiver_failed"), 500)


def test_a_duplicate_is_the_same_event_in_another_delivery(booking: Booking, receivers: Receivers, secret: str) -> None:
    receiver = receivers.open(verifying(secret))
    sent = booking("webhooks", "trigger", "booking.created", "--to", receiver.url, "--duplicate", "-o", "json")
    assert (sent.code, [delivery["status"] for delivery in sent.json["data"]]) == (0, [200, 200])
    first, second = receiver.receipts
    assert (first.event_id, first.body) == (second.event_id, second.body)
    assert first.attempt_id != second.attempt_id


@pytest.mark.parametrize(("to", "error"), [("1", "connect_failed"), ("http://receiver.invalid/", "dns_failed")])
def test_a_receiver_that_is_not_there_exits_3(booking: Booking, secret: str, to: str, error: str) -> None:
    sent = booking("webhooks", "trigger", "ping", "--to", to, "--json")
    assert (sent.json["error"], sent.refusal) == (error, (3, "receiver_away"))


NONSENSE = dict(zip(("another protocol", "no status", "any bytes", "half a head"), GARBAGE, strict=True))
ANSWERS: dict[str, tuple[Answer, str, str]] = {
    "refuses": (plain(400, body=b"signature_mismatch"), "http_status", "the secret that this was signed with"),
    "redirects": (plain(307, "Location: http://127.0.0.1:1/"), "redirect", ""),
    "hangs up": (reset, "protocol_error", ""),
    **{name: (answer, "protocol_error", "") for name, answer in NONSENSE.items()},
}
"""Answers of a receiver, with the error and a part of the hint."""


@pytest.mark.parametrize("name", ANSWERS)
def test_a_receiver_that_refuses_exits_1(booking: Booking, receivers: Receivers, secret: str, name: str) -> None:
    """A redirect that was followed would be a connection that fails."""
    answer, error, hint = ANSWERS[name]
    receiver = receivers.open(lambda _: answer)
    sent = booking("webhooks", "trigger", "ping", "--to", receiver.url, "--json")
    assert (sent.code, sent.json["error"], len(receiver.receipts)) == (1, error, 1)
    assert hint in (sent.error["hint"] or "")


def test_a_proxy_of_the_environment_is_not_asked(
    booking: Booking, receivers: Receivers, secret: str, environment: Environment
) -> None:
    receiver = receivers.open()
    environment("http_proxy", "http://127.0.0.1:1")
    environment("HTTP_PROXY", "http://127.0.0.1:1")
    assert booking("webhooks", "trigger", "ping", "--to", receiver.url).code == 0


# Options ---------------------------------------------------------------------------------------------------------


def test_a_field_can_be_set(booking: Booking, secret: str) -> None:
    changes = ("--set", "data.reason=min_participants", "--set", "data.object.booking_number=7", "--set", "id=fixed")
    printed = booking("webhooks", "trigger", "booking.cancelled", *changes, "-o", "json").json
    body = json.loads(printed["body"])
    fields = (body["data"]["reason"], body["data"]["object"]["booking_number"], body["id"])
    assert fields == ("min_participants", 7, "fixed")
    assert Verifier(secret).verify(printed["body"], printed["headers"]).event_id == "fixed"


def test_without_a_receiver_the_delivery_is_printed_and_verifies(booking: Booking, secret: str) -> None:
    Path("saved.json").write_text(booking("webhooks", "trigger", "gift_card.issued").out)
    verified = booking("webhooks", "verify", "--delivery", "saved.json", "--json")
    assert (verified.code, verified.json["event_type"]) == (0, "gift_card.issued")
    Path("stale.json").write_text(booking("webhooks", "trigger", "ping", "--stale").out)
    assert booking("webhooks", "verify", "--delivery", "stale.json", "--json").error["code"] == "timestamp_too_old"


def test_a_secret_on_the_command_line_works_and_is_warned_of(booking: Booking, secret: str) -> None:
    typed = generate_secret()
    printed = booking("webhooks", "trigger", "ping", "--secret", typed)
    assert "--secret-file" in printed.err
    saved = json.loads(printed.out)
    assert Verifier(typed).verify(saved["body"], saved["headers"])
    assert typed not in printed.out + printed.err
    assert booking("webhooks", "trigger", "ping", "--secret", typed, "--secret-file", "x").code == 2


NO_RECEIVERS = ("x://y", "http://", "a b", "", "http://user@localhost/", "http://localhost:0/")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        *((("ping", "--to", to), "is not the URL of a receiver") for to in NO_RECEIVERS),
        (("booking.praised",), "There is no 'booking.praised'."),
        (("ping", "--stale", "--tampered"), "exclude each other"),
        ((), "Pass one of TYPE, --from-event and --body."),
        (("ping", "--body", "@x"), "Pass one of TYPE, --from-event and --body."),
        (("ping", "--from-event", "e1"), "Pass one of TYPE, --from-event and --body."),
        (("--body", "@nowhere"), "nowhere cannot be read"),
        (("--body", "@body", "--set", "a=b"), "--set cannot be used with --body"),
        (("ping", "--header", "Svc-Event-Id: x"), "A delivery has its own Svc-Event-Id header."),
        *((("ping", "--set", path), "there is no such field") for path in ("data.no.at=1", "data.reason", "type.x=1")),
    ],
    ids=str,
)
def test_misuse_exits_2(booking: Booking, secret: str, argv: tuple[str, ...], message: str) -> None:
    Path("body").write_text("{}")
    refused = booking("webhooks", "trigger", *argv, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.error["message"]


def test_what_the_receiver_says_cannot_move_the_cursor(booking: Booking, receivers: Receivers, secret: str) -> None:
    rude = receivers.open(lambda _: plain(200, body=b"\x1b[2J\x1b]0;title\x07\xff"))
    sent = booking("webhooks", "trigger", "ping", "--to", rude.url, "-o", "table")
    assert sent.code == 0
    assert "\x1b" not in sent.out


# Other bodies ----------------------------------------------------------------------------------------------------


def test_a_kind_is_sent_as_one_event_of_each_type(booking: Booking, receivers: Receivers, secret: str) -> None:
    receiver = receivers.open(verifying(secret))
    sent = booking("webhooks", "trigger", "customer.*", "--to", receiver.url, "-o", "json")
    types = ["customer.created", "customer.updated"]
    assert (sent.code, [event["type"] for event in sent.json["data"]]) == (0, types)
    assert [event.headers["svc-event-type"] for event in receiver.receipts] == types


def test_a_body_of_ones_own_is_sent_byte_for_byte(booking: Booking, receivers: Receivers, secret: str) -> None:
    receiver = receivers.open(verifying(secret))
    body = b'{ "id": "e1",\n"type": "booking.created"}  '
    Path("body.json").write_bytes(body)
    argv = ("--body", "@body.json", "--to", receiver.url, "--header", "X-Tenant: fjord")
    sent = booking("webhooks", "trigger", *argv, "-o", "json")
    assert (sent.code, sent.json["id"], sent.json["type"]) == (0, "e1", "booking.created")
    (receipt,) = receiver.receipts
    assert (receipt.body, receipt.headers["x-tenant"]) == (body, "fjord")


def test_a_past_event_is_sent_as_it_was_delivered(booking: Booking, shop: World, receivers: Receivers) -> None:
    receiver = receivers.open()
    booking("customers", "create", "--name", "Båt", "--email", "ada@example.com")
    (event,) = booking("events", "list", "-o", "json").json["data"]
    sent = booking("webhooks", "trigger", "--from-event", event["id"], "--to", receiver.url, "-o", "json")
    assert (sent.code, sent.json["id"]) == (0, event["id"])
    body = json.loads(receiver.receipts[0].body)
    assert body == {name: value for name, value in event.items() if name not in ("resource_type", "resource_id")}
    assert "Båt".encode() in receiver.receipts[0].body


def test_a_port_with_a_path_is_on_this_machine() -> None:
    assert receiver.parse_target("8000/hook?x=1").url == "http://localhost:8000/hook?x=1"
    assert receiver.parse_target("8000").url == "http://localhost:8000/"
