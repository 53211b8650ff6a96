"""The audit trail: every command that changes the database has an entry, in the transaction of its change."""

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.serving.commands import Booking, RecordedTerminal, leaves
from support.serving.every_command import HOW, Everything, Words
from support.world.world import World

import booking_cli
from booking_cli.framework.command import OUTPUT_SPEC, OutputSpec
from booking_cli.framework.context import Cli
from booking_cli.operator.audited import AuditedDatabase, operator
from booking_core import organizations
from booking_core.models.base import is_id

ORG = ("--org", "fjord-tours")
OVER_HTTP = {
    *("login", "config.use", "config.set", "customers.create"),
    *("webhooks.create", "webhooks.update", "webhooks.delete", "webhooks.enable", "webhooks.rotate-secret"),
    *("webhooks.test", "webhooks.recover", "webhooks.deliveries.retry", "bookings.check-in", "bookings.no-show"),
    *(
        "checkouts.create",
        "holds.create",
        "holds.extend",
        "holds.delete",
        "webhooks.redeliver",
        "sandbox.advance",
        "sandbox.pay",
    ),
}
"""Commands that open no database: the service writes the entries of their requests."""
WHOLE_DATABASE = {"backup", "restore"}
"""Commands that copy the database as a whole. `test_backup` runs them: a backup changes nothing, and a restored
database has the entries of its backup and one of the restoration."""
ALONE = {"db.upgrade", "secrets.reseal", "cells.create"}
"""Commands that have nothing to change in a database of this release, or need several cells (see `test_cells`)."""
OF_ALL = {"db.purge", "mails.retry"}
"""Commands of all organizations."""


def commands() -> Iterator[Words]:
    """Yield the commands that change something in the database they open."""
    for leaf in leaves():
        changes = getattr(leaf.command.callback, OUTPUT_SPEC, OutputSpec()).changes
        if changes and ".".join(leaf.words) not in OVER_HTTP | WHOLE_DATABASE | ALONE:
            yield leaf.words


def last(booking: Booking, action: str) -> list[dict[str, Any]]:
    """Return the two newest entries of an action."""
    return list(booking("audit", "list", "--action", action, "--limit", "2", "-o", "json").json["data"])


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_a_command_has_one_entry_with_ids_and_nothing_that_was_entered(
    shop: World, booking: Booking, tmp_path: Path, words: Words
) -> None:
    action, it = ".".join(words), Everything(shop, booking, tmp_path)
    org = ("--org", it.slug)
    also = {
        "bookings.create": (*org, "--source", "admin"),
        "bookings.cancel": org,
        "bookings.change-party": org,
        "bookings.set-guest": org,
        "bookings.reschedule": org,
        "orgs.notify-email": ("canary@example.com",),
    }
    argv = (*HOW.get(words, lambda _: ())(it), *also.get(action, ()))
    before = last(booking, action)
    result = booking(*words, *argv, "--yes", "-o", "json")
    assert result.code == 0, result.err
    entry, *others = last(booking, action)
    assert others == before[: len(others)]
    assert (entry["action"], entry["actor"]) == (action, operator())
    if action not in OF_ALL:
        assert entry["organization"] == (result.json["slug"] if action == "orgs.create" else it.slug)
        assert entry["objects"] or action == "catalog.import"
    typed = {text for text in argv if not (text.startswith("--") or is_id(text) or text == it.slug or len(text) < 3)}
    written = json.dumps([entry["objects"], entry["summary"]])
    assert [text for text in typed if has_words(written, text)] == []


def has_words(text: str, words: str) -> bool:
    """Return whether a text has these words. A part of a word, such as digits within an id, does not count."""
    return re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", text) is not None


def test_a_value_counts_as_a_word_and_not_within_an_id() -> None:
    assert not has_words('["0190f3c2-7c1e-7b1a-9d53-2f8500c6e1b0"]', "500")
    for written in ('["500"]', '{"amount": ["500", "x"]}', "amount=500,7", "amount=500"):
        assert has_words(written, "500")


def test_an_entry_of_settings_names_them(fjord: Booking) -> None:
    assert fjord("orgs", "set", "fjord-tours", "staff_email=canary@example.com", "name=Canary").code == 0
    assert entries(fjord, "--action", "orgs.set")[0]["objects"]["settings"] == ["name", "staff_email"]
    assert "canary" not in json.dumps(entries(fjord)).lower()


def test_operator_commands_open_no_database_but_the_audited_one() -> None:
    """A server, a demo and the checks before them open their own, and change nothing for a person."""
    opened = set()
    for path in Path(booking_cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Database":
                opened.add(path.stem)
    assert opened <= {"demo", "service", "self_test", "schema", "doctor", "worker", "demo_organizations", "cells"}


def entries(booking: Booking, *argv: str) -> list[dict[str, Any]]:
    listed = booking("audit", "list", "--limit", "100", "-o", "json", *argv)
    assert listed.code == 0, listed.err
    return list(listed.json["data"])


def test_a_list_is_filtered_by_organization_time_and_action(fjord: Booking) -> None:
    assert fjord("orgs", "set", "fjord-tours", "name=New").code == 0
    assert [entry["action"] for entry in entries(fjord, "--action", "orgs")] == ["orgs.set", "orgs.create"]
    assert [entry["action"] for entry in entries(fjord, *ORG, "--action", "orgs.set", "--since", "1d")] == ["orgs.set"]
    assert entries(fjord, "--since", "2090-01-01T00:00:00Z") == []


def test_a_narrow_terminal_shows_the_whole_summary_with_whole_ids(
    shop: World, booking: Booking, recorded_terminal: RecordedTerminal, tmp_path: Path
) -> None:
    it = Everything(shop, booking, tmp_path)
    customer, settings = it.customer(), ("brand_color", "contact_email", "contact_phone", "logo_url", "reply_to_email")
    booking("orgs", "set", it.slug, *(f"{name}=" for name in settings))
    booking("customers", "update", customer, "--name", "Ada King")
    screen = recorded_terminal(80)
    assert booking("audit", "list", "--org", it.slug, "--limit", "2").code == 0
    lines = screen.getvalue().splitlines()
    details = " ".join(line.strip() for line in lines if line.startswith("  "))
    assert f"customer={customer}" in details
    assert f"settings={', '.join(settings)}" in details
    assert max(map(len, lines)) <= 80


def test_neither_a_refused_change_nor_a_dry_run_has_an_entry(fjord: Booking) -> None:
    before = entries(fjord)
    assert fjord("orgs", "set", "fjord-tours", "timezone=Nowhere/Else").code != 0
    assert fjord("orgs", "show", "fjord-tours").code == 0
    assert fjord("db", "purge", "--dry-run").code == 0
    assert entries(fjord) == before


def test_the_first_committed_transaction_of_a_command_has_its_audit_entry(
    fjord: Booking, monkeypatch: pytest.MonkeyPatch
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


def test_a_line_is_logged_where_a_format_of_logs_is_set(fjord: Booking, environment: Any) -> None:
    assert "booking.audit" not in fjord("orgs", "set", "fjord-tours", "name=One").err
    environment("BOOKING_LOG_FORMAT", "json")
    changed = fjord("orgs", "set", "fjord-tours", "name=Two", "-q")
    line = json.loads(changed.err)
    assert (line["logger"], line["action"], line["objects"]["settings"]) == ("booking.audit", "orgs.set", ["name"])
