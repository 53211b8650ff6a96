"""The audit trail: every command that changes the database has an entry, in the transaction of its change."""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support import databases

import booking_cli
from booking_cli.commands.registry import MODULES, SECTIONS
from booking_cli.framework.command import OUTPUT_SPEC, OutputSpec, RootGroup, leaves
from booking_cli.framework.context import Cli
from booking_cli.operator.audited import AuditedDatabase, operator
from booking_core import organizations

ORG = ("--org", "fjord-tours")
FIRST, SECOND = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55", "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c56"
GUEST = ("--name", "Canary Guest", "--email", "canary@example.com")
OTHER_GUEST = ("--name", "Canary Other", "--email", "canary.other@example.com")
CATALOGUE = {
    "experiences": [
        {
            "slug": "kayak",
            "title": "Kayak",
            "is_published": True,
            "duration_minutes": 60,
            "price_tiers": [{"id": "adult", "name": "Adult", "price": {"amount_minor": 100, "currency": "NOK"}}],
            "departures": [
                {"id": FIRST, "starts_at": "2099-06-01T10:00:00", "seats_total": 9},
                {"id": SECOND, "starts_at": "2099-06-02T10:00:00", "seats_total": 9},
            ],
        }
    ]
}

OVER_HTTP = {
    *("login", "config.use", "config.set", "customers.create"),
    *("webhooks.create", "webhooks.update", "webhooks.delete", "webhooks.enable", "webhooks.rotate-secret"),
    *("webhooks.test", "webhooks.recover", "webhooks.deliveries.retry", "bookings.check-in", "bookings.no-show"),
    *("checkouts.create", "holds.create", "holds.delete", "webhooks.redeliver", "sandbox.advance", "sandbox.pay"),
}
"""Commands that open no database: the service writes the entries of their requests."""
RUN = {
    *("orgs.create", "orgs.set", "orgs.notify-email", "keys.create", "keys.rotate", "keys.expire", "keys.revoke"),
    *("catalog.import", "storefront.hold", "storefront.release", "storefront.checkout", "storefront.pay"),
    *("bookings.confirm", "bookings.reschedule", "bookings.cancel"),
    *("customers.update", "customers.anonymize"),
    *("departures.close", "departures.reopen", "departures.seats", "departures.cancel"),
    *("gift-cards.issue", "gift-cards.deactivate", "gift-cards.reactivate", "db.purge"),
    *("stripe.set", "stripe.remove"),
}
"""Commands that this module runs."""
BY_THE_DATABASE = {
    *(
        "bookings.create",
        "bookings.change-party",
        "payments.record",
        "payments.void",
        "refunds.retry",
        "refunds.settle",
        "refunds.record",
    ),
    *("stripe.resolve", "mails.retry", "db.upgrade", "secrets.reseal", "cells.create"),
}
"""Commands that change rows in a state of their own. Their entry is written by the database that they open."""

WHOLE_DATABASE = {"backup", "restore"}
"""Commands that copy the database as a whole. `test_backup` runs them: a backup changes nothing, and a restored
database has the entries of its backup and one of the restoration."""


def changing() -> set[str]:
    root = RootGroup(MODULES, SECTIONS, help="", rich_markup_mode=None)
    with root.make_context("booking", ["orgs"], obj=Cli()) as ctx:
        found = [(leaf, getattr(leaf.command.callback, OUTPUT_SPEC, OutputSpec())) for leaf in leaves(root, ctx)]
    return {".".join(leaf.words) for leaf, spec in found if spec.changes}


def test_each_command_that_changes_something_is_in_one_of_the_lists() -> None:
    assert changing() == OVER_HTTP | RUN | BY_THE_DATABASE | WHOLE_DATABASE


