"""A missing object has a fitting hint: the list that would show it."""

import re
from pathlib import Path

import pytest
from support.serving.commands import Booking, leaves
from support.world.resources import LISTINGS
from support.world.world import World

from booking_cli.framework.errors import LISTS

UNKNOWN = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
SLUG = "0-slug"
"""Replaced by the slug of an organization that exists."""
DEPARTURE = "0-departure"
HOOK = "0-hook"
PERSON = ("--name", "Ada", "--email", "ada@example.com")

PARTY = ("--departure", UNKNOWN, "--guest", "adult=1")
AT_DEPARTURE = ("--departure", DEPARTURE, "--guest", "adult=1")
OF_ONE_ORGANIZATION: tuple[tuple[str, ...], ...] = (
    *(("keys", "list"), ("keys", "create", "--name", "x"), ("gift-cards", "issue", "--amount", "500")),
    *(("catalog", "export"), ("catalog", "import", "catalogue.json"), ("catalog", "validate", "catalogue.json")),
    *(("stripe", "show"), ("stripe", "payments"), ("stripe", "remove", "--yes")),
    ("stripe", "set", "--api-key-file", "catalogue.json", "--webhook-secret-file", "catalogue.json"),
    *(("departures", "list"), ("payments", "due"), ("refunds", "list"), ("mails", "list"), ("audit", "list")),
    *(("doctor",), ("report",), ("storefront", "hold", "--departure", UNKNOWN, "--seats", "1")),
)
CASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    *((listing.name[:-1].replace("_", " "), (listing.path[1:], "get", UNKNOWN)) for listing in LISTINGS),
    *(("organization", (*command, "--org", "nobody")) for command in OF_ONE_ORGANIZATION),
    *(("organization", ("orgs", name, "nobody")) for name in ("show", "notify-email")),
    ("organization", ("orgs", "set", "nobody", "name=x")),
    ("departure", ("bookings", "create", *PARTY, "--payment", "invoice", *PERSON)),
    ("departure", ("bookings", "quote", *PARTY)),
    ("departure", ("holds", "create", "--departure", UNKNOWN, "--seats", "1")),
    ("departure", ("storefront", "hold", "--org", SLUG, "--departure", UNKNOWN, "--seats", "1")),
    ("departure", ("storefront", "checkout", "--org", SLUG, *PARTY, *PERSON)),
    ("departure", ("checkouts", "create", *PARTY, *PERSON)),
    ("departure", ("departures", "get", UNKNOWN)),
    ("departure", ("departures", "manifest", UNKNOWN)),
    ("departure", ("departures", "manifest", UNKNOWN, "--org", SLUG)),
    *(("departure", ("departures", name, UNKNOWN)) for name in ("show", "close", "reopen")),
    ("departure", ("departures", "seats", UNKNOWN, "5")),
    ("departure", ("departures", "cancel", UNKNOWN, "--yes")),
    ("checkout", ("checkouts", "get", UNKNOWN)),
    *(("hold", ("holds", name, UNKNOWN)) for name in ("get", "extend", "delete")),
    ("hold", ("storefront", "release", UNKNOWN)),
    ("hold", ("storefront", "checkout", "--org", SLUG, *AT_DEPARTURE, "--hold", UNKNOWN, *PERSON)),
    *(("booking", ("bookings", name, UNKNOWN)) for name in ("check-in", "no-show", "confirm")),
    *(("booking", ("bookings", "cancel", UNKNOWN, *org, "--yes")) for org in ((), ("--org", SLUG))),
    ("booking", ("bookings", "get", UNKNOWN, "--org", SLUG)),
    ("booking", ("bookings", "change-party", UNKNOWN, "--guest", "adult=1")),
    ("booking", ("bookings", "set-guest", UNKNOWN, "--name", "Ada")),
    ("booking", ("bookings", "reschedule", UNKNOWN, "--departure", UNKNOWN)),
    ("booking", ("storefront", "pay", UNKNOWN)),
    ("booking", ("stripe", "resolve", UNKNOWN, "--note", "Refunded at Stripe")),
    ("booking", ("payments", "record", UNKNOWN, "--amount", "5.00")),
    ("booking", ("payments", "list", UNKNOWN)),
    ("booking", ("refunds", "record", UNKNOWN, "--amount", "5.00", "--note", "Goodwill")),
    ("booking", ("api", "GET", f"bookings/{UNKNOWN}")),
    ("recorded payment", ("payments", "void", UNKNOWN)),
    *(("refund", ("refunds", name, UNKNOWN)) for name in ("show", "retry")),
    ("refund", ("refunds", "settle", UNKNOWN, "--note", "Paid back in cash")),
    ("customer", ("customers", "update", UNKNOWN, "--name", "Ada")),
    ("customer", ("customers", "export", UNKNOWN)),
    ("customer", ("customers", "anonymize", UNKNOWN, "--yes")),
    *(("gift card", ("gift-cards", name, UNKNOWN)) for name in ("transactions", "deactivate", "reactivate")),
    *(("key", ("keys", name, UNKNOWN)) for name in ("show", "rotate")),
    ("key", ("keys", "revoke", UNKNOWN, "--yes")),
    ("key", ("keys", "update", UNKNOWN, "--name", "x")),
    ("key", ("keys", "expire", UNKNOWN, "--at", "2999-01-01")),
    *(("mail", ("mails", name, UNKNOWN)) for name in ("show", "retry")),
    *(("endpoint", ("webhooks", name, UNKNOWN)) for name in ("show", "enable", "rotate-secret", "test")),
    ("endpoint", ("webhooks", "update", UNKNOWN, "--disable")),
    ("endpoint", ("webhooks", "delete", UNKNOWN, "--yes")),
    ("endpoint", ("webhooks", "redeliver", UNKNOWN, UNKNOWN)),
    *(("endpoint", ("webhooks", "recover", UNKNOWN, "--since", "2h", *dry)) for dry in ((), ("--dry-run",))),
    ("endpoint", ("webhooks", "deliveries", "list", UNKNOWN)),
    *(("delivery", ("webhooks", "deliveries", name, HOOK, UNKNOWN)) for name in ("show", "retry")),
    ("event", ("webhooks", "trigger", "--from-event", UNKNOWN)),
)
IN_THE_DATABASE = {
    *("keys", "payments", "refunds", "mails", "storefront"),
    *("customers update", "gift-cards deactivate", "gift-cards reactivate", "bookings confirm"),
    *(f"departures {verb}" for verb in ("show", "close", "reopen", "seats", "cancel")),
}
"""Commands that look an id up in the database, where a text that is no UUID has to be as unknown."""
NO_IDS = tuple(
    (noun, tuple(word.replace(UNKNOWN, "no-id") for word in argv))
    for noun, argv in CASES
    if UNKNOWN in argv and {argv[0], " ".join(argv[:2])} & IN_THE_DATABASE
)
ALL = [*CASES, *NO_IDS]
NAMES_NOTHING_THERE = {("orgs", "create"), ("sandbox", "pay")}
"""They name the object to be made, or need several cells of PostgreSQL (see test_cells) or a sandbox
(test_sandbox.py)."""


