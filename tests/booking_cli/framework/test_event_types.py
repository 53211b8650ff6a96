"""`booking.*` wherever event types are taken, and the near one where a type is misspelt."""

import json

import pytest
from support.serving.commands import Booking
from support.world.world import World

from booking_cli.commands.keys import SCOPES
from booking_cli.framework import event_types
from booking_core.models.events import SUBSCRIBABLE, EventType
from booking_core.models.scopes import Scope

HOOK = ("webhooks", "create", "--url", "https://127.0.0.1:8443/hook")
BOOKING = [f"booking.{verb}" for verb in "cancelled confirmed created refunded rescheduled updated".split()]


def test_the_types_and_the_scopes_are_those_of_the_api() -> None:
    assert tuple(EventType) == event_types.TYPES
    assert set(event_types.SUBSCRIBABLE) == SUBSCRIBABLE
    assert set(SCOPES) == set(Scope)


def test_a_prefix_is_the_types_that_can_be_subscribed_to() -> None:
    assert sorted(event_types.expanded(["booking.*", "booking.created"])) == BOOKING
    assert event_types.expanded(["ping", "booking.newer"]) == ["ping", "booking.newer"]
    assert set(event_types.expanded(["*"])) == SUBSCRIBABLE
    assert event_types.query(["booking.*", "customer.created"]) == "booking.*,customer.created"
    assert event_types.query(["booking.*", "*"]) is None
    assert event_types.query(None) is None


def test_an_endpoint_subscribes_to_all_of_a_kind(booking: Booking, shop: World) -> None:
    endpoint = booking(*HOOK, "--event", "booking.*", "-o", "json").json
    assert endpoint["event_types"] == BOOKING
    change = ("webhooks", "update", endpoint["id"], "--event", "customer.*", "-o", "json")
    assert booking(*change, "--event", "ping").code == 8, "ping cannot be subscribed to"
    assert booking(*change).json["event_types"] == ["customer.created", "customer.updated"]


def test_the_feed_and_the_log_take_a_prefix(booking: Booking, shop: World) -> None:
    hook = booking(*HOOK, "--event", "*", "-o", "json").json["id"]
    for name in ("Ada", "Grace"):
        booking("customers", "create", "--name", name, "--email", f"{name}@example.com")
    for argv in (("events", "list"), ("events", "tail")):
        assert booking(*argv, "--type", "customer.*", "--fields", "type").out == "customer.created\n" * 2
        assert booking(*argv, "--type", "booking.*", "--fields", "type").out == ""
        assert len(booking(*argv, "--type", "*", "-o", "json").json["data"]) >= 2
    log = ("webhooks", "deliveries", "list", hook, "--event-type")
    both = booking(*log, "customer.*", "-o", "json").json
    assert ([row["event_type"] for row in both["data"]], both["has_more"]) == (["customer.created"] * 2, False)
    one = booking(*log, "customer.*", "-n", "1", "-o", "json").json
    assert (one["data"], one["has_more"]) == (both["data"][:1], True)
    assert booking(*log, "customer.*", "--order", "asc", "-o", "json").json["data"] == both["data"][::-1]
    assert booking(*log, "customer.*", "--starting-after", "x").code == 2
    since = ("webhooks", "recover", hook, "--since", "1h", "--event", "customer.*")
    assert [booking(*since, *argv, "-o", "json").json["matched"] for argv in (("--dry-run",), ())] == [0, 0]


OF_TYPES = (
    ("events", "list", "--type"),
    ("events", "tail", "--type"),
    (*HOOK, "--event"),
    ("webhooks", "update", "x", "--event"),
    ("webhooks", "recover", "x", "--since", "2h", "--event"),
    ("webhooks", "deliveries", "list", "x", "--event-type"),
    ("webhooks", "listen", "--forward-to", "8000", "--event"),
    ("webhooks", "trigger"),
)
"""Command lines that a type of events completes."""


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        *(((*argv, "booking.cretaed"), "booking.created") for argv in OF_TYPES),
        *(((*argv, "boking.*"), "booking.*") for argv in OF_TYPES),
        (("bookings", "list", "--status", "confirmd"), "confirmed"),
        (("gift-cards", "list", "--status", "Active"), "active"),
        (("bookings", "list", "--order", "ascc"), "asc"),
        (("bookings", "cancel", "x", "--refund", "atuo"), "auto"),
        (("events", "list", "--resource-type", "giftcard"), "gift_card"),
        (("mails", "list", "--status", "faild"), "failed"),
        (("webhooks", "deliveries", "list", "x", "--status", "deed"), "dead"),
        (("keys", "create", "--org", "x", "--name", "y", "--scope", "bookins:write"), "bookings:write"),
        (("config", "get", "base-url"), "base_url"),
        (("completion", "bsh"), "bash"),
        (("orgs", "list", "-o", "jsn"), "json"),
        (("orgs", "list", "--color", "alway"), "always"),
        (("api", "DELET", "me"), "DELETE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_misspelt_word_is_one_line_with_the_near_one(booking: Booking, argv: tuple[str, ...], meant: str) -> None:
    refused = booking(*argv)
    assert (refused.code, refused.out) == (2, "")
    error, _ = refused.err.splitlines()
    assert error.endswith(f"Did you mean '{meant}'?")


def test_a_misspelt_setting_is_named_with_every_other_problem(fjord: Booking) -> None:
    refused = fjord("orgs", "set", "fjord-tours", "pending_minuts=3", "refund_late_percent=200", "-o", "json")
    assert (refused.code, refused.error["hint"]) == (8, "did you mean pending_minutes?")
    assert [detail["field"] for detail in refused.error["details"]] == ["pending_minuts", "refund_late_percent"]


def test_a_kind_of_made_up_events_is_printed_as_a_list(booking: Booking) -> None:
    printed = booking("webhooks", "trigger", "customer.*", "-o", "json").json
    bodies = [json.loads(event["body"]) for event in printed["data"]]
    assert [body["type"] for body in bodies] == ["customer.created", "customer.updated"]
