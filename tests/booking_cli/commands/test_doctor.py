"""`booking doctor` says when something is off or waits for a person, and what to do about it."""

import os
from pathlib import Path

import pytest
from support.databases.databases import run
from support.serving.commands import Booking, Environment, OnTerminal
from support.world.world import World

from booking_cli.commands import doctor
from booking_cli.framework.global_options import Options
from booking_cli.framework.output import Renderer
from booking_core.base import tokens
from booking_core.base.clock import DAY, MINUTE, system_clock
from booking_core.db import tables
from booking_core.upkeep.doctor import Finding, FindingKind

ANOTHER = ("--slug", "isla-tours", "--name", "Isla Tours", "--timezone", "America/Santiago", "--currency", "CLP")


def miscount(world: World) -> None:
    """Makes the counter say that a booking was numbered which is not there."""
    url = os.environ["BOOKING_DATABASE_URL"]
    run(url, f"UPDATE counters SET last_booking_number = 1 WHERE organization_id = '{world.org}'")


def fail_mail(world: World) -> str:
    """Write a mail that the mail server refused, and return its id."""
    mail_id, at = tokens.new_id(), world.clock()
    times = {"created_at": at, "completed_at": at}
    effect = {"key": f"some_mail:{mail_id}", "kind": "some_mail", "subject_id": mail_id, "payload": "{}"}
    world.insert(tables.effects, **effect, status="done", due_at=at, **times)
    text = {"kind": "some_mail", "recipient": "guest@example.com", "message_id": "<1@example.com>", "message": ""}
    return world.insert(tables.mails, id=mail_id, effect_key=effect["key"], **text, status="failed", **times)


@pytest.fixture(autouse=True)
def mail_dir(environment: Environment, tmp_path: Path) -> None:
    """Set the folder for mails, also on PostgreSQL."""
    environment("BOOKING_MAIL_DIR", str(tmp_path / "mails"))


def test_what_is_off_is_listed_and_makes_exit_code_1(stored_on_both: Booking, world: World) -> None:
    stored_on_both("orgs", "create", *ANOTHER)
    miscount(world)
    result = stored_on_both("doctor", "-o", "json")
    assert result.code == 1
    (finding,) = result.json["data"]
    assert (finding["kind"], finding["organization_id"], finding["subject"]) == ("broken", world.org, "bookings")
    assert finding["organization"] == "fjord-tours"
    assert "booking numbers" in finding["invariant"]
    assert "counter 1, highest 0" in finding["message"]
    assert "never lower a counter" in finding["remedy"]
    assert stored_on_both("doctor", "--org", "isla-tours").code == 0


def test_what_nobody_takes_up_is_off_after_ten_minutes(stored_on_both: Booking, world: World) -> None:
    subject, due_at = tokens.new_id(), world.clock() - 9 * MINUTE
    effect = {"key": f"some_kind:{subject}", "kind": "some_kind", "subject_id": subject, "payload": "{}"}
    world.insert(tables.effects, **effect, status="queued", due_at=due_at, created_at=due_at)
    assert stored_on_both("doctor").code == 0
    run(os.environ["BOOKING_DATABASE_URL"], f"UPDATE effects SET due_at = {due_at - 2 * MINUTE}")
    result = stored_on_both("doctor", "-o", "json")
    assert result.code == 1
    (finding,) = result.json["data"]
    assert "worker" in finding["remedy"]


def test_what_was_purged_is_judged_by_the_settings(
    fjord_on_both: Booking, fresh_database_url: str, environment: Environment
) -> None:
    aged = f"UPDATE organizations SET created_at = {system_clock() - 50 * DAY}"
    run(fresh_database_url, "UPDATE counters SET last_event_sequence = 7", aged)
    assert fjord_on_both("doctor").code == 1
    environment("BOOKING_EVENT_RETENTION_DAYS", "40")
    assert fjord_on_both("doctor").code == 0


def test_on_a_terminal_it_shows_how_far_it_has_come(terminal: OnTerminal, fjord: Booking) -> None:
    code, screen = terminal("doctor")
    assert code == 0
    assert "checking" in screen
    assert "No problems found." in screen


# Work for a person -----------------------------------------------------------------------------------------------


def test_what_waits_for_a_person_makes_exit_code_13(stored_on_both: Booking, world: World) -> None:
    mail_id = fail_mail(world)
    result = stored_on_both("doctor", "-o", "json")
    assert result.code == 13
    (finding,) = result.json["data"]
    assert (finding["kind"], finding["subject"]) == ("needs_person", mail_id)
    assert "booking mails list --org fjord-tours --status failed" in finding["remedy"]
    assert "guest@example.com" not in result.out


def test_what_is_broken_comes_first_and_makes_exit_code_1(stored_on_both: Booking, world: World) -> None:
    fail_mail(world)
    miscount(world)
    result = stored_on_both("doctor")
    assert result.code == 1
    assert [line.split("\t")[0] for line in result.out.splitlines()] == ["broken", "needs_person"]


