"""`booking doctor` says when something is off, and what, and how it is mended."""

from collections.abc import Callable
from typing import Any

from booking_core.clock import MINUTE, system_clock
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.writes import Change, Writes

ANOTHER = ("--slug", "isla-tours", "--name", "Isla Tours", "--timezone", "America/Santiago", "--currency", "CLP")
MISCOUNT = Change("miscount", tables.counters, sets=("last_booking_number",), keys=("organization_id",))


def write(url: str, pending: Writes) -> None:
    database = Database(url)
    database.write(lambda tx: tx.write(pending))
    database.close()


def miscount(url: str, organization_id: str) -> None:
    """Makes the counter say that a booking was numbered which is not there."""
    pending = Writes()
    pending.change(MISCOUNT, organization_id=organization_id, last_booking_number=1)
    write(url, pending)


def owe(url: str, organization_id: str, due_at: int) -> None:
    """A mail that nobody has taken up."""
    pending, subject = Writes(), "00000000-0000-4000-8000-000000000001"
    pending.insert(
        tables.effects,
        organization_id=organization_id,
        key=f"some_other_kind:{subject}",
        kind="some_other_kind",
        subject_id=subject,
        payload="{}",
        status="queued",
        due_at=due_at,
        created_at=due_at,
    )
    write(url, pending)


def fjord_id(run: Callable[..., Any]) -> str:
    return str(run("orgs", "show", "fjord-tours", "-o", "json").json["id"])


def test_a_healthy_database_gives_nothing(fjord_on_both: Callable[..., Any]) -> None:
    """For example: booking doctor."""
    result = fjord_on_both("doctor", "-o", "json")
    assert (result.code, result.json["data"]) == (0, [])


def test_what_is_off_is_listed_and_makes_exit_code_1(
    fjord_on_both: Callable[..., Any], fresh_database_url: str
) -> None:
    off = fjord_id(fjord_on_both)
    fjord_on_both("orgs", "create", *ANOTHER)
    miscount(fresh_database_url, off)
    result = fjord_on_both("doctor", "-o", "json")
    assert result.code == 1
    (finding,) = result.json["data"]
    assert finding["organization_id"] == off
    assert "booking numbers" in finding["invariant"]
    assert finding["subject"] == "bookings"
    assert "counter 1, highest 0" in finding["message"]
    assert "never lower a counter" in finding["mend"]
    assert fjord_on_both("doctor", "--org", "isla-tours").code == 0


def test_what_nobody_takes_up_is_off_after_ten_minutes(
    fjord_on_both: Callable[..., Any], fresh_database_url: str
) -> None:
    off = fjord_id(fjord_on_both)
    owe(fresh_database_url, off, system_clock() - 9 * MINUTE)
    assert fjord_on_both("doctor").code == 0
    owe_longer = Change("owe_longer", tables.effects, sets=("due_at",), keys=("organization_id", "key"))
    pending = Writes()
    key = "some_other_kind:00000000-0000-4000-8000-000000000001"
    pending.change(owe_longer, organization_id=off, key=key, due_at=system_clock() - 11 * MINUTE)
    write(fresh_database_url, pending)
    result = fjord_on_both("doctor", "-o", "json")
    assert result.code == 1
    (finding,) = result.json["data"]
    assert "worker" in finding["mend"]


def test_what_was_purged_is_judged_by_the_settings(
    fjord_on_both: Callable[..., Any], fresh_database_url: str, environment: Callable[[str, str], None]
) -> None:
    pending = Writes()
    counted = Change("counted", tables.counters, sets=("last_event_sequence",), keys=("organization_id",))
    pending.change(counted, organization_id=fjord_id(fjord_on_both), last_event_sequence=7)
    age = Change("age", tables.organizations, sets=("created_at",), keys=("id",))
    pending.change(age, id=fjord_id(fjord_on_both), created_at=system_clock() - 50 * 24 * 60 * MINUTE)
    write(fresh_database_url, pending)
    assert fjord_on_both("doctor").code == 1
    environment("BOOKING_EVENT_RETENTION_DAYS", "40")
    assert fjord_on_both("doctor").code == 0


def test_on_a_terminal_it_shows_how_far_it_has_come(terminal: Callable[..., tuple[int, str]], fjord: Any) -> None:
    code, screen = terminal("doctor")
    assert code == 0
    assert "checking" in screen
    assert "All is well." in screen


def test_an_unknown_organization_is_refused(fjord_on_both: Callable[..., Any]) -> None:
    assert fjord_on_both("doctor", "--org", "nowhere").code == 6
