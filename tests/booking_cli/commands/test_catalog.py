"""`booking catalog`: files in and out; the rules themselves are tested beside the room."""

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.databases.databases import connect
from support.serving.commands import Booking, Environment, OnTerminal
from support.world.kayaks import ORG

from booking_core.base.errors import Unavailable
from booking_core.catalogue import transfer
from booking_core.catalogue.transfer import rules, service
from booking_core.db.engine import Database

KINDS = ("experiences", "departures", "customers", "gift_cards")
PRICE = {"amount_minor": 89000, "currency": "NOK"}
KAYAK = {
    "slug": "fjord-kayak",
    "title": "Fjord kayak",
    "duration_minutes": 150,
    "price_from": PRICE,
    "departures": [{"starts_at": "2999-12-24T10:00:00", "seats_total": 12}],
}
CATALOGUE = {
    "experiences": [KAYAK],
    "customers": [{"email": "ada@example.com", "name": "Ada"}],
    "gift_cards": [{"code": "GIFT-ABCD-1234", "initial_amount": PRICE}],
}
BAD = {"experiences": [{"slug": "Fjord Kayak", "titel": "Fjord kayak"}, {"slug": "b", "title": "B", "tags": "water"}]}


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Any], str]:
    """Write a catalogue and return its path."""

    def write(catalogue: Any) -> str:
        path = tmp_path / "catalogue.json"
        path.write_text(json.dumps(catalogue))
        return str(path)

    return write


def counts(created: int, unchanged: int) -> dict[str, int]:
    return {"created": created, "updated": 0, "unchanged": unchanged}


def test_an_import_counts_what_it_did_and_changes_nothing_the_second_time(
    fjord_on_both: Booking, file: Callable[[Any], str]
) -> None:
    path = file(CATALOGUE)
    first = fjord_on_both("catalog", "import", *ORG, path, "-o", "json").json
    assert (first["organization"], first["dry_run"]) == ("fjord-tours", False)
    second = fjord_on_both("catalog", "import", *ORG, path, "-o", "json").json
    for kind in KINDS:
        assert (first[kind], second[kind]) == (counts(1, 0), counts(0, 1))