def test_operator_commands_open_no_database_but_the_audited_one() -> None:
    """A server, a demo and the checks before them open their own, and change nothing for a person."""
    opened = set()
    for path in Path(booking_cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Database":
                opened.add(path.stem)
    assert opened <= {"demo", "service", "self_test", "schema", "doctor", "worker", "demo_organizations", "cells"}


def entries(booking: Any, *argv: str) -> list[dict[str, Any]]:
    listed = booking("audit", "list", "--limit", "100", "-o", "json", *argv)
    assert listed.code == 0, listed.err
    return list(listed.json["data"])


def run_all(booking: Any, file: Path) -> None:
    """Run the commands of RUN after `orgs create`."""

    def run(*argv: str) -> Any:
        done = booking(*argv, "--yes", "-o", "json")
        assert done.code == 0, (argv, done.err)
        return done.json

    def checkout() -> str:
        made = run("storefront", "checkout", *ORG, "--departure", FIRST, "--guest", "adult=1", *GUEST)
        return str(made["id"])

    run("orgs", "set", "fjord-tours", "staff_email=canary@example.com", "name=Canary")
    run("orgs", "notify-email", "fjord-tours", "canary@example.com")
    key = run("keys", "create", *ORG, "--name", "Canary")
    newer = run("keys", "rotate", key["id"])
    run("keys", "expire", key["id"], "--at", "2090-01-01T00:00:00")
    run("keys", "revoke", newer["id"])
    file.write_text(json.dumps(CATALOGUE))
    run("catalog", "import", *ORG, str(file))
    hold = run("storefront", "hold", *ORG, "--departure", FIRST, "--seats", "1")
    run("storefront", "release", hold["id"])
    run("storefront", "pay", checkout(), "--payment-intent", "pi_1")
    booked = checkout()
    run("bookings", "confirm", booked)
    run("bookings", "reschedule", booked, "--departure", SECOND)
    run("bookings", "cancel", booked, "--reason-code", "admin", "--reason", "Canary reason")
    with databases.connect(os.environ["BOOKING_DATABASE_URL"]) as connection:
        ((customer,),) = connection.execute("SELECT id FROM customers").fetchall()
    run("customers", "update", str(customer), "--phone", "+47 canary")
    run("departures", "close", FIRST)
    run("departures", "reopen", FIRST)
    run("departures", "seats", FIRST, "8")
    run("departures", "cancel", SECOND)
    card = run("gift-cards", "issue", *ORG, "--amount", "100", "--code", "CANARY-ABCD")
    run("gift-cards", "deactivate", card["id"])
    run("gift-cards", "reactivate", card["id"])
    other = run("storefront", "checkout", *ORG, "--departure", FIRST, "--guest", "adult=1", *OTHER_GUEST)
    run("bookings", "cancel", other["id"], "--reason-code", "admin")
    with databases.connect(os.environ["BOOKING_DATABASE_URL"]) as connection:
        ((customer,),) = connection.execute("SELECT id FROM customers WHERE email LIKE 'canary.other%'").fetchall()
    run("customers", "anonymize", str(customer))
    for name, secret in (("api", "sk_test_of_a_canary"), ("webhook", "whsec_of_a_canary")):
        file.with_name(name).write_text(f"{secret}\n")
    keys = ("--api-key-file", str(file.with_name("api")), "--webhook-secret-file", str(file.with_name("webhook")))
    run("stripe", "set", *ORG, *keys, "--publishable-key", "pk_test_of_a_canary")
    run("stripe", "remove", *ORG)
    run("db", "purge")


def test_each_command_has_one_entry_with_ids_and_nothing_that_was_entered(fjord_on_both: Any, tmp_path: Path) -> None:
    run_all(fjord_on_both, tmp_path / "catalogue.json")
    found = entries(fjord_on_both)
    assert {each["action"] for each in found} == RUN
    assert [each["action"] for each in found].count("catalog.import") == 1
    assert {each["actor"] for each in found} == {operator()}
    of_organization = [each for each in found if each["action"] != "db.purge"]
    assert {each["organization"] for each in of_organization} == {"fjord-tours"}
    assert {len(each["objects"]) > 0 for each in of_organization if each["action"] != "catalog.import"} == {True}
    assert entries(fjord_on_both, "--action", "orgs.set")[0]["objects"]["settings"] == ["name", "staff_email"]
    assert "canary" not in json.dumps(found).lower()


def test_a_list_is_filtered_by_organization_time_and_action(fjord: Any) -> None:
    assert fjord("orgs", "set", "fjord-tours", "name=New").code == 0
    assert [each["action"] for each in entries(fjord, "--action", "orgs")] == ["orgs.set", "orgs.create"]
    assert [each["action"] for each in entries(fjord, *ORG, "--action", "orgs.set", "--since", "1d")] == ["orgs.set"]
    assert entries(fjord, "--since", "2090-01-01T00:00:00Z") == []
    assert fjord("audit", "list", "--org", "unknown").code == 6


def test_a_narrow_terminal_shows_the_whole_summary(fjord: Any, terminal: Any) -> None:
    fjord("orgs", "set", "fjord-tours", "name=Fjord", "website=https://fjord.example", "language=de")
    lines = terminal("audit", "list", *ORG, "--action", "orgs.set", "--color", "never", "-q")[1].splitlines()
    start = next(line.index("summary") for line in lines if "summary" in line)
    summary = "".join(line[start:].partition("  ")[0].strip() for line in lines).removeprefix("summary")
    assert summary.startswith("settings=language,name,website")


def test_neither_a_refused_change_nor_a_dry_run_has_an_entry(fjord: Any) -> None:
    before = entries(fjord)
    assert fjord("orgs", "set", "fjord-tours", "timezone=Nowhere/Else").code != 0
    assert fjord("orgs", "show", "fjord-tours").code == 0
    assert fjord("db", "purge", "--dry-run").code == 0
    assert entries(fjord) == before


def test_a_command_of_many_transactions_has_its_entry_in_the_first_that_is_committed(
    fjord: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    cli = Cli()
    cli.action = "catalog.import"
    database = AuditedDatabase(os.environ["BOOKING_DATABASE_URL"], cli)

    def refuse(_: Any) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        database.write(refuse)
    database.dry_run(organizations.find)
    for _ in range(3):
        database.write(organizations.find)
    database.close()
    assert len(entries(fjord, "--action", "catalog.import")) == 1


def test_a_line_is_logged_where_a_format_of_logs_is_set(fjord: Any, environment: Any) -> None:
    assert "booking.audit" not in fjord("orgs", "set", "fjord-tours", "name=One").err
    environment("BOOKING_LOG_FORMAT", "json")
    changed = fjord("orgs", "set", "fjord-tours", "name=Two", "-q")
    line = json.loads(changed.err)
    assert (line["logger"], line["action"], line["objects"]["settings"]) == ("booking.audit", "orgs.set", ["name"])