def test_without_a_way_for_mails_the_settings_wait_for_a_person(
    fjord_on_both: Booking, environment: Environment, backend: str
) -> None:
    environment("BOOKING_MAIL_DIR", "")
    result = fjord_on_both("doctor", "-o", "json")
    if backend == "sqlite":  # then they are files beside the database
        assert (result.code, result.json["data"]) == (0, [])
        return
    assert result.code == 13
    (finding,) = result.json["data"]
    assert (finding["kind"], finding["organization_id"], finding["subject"]) == ("needs_person", None, "settings")
    assert "BOOKING_SMTP_URL" in finding["message"]


@pytest.mark.parametrize(
    ("place", "text"),
    [(0, "'AAAA'"), (1, "'v2.00000000.AAAA'"), (2, "substr(code_sealed, 1, 40)")],
    ids=["oldest", "middle", "newest"],
)
def test_a_damaged_value_has_its_remedy_and_no_key_is_blamed(
    fjord_on_both: Booking, fresh_database_url: str, place: int, text: str
) -> None:
    issue = ("gift-cards", "issue", "--org", "fjord-tours", "--amount", "50000", "-o", "json")
    issued = [fjord_on_both(*issue).json["id"] for _ in range(3)]
    assert fjord_on_both("doctor").code == 0
    damaged = sorted(issued)[place]
    run(fresh_database_url, f"UPDATE gift_cards SET code_sealed = {text} WHERE id = '{damaged}'")
    result = fjord_on_both("doctor", "-o", "json")
    assert result.code == 1
    (finding,) = result.json["data"]
    assert finding["subject"] == damaged
    assert "is damaged" in finding["message"]
    assert "backup" in finding["remedy"]
    assert "BOOKING_SECRET_KEY" not in result.err


def test_without_a_secret_key_none_is_made(fjord: Booking, environment: Environment) -> None:
    folder = Path(os.environ["BOOKING_DATABASE_URL"].removeprefix("sqlite:///")).parent
    environment("BOOKING_SECRET_KEY", "")
    assert fjord("doctor").code == 0
    assert list(folder.glob("*.secret*")) == []


# On a terminal ---------------------------------------------------------------------------------------------------

SUBJECT = "01a20225-ce1a-78ca-87b0-78e23241905a"
BROKEN = Finding(
    "totals add up", "org", SUBJECT, "total 3 of subtotal 2, discount 0", "look", FindingKind.BROKEN, "fjord-tours"
)
WAITING = Finding(
    "dead deliveries wait for their receiver to be fixed",
    "org",
    SUBJECT,
    "dead deliveries: 3, the newest is 01a20225-ce23-8626-a83d-fec4d9e82dfa",
    f"mend the receiver of the endpoint, which did not answer with 2xx for a long time, then booking webhooks enable"
    f" {SUBJECT}, then booking webhooks recover {SUBJECT} --since 2026-11-21T14:00:00Z, or booking webhooks delete ID",
    FindingKind.NEEDS_PERSON,
    "fjord-tours",
)


def table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, *findings: Finding) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    doctor.write_findings(Renderer(Options(output="table")), findings)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_sections_and_whole_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    lines = table(monkeypatch, capsys, width, WAITING, BROKEN).splitlines()
    assert lines.index("Broken (1)") < lines.index("Waiting for a person (1)")
    assert f"    >  booking webhooks recover {SUBJECT} --since 2026-11-21T14:00:00Z" in lines
    assert "    or booking webhooks delete ID" in lines
    prose = [line for line in lines if "booking webhooks" not in line]
    assert max(map(len, prose)) <= width
    assert lines.count(f"    fjord-tours  {SUBJECT}") == 2


def test_a_shared_remedy_is_shown_once_and_long_lists_are_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = table(monkeypatch, capsys, 80, *[BROKEN] * 25)
    assert screen.count("total 3 of subtotal 2") == doctor.SHOWN_MAX
    assert screen.count(">  Look.") == 1
    assert "and 15 more: -o json lists all of them" in screen


def test_names_in_the_database_do_not_move_the_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = Finding("totals add up", "org", "\x1b[2Jkey", "a\nb", None, FindingKind.BROKEN, "fjord-tours")
    screen = table(monkeypatch, capsys, 80, evil)
    assert "\x1b[2J" not in screen
    assert "a\\nb" in screen


def test_the_sentence_below_says_how_many_of_each(fjord: Booking) -> None:
    assert doctor.summary([BROKEN]) == "1 finding is about broken data (exit code 1)."
    assert doctor.summary([BROKEN, WAITING]) == "1 finding is about broken data (exit code 1); 1 waits for a person."
    assert doctor.summary([WAITING, WAITING]) == "2 wait for a person (exit code 13)."


def test_on_a_terminal_findings_are_shown_in_sections(terminal: OnTerminal, world: World) -> None:
    fail_mail(world)
    code, screen = terminal("doctor")
    assert code == 13
    assert "Waiting for a person (1)" in screen
    assert ">  booking mails retry --failed --org fjord-tours" in screen
    assert "1 waits for a person (exit code 13)." in screen