def test_a_catalogue_is_judged_before_its_transaction_begins(
    fjord_on_both: Booking, file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends a transaction that is idle for long, and a large catalogue takes long."""
    order: list[str] = []
    begin, judge = Database._transaction, rules.plan
    monkeypatch.setattr(Database, "_transaction", lambda *arguments: (order.append("begin"), begin(*arguments))[1])
    monkeypatch.setattr(rules, "plan", lambda *arguments: (order.append("judge"), judge(*arguments))[1])
    assert fjord_on_both("catalog", "import", *ORG, file(CATALOGUE)).code == 0
    assert order[0] == "judge"
    assert set(order[1:]) == {"begin"}


def test_a_dry_run_writes_nothing(fjord_on_both: Booking, file: Callable[[Any], str]) -> None:
    summary = fjord_on_both("catalog", "import", *ORG, file(CATALOGUE), "--dry-run", "-o", "json").json
    assert (summary["dry_run"], summary["experiences"]) == (True, counts(1, 0))
    assert fjord_on_both("catalog", "export", *ORG).json["experiences"] == []


def test_an_import_in_a_pipe_is_a_line_for_each_kind(fjord: Booking, file: Callable[[Any], str]) -> None:
    result = fjord("catalog", "import", *ORG, file(CATALOGUE))
    assert result.out.splitlines()[0] == "experiences\t1\t0\t0"


def test_starts_near_a_clock_change_are_reported(fjord: Booking, file: Callable[[Any], str]) -> None:
    odd = KAYAK | {"departures": [{"starts_at": "2027-03-28T02:30:00", "seats_total": 1}]}
    result = fjord("catalog", "import", *ORG, file({"experiences": [odd]}))
    assert "note: /experiences/0/departures/0" in result.err
    again = fjord("catalog", "import", *ORG, file({"experiences": [odd]}), "-o", "json").json
    assert again["notes"][0]["pointer"].startswith("/experiences/0/departures/0")


def test_a_bad_catalogue_writes_nothing_and_names_every_problem(
    fjord_on_both: Booking, file: Callable[[Any], str]
) -> None:
    bad = {"experiences": [KAYAK, *BAD["experiences"]]}
    refused = fjord_on_both("catalog", "import", *ORG, file(bad), "-o", "json")
    assert refused.refusal == (8, "validation_failed")
    fields = {detail["field"] for detail in refused.error["details"]}
    assert {"/experiences/1/slug", "/experiences/1/title", "/experiences/1/titel", "/experiences/2/tags"} <= fields
    plain = fjord_on_both("catalog", "import", *ORG, file(bad))
    assert "  /experiences/1/titel: is not a known key; did you mean title?" in plain.err.splitlines()
    assert fjord_on_both("catalog", "export", *ORG).json["experiences"] == []


def test_validate_needs_no_database(booking: Booking, file: Callable[[Any], str], tmp_path: Path) -> None:
    result = booking("catalog", "validate", file(CATALOGUE), "-o", "json")
    assert result.code == 0
    assert result.json == {"valid": True, "notes": []} | dict.fromkeys(KINDS, 1)
    refused = booking("catalog", "validate", file(BAD), "-o", "json")
    assert refused.code == 8
    count = len(refused.error["details"])
    assert count >= 3
    assert refused.error["message"] == f"The catalogue has {count} problems."
    assert [path.name for path in tmp_path.iterdir()] == ["catalogue.json"]


def test_a_file_above_the_limit_is_refused(
    booking: Booking, file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Path(path := file(CATALOGUE)).stat().st_size
    monkeypatch.setattr("booking_cli.framework.arguments._FILE_BYTES_MAX", size)
    assert booking("catalog", "validate", path).code == 0
    monkeypatch.setattr("booking_cli.framework.arguments._FILE_BYTES_MAX", size - 1)
    endless = booking("catalog", "validate", "/dev/zero", "-o", "json")
    assert (*endless.refusal, endless.error["message"]) == (2, "file_too_large", "/dev/zero has more than 64 MiB.")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
    assert booking("catalog", "validate", "-", "-o", "json").error["message"] == "stdin has more than 64 MiB."


def test_an_export_imports_to_the_same(fjord_on_both: Booking, file: Callable[[Any], str]) -> None:
    fjord_on_both("catalog", "import", *ORG, file(CATALOGUE))
    exported = fjord_on_both("catalog", "export", *ORG)
    again = fjord_on_both("catalog", "import", *ORG, file(exported.json), "--json").json
    assert again["departures"] == again["gift_cards"] == counts(0, 1)
    assert fjord_on_both("catalog", "export", *ORG, "-o", "jsonl").json == exported.json


def test_a_catalogue_comes_from_stdin_too(
    fjord: Booking, file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(CATALOGUE).encode())))
    assert fjord("catalog", "import", *ORG, "-", "--json").json["experiences"] == counts(1, 0)


def test_a_file_that_is_not_there_exits_2(booking: Booking, tmp_path: Path) -> None:
    for path in ("nothing.json", str(tmp_path)):
        assert booking("catalog", "validate", path, "-o", "json").refusal == (2, "bad_file")


def test_a_file_that_is_no_json_exits_8(booking: Booking, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    refused = booking("catalog", "validate", "broken.json", "-o", "json")
    assert refused.code == 8
    assert "line 1" in refused.error["details"][0]["message"]


def test_an_import_without_a_secret_key_says_so(
    fjord: Booking, file: Callable[[Any], str], environment: Environment
) -> None:
    environment("BOOKING_SECRET_KEY", "")
    environment("BOOKING_DATABASE_URL", "postgresql://127.0.0.1/anything")
    refused = fjord("catalog", "import", *ORG, file(CATALOGUE), "-o", "json")
    assert (refused.code, refused.error["message"]) == (2, "BOOKING_SECRET_KEY is required with PostgreSQL")


CHF = {"amount_minor": 1, "currency": "CHF"}
IN_CHILE = {"starts_at": "2027-01-01T10:00:00-03:00", "seats_total": 1}


@pytest.mark.parametrize(
    ("odd", "option", "field"),
    [
        ({"price_from": CHF, "departures": []}, "--other-currency", "/experiences/0/price_from/currency"),
        ({"departures": [IN_CHILE]}, "--other-timezone", "/experiences/0/departures/0/starts_at"),
    ],
)
def test_a_file_of_another_currency_or_zone_needs_an_option(
    fjord_on_both: Booking, file: Callable[[Any], str], odd: dict[str, Any], option: str, field: str
) -> None:
    path = file({"experiences": [KAYAK | odd]})
    for command in ("import", "validate"):
        refused = fjord_on_both("catalog", command, *ORG, path, "-o", "json")
        assert (refused.code, [detail["field"] for detail in refused.error["details"]]) == (8, [field])
        assert option in refused.error["details"][0]["message"]
    assert fjord_on_both("catalog", "export", *ORG).json["experiences"] == []
    assert fjord_on_both("catalog", "validate", path).code == 0
    for command in ("validate", "import"):
        assert fjord_on_both("catalog", command, *ORG, option, path).code == 0
    assert len(fjord_on_both("catalog", "export", *ORG).json["experiences"]) == 1


# Interrupted -----------------------------------------------------------------------------------------------------

LARGE = 2_000
"""Departures: four transactions."""
AGAIN = "run the same command again to complete it; imported entries stay as they are"


@pytest.fixture
def large(file: Callable[[Any], str]) -> str:
    """Return a catalogue whose import takes several transactions."""
    schedule = {
        "weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
        "times": [f"{hour:02}:{minute:02}" for hour in range(10) for minute in range(0, 60, 12)],
        "from": "2027-01-01",
        "to": "2027-02-09",
        "seats_total": 2,
    }
    return file(CATALOGUE | {"experiences": [KAYAK | {"departures": [], "schedules": [schedule]}]})


def stored_departures() -> int:
    with connect(os.environ["BOOKING_DATABASE_URL"]) as connection:
        return int(connection.execute("SELECT count(*) FROM departures").fetchone()[0])


def interrupt(patched: pytest.MonkeyPatch, transaction: int) -> None:
    """Send SIGINT to this process in the middle of that transaction of an import."""
    write, transactions = service._write_departures, count(1)

    def interrupted(*arguments: Any) -> Any:
        if next(transactions) == transaction:
            os.kill(os.getpid(), signal.SIGINT)
        return write(*arguments)

    patched.setattr(service, "_write_departures", interrupted)


@pytest.mark.parametrize(
    ("option", "transaction", "there"), [((), 2, 1000), (("--atomic",), 1, 0)], ids=["in batches", "atomic"]
)
def test_the_same_import_completes_an_interrupted_one(
    fjord_on_both: Booking,
    large: str,
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
    transaction: int,
    there: int,
) -> None:
    """A transaction of several is finished, and the only one is undone."""
    command = ("catalog", "import", *ORG, large, "-q", *option)
    with monkeypatch.context() as patched:
        interrupt(patched, transaction)
        stopped = fjord_on_both(*command)
    assert (stopped.code, stopped.out, stored_departures()) == (130, "", there)
    counted = (
        f"Imported: 1 of 1 experiences, {there} of {LARGE} departures, 0 of 1 gift cards, 0 of 1 customers. The rest"
        " was not imported."
    )
    message = counted if there else "Nothing was imported."
    assert stopped.err.splitlines() == [f"error: Interrupted. {message}", f"hint: {AGAIN}"]
    again = fjord_on_both(*command, "-o", "json").json
    assert (again["departures"], again["gift_cards"]) == (counts(LARGE - there, there), counts(1, 0))
    findings = fjord_on_both("doctor", "-o", "json").json["data"]
    assert [finding for finding in findings if finding["kind"] == "broken"] == []


def test_an_import_that_is_interrupted_while_it_is_checked_imported_nothing(
    fjord_on_both: Booking, file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    validate = transfer.validate

    def interrupted(*arguments: Any, **keywords: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return validate(*arguments, **keywords)

    monkeypatch.setattr(transfer, "validate", interrupted)
    refused = fjord_on_both("catalog", "import", *ORG, file(CATALOGUE))
    assert (refused.code, stored_departures()) == (130, 0)
    assert refused.err.splitlines()[-2:] == ["error: Interrupted. Nothing was imported.", f"hint: {AGAIN}"]


def test_an_interruption_is_one_json_object_in_json_mode(
    fjord: Booking, file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, 1)
    stopped = fjord("catalog", "import", *ORG, file(CATALOGUE), "-o", "json")
    assert (stopped.out, stopped.refusal, stopped.error["exit_code"]) == ("", (130, "interrupted"), 130)


def test_an_error_in_the_middle_says_what_is_imported(
    fjord_on_both: Booking, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = Database.write, iter(range(3))

    def fail_later(self: Database, work: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise Unavailable
        return write(self, work, **options)

    monkeypatch.setattr(Database, "write", fail_later)
    failed = fjord_on_both("catalog", "import", *ORG, large)
    assert failed.code == 10
    assert "Imported: 1 of 1 experiences, 1500 of 2000 departures" in failed.err
    assert f"{AGAIN[0].upper()}{AGAIN[1:]}" in failed.err


def test_an_import_on_a_terminal_shows_its_progress(
    fjord: Booking, file: Callable[[Any], str], terminal: OnTerminal
) -> None:
    code, screen = terminal("catalog", "import", *ORG, file(CATALOGUE))
    assert code == 0
    assert "importing catalogue.json" in screen
    assert "created" in screen
    _, screen = terminal("catalog", "import", *ORG, file(CATALOGUE), "--no-progress")
    assert "importing" not in screen


def test_an_id_that_two_organizations_share_is_ambiguous(fjord_on_both: Booking, file: Callable[[Any], str]) -> None:
    booking, card, guest = fjord_on_both, "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07", "0190f3c2-8a10-7c55-b1d2-5a0c9e7f3d21"
    create = ("--name", "Alps", "--timezone", "Europe/Zurich", "--currency", "CHF")
    assert booking("orgs", "create", "--slug", "alps", *create).code == 0
    amount = {"amount_minor": 50000, "currency": "NOK"}
    shared = {
        "customers": [{"id": guest, "email": "ada@example.com", "name": "Ada"}],
        "gift_cards": [{"id": card, "code": "GIFT-ABCD-1234", "initial_amount": amount}],
    }
    for slug in ("alps", "fjord-tours"):
        assert booking("catalog", "import", "--org", slug, "--other-currency", file(shared)).code == 0

    def state_of(slug: str) -> tuple[str, bool]:
        catalogue = booking("catalog", "export", "--org", slug).json
        return catalogue["customers"][0]["name"], catalogue["gift_cards"][0]["is_active"]

    for command in (("gift-cards", "deactivate", card), ("customers", "update", guest, "--name", "Eve")):
        refused = booking(*command, "-o", "json")
        assert refused.refusal == (2, "ambiguous")
        assert "alps, fjord-tours" in refused.error["message"]
    assert state_of("alps") == state_of("fjord-tours") == ("Ada", True)
    assert booking("gift-cards", "deactivate", card, *ORG).code == 0
    assert booking("customers", "update", guest, "--name", "Eve", *ORG).code == 0
    assert (state_of("alps"), state_of("fjord-tours")) == (("Ada", True), ("Eve", False))
    assert booking("gift-cards", "reactivate", card, *ORG).code == 0
    assert state_of("fjord-tours") == ("Eve", True)


# Departures that are cancelled with bookings ---------------------------------------------------------------------


DEPARTURE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
LEAVING = {"id": DEPARTURE, "starts_at": "2999-12-24T10:00:00", "seats_total": 12}
SOLD = {"experiences": [KAYAK | {"departures": [LEAVING]}]}
CALLED_OFF = {"experiences": [KAYAK | {"departures": [LEAVING | {"status": "cancelled"}]}]}
TO_CANCEL = f"  booking departures cancel {DEPARTURE} --org fjord-tours"


@pytest.fixture
def sold(fjord_on_both: Booking, file: Callable[[Any], str]) -> Booking:
    """Create bookings, some of them paid by card, and return them."""
    assert fjord_on_both("catalog", "import", *ORG, file(SOLD)).code == 0
    line = (*ORG, "--departure", DEPARTURE, "--guest", "standard=2", "--name", "Ada")
    paid = fjord_on_both("storefront", "checkout", *line, "--email", "ada@example.com", "-o", "json").json
    assert fjord_on_both("storefront", "pay", paid["id"], "--payment-intent", "pi_1").code == 0
    staff = ("--source", "admin", "--payment", "pay_on_site", "--email", "eve@example.com")
    assert fjord_on_both("bookings", "create", *line, *staff).code == 0
    return lambda *argv: fjord_on_both("catalog", "import", *ORG, file(CALLED_OFF), *argv)


def statuses(booking: Booking) -> list[str]:
    return [entry["status"] for entry in booking("bookings", "list", *ORG, "-o", "json").json["data"]]


def test_a_catalogue_that_cancels_a_departure_with_bookings_says_so(sold: Booking, booking: Booking) -> None:
    tried = sold("--dry-run")
    assert "Fjord kayak, 2999-12-24 10:00 would be cancelled, and has 2 bookings." in tried.err
    result = sold()
    assert "Fjord kayak, 2999-12-24 10:00 is cancelled, and has 2 bookings." in result.err
    assert "1780.00 NOK" in result.err
    assert TO_CANCEL in result.err.splitlines()
    (departure,) = sold("-o", "json").json["cancelled_departures"]  # also when nothing changes any more
    assert (departure["id"], departure["bookings"], departure["bookings_cancelled"]) == (DEPARTURE, 2, 0)
    assert statuses(booking) == ["confirmed", "confirmed"]
    assert booking(*TO_CANCEL.split()[1:], "--yes").code == 0
    assert statuses(booking) == ["cancelled", "cancelled"]
    assert sold("-o", "json").json["cancelled_departures"] == []


def test_its_bookings_are_cancelled_with_it_where_that_is_asked_for(sold: Booking, booking: Booking) -> None:
    tried = sold("--cancel-bookings", "--dry-run", "-o", "json").json
    assert tried["cancelled_departures"][0]["refunds"] == [{"amount_minor": 2 * 89000, "currency": "NOK"}]
    assert statuses(booking) == ["confirmed", "confirmed"]
    summary = sold("--cancel-bookings", "-o", "json").json
    (departure,) = summary["cancelled_departures"]
    assert (departure["bookings"], departure["bookings_cancelled"]) == (2, 2)
    assert departure["refunds"] == tried["cancelled_departures"][0]["refunds"]
    assert statuses(booking) == ["cancelled", "cancelled"]
    findings = booking("doctor", "-o", "json").json["data"]
    assert [finding for finding in findings if finding["kind"] == "broken"] == []


def test_bookings_that_an_import_left_are_cancelled_by_the_next_one(sold: Booking, booking: Booking) -> None:
    assert sold().code == 0
    assert "2 bookings of Fjord kayak, 2999-12-24 10:00 cancelled" in sold("--cancel-bookings").err
    assert statuses(booking) == ["cancelled", "cancelled"]
