"""Commands that ask before they change something: a person on a terminal, and nobody without one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.api.refusals import nothing_changes
from support.serving.commands import Booking, OnTerminal
from support.world.operations import Operations
from support.world.world import World

from booking_core.models.bookings import PaymentMode, RefundMode

HOOK = "https://127.0.0.1:8443/hook"


def _cancel(it: "Asking") -> tuple[str, ...]:
    return "bookings", "cancel", it.booked()


def _cancel_for_staff(it: "Asking") -> tuple[str, ...]:
    it.booked()
    return "bookings", "cancel", "1", *it.org


def _cancel_departure(it: "Asking") -> tuple[str, ...]:
    departure = it.ops.world.departure(it.ops.world.experience())
    it.ops.book(departure)
    it.ops.pay(it.ops.check_out(departure)["id"])
    return "departures", "cancel", departure


def _record_payment(it: "Asking") -> tuple[str, ...]:
    return "payments", "record", it.booked(), "--amount", "890"


def _cancel_paid(it: "Asking", refund: RefundMode) -> str:
    departure = it.ops.world.departure(it.ops.world.experience())
    booking_id = str(it.ops.pay(it.ops.check_out(departure)["id"], "pi_1")["id"])
    it.ops.cancel(booking_id, refund=refund)
    return booking_id


def _settle_refund(it: "Asking") -> tuple[str, ...]:
    return "refunds", "settle", _cancel_paid(it, RefundMode.AUTO), "--amount", "890", "--note", "Cash"


def _record_refund(it: "Asking") -> tuple[str, ...]:
    return "refunds", "record", _cancel_paid(it, RefundMode.NONE), "--amount", "500", "--note", "Goodwill"


def _anonymize(it: "Asking") -> tuple[str, ...]:
    return "customers", "anonymize", it.create("customers", "create", "--name", "Ada", "--email", "ada@example.com")


def _revoke(it: "Asking") -> tuple[str, ...]:
    return "keys", "revoke", it.create("keys", "create", *it.org, "--name", "Website")


def _delete(it: "Asking") -> tuple[str, ...]:
    return "webhooks", "delete", it.create("webhooks", "create", "--url", HOOK, "--event", "booking.created")


def _remove(it: "Asking") -> tuple[str, ...]:
    for name, secret in (("api", "sk_test_of_a_question"), ("hook", "whsec_of_a_question")):
        Path(name).write_text(secret)
    it.create("stripe", "set", *it.org, "--api-key-file", "api", "--webhook-secret-file", "hook")
    return "stripe", "remove", *it.org


def _reseal(it: "Asking") -> tuple[str, ...]:
    return "secrets", "reseal", "--new-links"


QUESTIONS: dict[str, tuple[Callable[["Asking"], tuple[str, ...]], str]] = {
    "bookings cancel": (_cancel, "Cancel booking 1 of Ada Lovelace (Fjord kayak, "),
    "bookings cancel --org": (_cancel_for_staff, "Cancel booking 1 of Ada Lovelace (Fjord kayak, "),
    "departures cancel": (_cancel_departure, " and its 2 bookings, and refund 890.00 NOK? This cannot be undone."),
    "payments record": (_record_payment, "890.00 NOK is written 890.00. Record 8.90 NOK of 890.00 NOK?"),
    "refunds settle": (_settle_refund, "890.00 NOK is written 890.00. Record 8.90 NOK of 890.00 NOK?"),
    "refunds record": (_record_refund, "500.00 NOK is written 500.00. Record 5.00 NOK of 890.00 NOK?"),
    "customers anonymize": (_anonymize, "Anonymize Ada <ada@example.com> with 0 bookings? This cannot be undone."),
    "keys revoke": (_revoke, " (Website) of "),
    "webhooks delete": (_delete, f"Delete the endpoint {HOOK}? This cannot be undone."),
    "stripe remove": (_remove, "Remove the Stripe account of "),
    "secrets reseal": (_reseal, "Guests' links made with an earlier key will stop working. Continue?"),
}
"""By the words of a command: a function that returns its command line, and a part of its question on a terminal."""


class Asking:
    """An organization, and the things that the commands change."""

    def __init__(self, booking: Booking, shop: World) -> None:
        self.ops, self.org, self._booking = Operations(shop), ("--org", shop.organization.slug), booking

    def create(self, *argv: str) -> str:
        """Return the id of a new resource."""
        return str(self._booking(*argv, "-o", "json").json["id"])

    def booked(self) -> str:
        departure = self.ops.world.departure(self.ops.world.experience())
        return str(self.ops.book(departure, payment=PaymentMode.PAY_ON_SITE)["id"])


@pytest.mark.exhaustive(but=("sqlite-bookings cancel]", "sqlite-webhooks delete"))
@pytest.mark.parametrize("name", QUESTIONS)
def test_nothing_changes_until_a_person_answers_the_question_with_yes(
    booking: Booking, shop: World, terminal: OnTerminal, name: str
) -> None:
    build, question = QUESTIONS[name]
    argv = build(Asking(booking, shop))

    def answered(answer: str) -> tuple[int, bool, bool]:
        code, screen = terminal(*argv, answer=answer)
        return code, question in screen, "[y/N]" in screen

    with nothing_changes(shop):
        refused = booking(*argv, "-o", "json")
        assert (*refused.refusal, refused.error["hint"]) == (2, "confirmation_required", "pass --yes")
        assert [answered("n\n"), answered("\n")] == [(1, True, True)] * 2
    assert answered("y\n") == (0, True, True)