@pytest.mark.parametrize(("noun", "argv"), ALL, ids=lambda value: value if isinstance(value, str) else None)
def test_the_hint_fits_what_was_not_found(
    booking: Booking, shop: World, tmp_path: Path, noun: str, argv: tuple[str, ...]
) -> None:
    (tmp_path / "catalogue.json").write_text('{"experiences": []}')
    replacements = {SLUG: shop.organization.slug, DEPARTURE: shop.departure(shop.experience())}
    if HOOK in argv:
        hook = ("--url", "https://127.0.0.1:8443/hook", "--event", "booking.created")
        replacements[HOOK] = booking("webhooks", "create", *hook, "-o", "json").json["id"]
    failed = booking(*(replacements.get(word, word) for word in argv), "-o", "json")
    assert (failed.code, failed.error["code"], failed.out) == (6, "not_found", "")
    assert failed.error["hint"].startswith(LISTS.get(noun, f"booking {noun}s list lists the {noun}s"))


def test_every_command_that_takes_an_id_is_among_them() -> None:
    tried = {argv[:length] for _, argv in CASES for length in (1, 2, 3)}
    for leaf in leaves():
        takes = {param.metavar for param in leaf.command.own_params} & {"ID", "HOLD", "BOOKING", "SLUG", "DELIVERY"}
        arguments = [parameter for parameter in leaf.command.own_params if parameter.param_type_name == "argument"]
        if takes and (arguments or any(parameter.required for parameter in leaf.command.own_params)):
            assert leaf.words in tried | NAMES_NOTHING_THERE, leaf.words


def test_every_hint_names_a_command_that_there_is() -> None:
    commands = {" ".join(("booking", *leaf.words)) for leaf in leaves()}
    for hint in LISTS.values():
        (command,) = re.findall(r"booking(?: [a-z-]+)+?(?= lists| creates| [A-Z-])", hint)
        assert command in commands
