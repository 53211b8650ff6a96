"""`booking doctor` says when something is off, and what."""

from collections.abc import Callable
from typing import Any

from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.writes import Change, Writes

ANOTHER = ("--slug", "isla-tours", "--name", "Isla Tours", "--timezone", "America/Santiago", "--currency", "CLP")
MISCOUNT = Change("miscount", tables.counters, sets=("last_booking_number",), keys=("organization_id",))


def miscount(url: str, organization_id: str) -> None:
    """Makes the counter say that a booking was numbered which is not there."""
    pending = Writes()
    pending.change(MISCOUNT, organization_id=organization_id, last_booking_number=1)
    database = Database(url)
    database.write(lambda tx: tx.write(pending))
    database.close()


def test_a_healthy_database_gives_nothing(fjord_on_both: Callable[..., Any]) -> None:
    """For example: booking doctor."""
    result = fjord_on_both("doctor", "-o", "json")
    assert (result.code, result.json["data"]) == (0, [])


def test_what_is_off_is_listed_and_makes_exit_code_1(
    fjord_on_both: Callable[..., Any], fresh_database_url: str
) -> None:
    off = fjord_on_both("orgs", "show", "fjord-tours", "-o", "json").json["id"]
    fjord_on_both("orgs", "create", *ANOTHER)
    miscount(fresh_database_url, off)
    result = fjord_on_both("doctor", "-o", "json")
    assert result.code == 1
    (finding,) = result.json["data"]
    assert finding["organization_id"] == off
    assert "booking numbers" in finding["invariant"]
    assert fjord_on_both("doctor", "--org", "isla-tours").code == 0


def test_an_unknown_organization_is_refused(fjord_on_both: Callable[..., Any]) -> None:
    assert fjord_on_both("doctor", "--org", "nowhere").code == 6
