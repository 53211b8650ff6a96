"""`booking report`: the numbers as JSON, as lines and on a terminal, and a page in one file."""

import re
import stat
from collections import Counter
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.serving.commands import Booking, OnTerminal
from support.world.hooks import Hooks
from support.world.operations import Operations
from support.world.world import World

from booking_cli.framework.exit_codes import ExitCode
from booking_core.models.events import EventType

ORG = ("--org", "fjord-tours")
TITLE = 'Kayak & "<script>alert(1)</script>"'


@pytest.fixture
def world(world: World) -> World:
    """Return the organization with two bookings, a cancelled booking and an endpoint."""
    ops, departure = Operations(world), world.departure(world.experience(title=TITLE), seats=8)
    Hooks(world).endpoint(EventType.BOOKING_CREATED)
    for count in (2, 2):
        ops.book(departure, count)
    ops.cancel(ops.book(departure, 1)["id"])
    return world


def test_the_report_is_one_object_with_sales_occupancy_and_deliveries(world: World, stored_on_both: Booking) -> None:
    report = stored_on_both("report", *ORG, "-o", "json").json
    assert report["totals"] == {
        "bookings": 2, "seats": 4, "amounts": [{"amount_minor": 4 * 89000, "currency": "NOK"}], "pending": 0,
        "cancelled": 1, "departures": 1, "seats_sold": 4, "seats_total": 8,
    }  # fmt: skip
    assert (len(report["days"]), len(report["occupancy"])) == (29, 29)
    assert report["webhooks"][0]["deliveries"]["queued"] == 3
    today = ("--from", report["today"], "--to", report["today"])
    assert stored_on_both("report", *ORG, *today, "--json").json["days"] == report["days"][-1:]


def test_programs_get_a_line_for_each_number(world: World, stored_on_both: Booking) -> None:
    lines = [line.split("\t") for line in stored_on_both("report", *ORG).out.splitlines()]
    sections = {"days": 29, "experiences": 1, "cancellations": 1, "occupancy": 29, "webhooks": 5}
    assert Counter(line[0] for line in lines) == sections
    assert {len(line) for line in lines} == {7}
    (of_experience,) = (line for line in lines if line[0] == "experiences")
    assert of_experience == ["experiences", TITLE, "", "2", "4", "", "3560.00 NOK"]


def test_a_terminal_shows_bars_that_fit(world: World, stored_on_both: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    today = date.fromisoformat(stored_on_both("report", *ORG, "--json").json["today"])
    parts = ("2 sales, 4 seats, 3,560.00 NOK; 0 pending, 1 cancelled", "4/8", "█", "Cancellations", "Webhook")
    for columns, days in ((80, 28), (100, 28), (140, 28), (80, 90)):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("booking_cli.framework.output._PIPE_WIDTH", columns)
        window = "--from", str(today - timedelta(days=1)), "--to", str(today + timedelta(days=days))
        output = stored_on_both("report", *ORG, *window, "-o", "table", "--color", "never").out
        assert ("3 days in a block" in output) is (days == 90)
        assert len(set(re.findall(r"\|[^|]{28,31}\|", output))) == 1  # the strips of all and of the experience
        assert [part for part in parts if part not in output] == []
        assert re.search(r" amount\n[^\n]* 3,560\.00 NOK\n", output), "amounts are aligned"
        assert max(map(len, output.splitlines())) <= columns


def test_the_page_is_one_file_without_scripts_and_other_files(
    world: World, stored_on_both: Booking, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    assert stored_on_both("report", *ORG, "--html", str(file)).code == 0
    page, tags = file.read_text(encoding="utf-8"), Counter[str]()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags[tag] += 1
            assert not {"src", "href", "onload", "onclick"} & {name for name, _ in attrs}

    Reader().feed(page)
    assert tags["script"] == tags["link"] == tags["img"] == 0
    assert (tags["rect"], tags["h2"]) == (29, 5)
    assert not re.search(r"url\(|@import", page)
    assert "Kayak &amp; &#34;&lt;script&gt;alert(1)&lt;/script&gt;&#34;" in page
    assert "50 %" in page


def test_the_page_replaces_a_file_when_confirmed(fjord_on_both: Booking, terminal: OnTerminal, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write = ("report", *ORG, "--html", str(file))
    file.write_text("precious")
    file.chmod(0o644)
    assert fjord_on_both(*write, "-o", "json").refusal == (2, "confirmation_required")
    code, screen = terminal(*write, answer="n\n")
    assert (code, "report.html? [y/N]" in screen.replace("\n", ""), file.read_text()) == (1, True, "precious")
    assert fjord_on_both(*write, "--yes").code == 0
    assert file.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if "report" in path.name] == ["report.html"]


def test_a_heading_and_a_question_have_no_character_that_reorders_text(
    fjord_on_both: Booking, terminal: OnTerminal
) -> None:
    assert fjord_on_both("orgs", "set", "fjord-tours", "name=Fjord \u202esruoT\u2066").code == 0
    heading = fjord_on_both("report", *ORG, "-o", "table").out.splitlines()[0]
    assert heading.startswith("Fjord \\u202esruoT\\u2066, ")
    file = Path("\u202elmth.html")
    file.touch()
    assert "Replace \\u202elmth.html? [y/N]" in terminal("report", *ORG, "--html", str(file), answer="n\n")[1]


def test_an_organization_without_anything_has_an_empty_report(fjord_on_both: Booking, tmp_path: Path) -> None:
    result = fjord_on_both("report", *ORG, "-o", "table", "--html", str(tmp_path / "report.html"))
    assert result.code == 0
    assert "0 sales" in result.out
    assert "No departures." in result.err


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--from", "2026-01-01", "--to", "2026-12-31"), ExitCode.INVALID),
        (("--from", "soon"), ExitCode.USAGE),
        (("--html", "nowhere/report.html"), ExitCode.USAGE),
    ],
    ids=("wide", "no-date", "no-folder"),
)
def test_a_wrong_option_is_refused(fjord_on_both: Booking, argv: tuple[str, ...], code: ExitCode) -> None:
    assert fjord_on_both("report", *ORG, *argv).code == code
