"""One renderer: tables for people, tab-separated for pipes, JSON for programs."""

import io
import json
import sys
from typing import Any

import pytest
from support.serving.commands import Booking, Environment, RecordedTerminal, Terminal

from booking_cli.commands import events
from booking_cli.framework import formatting, tables
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, UnknownField
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.global_options import Options
from booking_cli.framework.output import Renderer
from booking_cli.framework.stream import Stream
from booking_cli.framework.tables import Columns

ITEM: dict[str, Any] = {
    "id": "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07",
    "name": "Fjord\tkayak\n\x1b[31m",
    "price": {"amount_minor": 89000, "currency": "NOK"},
    "tags": ["water", "early"],
    "is_published": True,
    "note": None,
    "created_at": "2026-11-21T13:00:00+01:00",
}


def written(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_pipe_gets_tab_separated_values_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer(Options()).many([ITEM], ("id", "name", "price.amount_minor", "tags", "is_published", "note"))
    line = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07\tFjord\\tkayak\\n\\x1b[31m\t89000\twater,early\ttrue\t\n"
    assert written(capsys) == line


def test_a_single_thing_is_a_line_for_each_field(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer(Options()).one(ITEM)
    lines = written(capsys).splitlines()
    assert lines[0] == "id\t0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
    assert lines[2] == "price\t890.00 NOK"
    assert len(lines) == len(ITEM)


def test_a_single_thing_on_a_terminal_shows_what_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    item = ITEM | {
        "customer": {"name": "Ada", "phone": None},
        "guests": [{"tier_id": "adult", "count": 2, "unit_price": ITEM["price"]}, {"tier_id": "child", "count": 1}],
        "add_ons": [],
        "metadata": {},
    }
    Renderer(Options(output="table")).one(item)
    lines = [line.split(maxsplit=1) for line in written(capsys).splitlines()]
    assert ["price", "890.00 NOK"] in lines
    assert ["customer.name", "Ada"] in lines
    assert ["guests", "adult, count 2, 890.00 NOK"] in lines
    assert ["child,", "count 1"] in lines
    assert not {"metadata", "add_ons", "customer.phone", "note"} & {line[0] for line in lines}
    assert ["created_at", "2026-11-21 13:00"] in lines


@pytest.mark.parametrize(
    ("part", "whole", "drawn"),
    [
        *[(0, 120, "......"), (1, 120, "#....."), (60, 120, "###..."), (119, 120, "#####."), (120, 120, "######")],
        *[(5, 4, "######"), (0, 0, "......")],
    ],
)
def test_only_zero_has_an_empty_bar_and_only_the_whole_a_full(
    monkeypatch: pytest.MonkeyPatch, part: int, whole: int, drawn: str
) -> None:
    assert formatting.bar(part, whole, 6) == drawn.replace("#", "█").replace(".", "░")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert formatting.bar(part, whole, 6) == drawn


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        *[(580000, "NOK", "5,800.00 NOK"), (1250000, "CLP", "1,250,000 CLP"), (-123456789, "KWD", "-123,456.789 KWD")],
        *[(99999, "NOK", "999.99 NOK"), (0, "CLP", "0 CLP"), (-5, "KWD", "-0.005 KWD"), (0, "EUR", "0.00 EUR")],
    ],
)
def test_amounts_have_the_digits_of_their_currency_and_commas_in_tables(
    capsys: pytest.CaptureFixture[str], amount: int, currency: str, text: str
) -> None:
    item = {"total": {"amount_minor": amount, "currency": currency}}
    for output, expected in (("table", text), ("tsv", text.replace(",", ""))):
        renderer = Renderer(Options(output=output))
        renderer.many([item], ("total",))
        assert written(capsys).splitlines()[-1].strip() == expected
        renderer.one(item)
        assert written(capsys).split(maxsplit=1)[1].strip() == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2026-11-21T13:00:59+01:00", "2026-11-21 13:00"),
        ("2026-11-21T12:00:59Z", "2026-11-21 12:00Z"),
        ("2026-11-21T13:00:59", "2026-11-21T13:00:59"),
        ("not-a-timestamp-at-Z", "not-a-timestamp-at-Z"),
    ],
)
def test_a_table_shows_timestamps_to_the_minute(value: str, text: str) -> None:
    assert formatting.readable(value) == text


def test_a_title_is_the_shortest_unique_end_of_its_path() -> None:
    paths = ("id", "customer.name", "departure.id", "totals.total")
    assert list(tables.titles_of(paths).values()) == ["id", "name", "departure.id", "total"]


def test_prose_is_broken_into_lines_where_it_does_not_fit(recorded_terminal: RecordedTerminal) -> None:
    screen = recorded_terminal(50)
    item = {"name": "x" * 20, "summary": "word " * 20}
    Renderer(Options(color="never")).many([item], Columns(("name", "summary"), wrapped=["summary"]))
    assert max(map(len, screen.getvalue().splitlines())) <= 50
    assert screen.getvalue().count("word") == 20


ID = ITEM["id"]
TOTAL = {"id": "b1", "total": ITEM["price"]}


@pytest.mark.parametrize(
    ("settings", "content", "lines"),
    [
        ({"fields": ["id", "price.currency"]}, ITEM, [f"{ID}\tNOK"]),
        ({"fields": ["extra"]}, [{"id": "1"}, {"id": "2", "extra": "x"}], ["", "x"]),
        ({"output": "jsonl"}, ITEM, [ITEM]),
        ({"output": "jsonl"}, [ITEM, ITEM], [ITEM, ITEM]),
        ({"output": "jsonl", "fields": ["price.currency", "id"]}, ITEM, [{"price": {"currency": "NOK"}, "id": ID}]),
        ({"output": "jsonl", "fields": ["id", "note.here"]}, ITEM, [{"id": ID, "note": {"here": None}}]),
        ({"output": "jsonl", "fields": ["total.currency", "id", "total"]}, TOTAL, [TOTAL]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) and "name" not in value else "",
)
def test_fields_are_chosen_in_each_format(
    capsys: pytest.CaptureFixture[str], settings: dict[str, Any], content: Any, lines: list[Any]
) -> None:
    renderer = Renderer(Options(**settings))
    if isinstance(content, list):
        renderer.many(content, ("id",))
    else:
        renderer.one(content)
    written_lines = written(capsys).splitlines()
    assert [json.loads(line) if settings.get("output") else line for line in written_lines] == lines


def test_json_is_the_object_or_the_envelope_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer(Options(output="json")).one(ITEM)
    assert json.loads(written(capsys)) == ITEM
    Renderer(Options(output="json")).many([ITEM, ITEM], ("id",))
    assert json.loads(written(capsys)) == {"data": [ITEM, ITEM], "has_more": False, "next_cursor": None}


@pytest.mark.parametrize("output", ["table", "tsv", "json", "jsonl"])
@pytest.mark.parametrize("path", ["nosuch", "price.nosuch", "id.x", "tags.x", "price.currency.x", "Id"])
def test_a_field_that_is_not_there_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], output: str, path: str
) -> None:
    renderer = Renderer(Options(output=output, fields=("id", path)))
    for write in (lambda: renderer.one(ITEM), lambda: renderer.many([ITEM, ITEM], ("id",))):
        with pytest.raises(UnknownField) as refused:
            write()
        assert refused.value.path == path
        assert {"id", "price", "price.currency"} <= set(refused.value.names)
    assert written(capsys) == ""


def test_an_empty_list_refuses_a_field_when_its_shape_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer(Options(fields=("nosuch",))).many([], ("id",))
    renderer = Renderer(Options(fields=("totals.total.nosuch",)))
    renderer.set_shape("booking")
    with pytest.raises(UnknownField):
        renderer.many([], ("id",))
    with pytest.raises(UnknownField):
        renderer.set_shape("booking", check_now=True)
    newer = Renderer(Options(fields=("newer",)))
    newer.set_shape("booking")
    newer.many([{"id": "1", "newer": "x"}], ("id",))
    assert written(capsys) == "x\n"


def test_an_empty_list_is_empty_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    Renderer(Options(output="json")).many([], ("id",))
    assert json.loads(written(capsys))["data"] == []
    for output in ("jsonl", "tsv", "table"):
        Renderer(Options(output=output)).many([], ("id",))
        assert written(capsys) == ""


def test_a_table_in_a_pipe_cuts_nothing_and_has_no_color(capsys: pytest.CaptureFixture[str]) -> None:
    long = {"id": ITEM["id"], "name": "x" * 300, "created_at": ITEM["created_at"]}
    Renderer(Options(output="table")).many([long], ("id", "name", "created_at"))
    header, line = written(capsys).splitlines()
    assert header.split() == ["id", "name", "created_at"]
    assert "x" * 300 in line
    assert "2026-11-21 13:00" in line
    assert "\x1b" not in header + line


def test_columns_that_were_asked_for_are_all_shown(recorded_terminal: RecordedTerminal) -> None:
    screen = recorded_terminal(40)
    Renderer(Options(color="never", fields=("name", "more"))).many([{"name": "kayak", "more": "x" * 60}], ("name",))
    assert screen.getvalue().count("x") == 60


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, 0x9B, 0x061C, 0x200F, 0x2028, 0x202E, 0x2066, 0x2069])
def test_no_character_that_controls_or_reorders_is_printed(capsys: pytest.CaptureFixture[str], code: int) -> None:
    escaped = {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}.get(code, ascii(chr(code))[1:-1])
    item = {"name": f"a{chr(code)}b"}
    for output in ("tsv", "table"):
        renderer = Renderer(Options(output=output))
        renderer.one(item)
        renderer.many([item], ("name",))
        assert written(capsys).count(f"a{escaped}b\n") == 2


@pytest.mark.parametrize(
    ("stream", "choice", "variables", "expected"),
    [
        (Terminal, "auto", {}, True),
        (Terminal, "auto", {"NO_COLOR": "1"}, False),
        (Terminal, "auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (Terminal, "auto", {"TERM": "dumb"}, False),
        (Terminal, "never", {"FORCE_COLOR": "1"}, False),
        (Terminal, "always", {"NO_COLOR": "1"}, True),
        (io.StringIO, "auto", {}, False),
        (io.StringIO, "auto", {"FORCE_COLOR": "1"}, True),
        (io.StringIO, "auto", {"CLICOLOR_FORCE": "1"}, True),
        (io.StringIO, "auto", {"CLICOLOR_FORCE": "0"}, False),
        (io.StringIO, "auto", {"GITHUB_ACTIONS": "true"}, False),
    ],
)
def test_color_follows_the_output_the_option_and_the_environment(
    environment: Environment, stream: type[io.StringIO], choice: str, variables: dict[str, str], expected: bool
) -> None:
    for name, value in variables.items():
        environment(name, value)
    assert formatting.wants_color(stream(), choice) is expected


def test_an_error_is_a_line_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = CliError(
        "No such\nthing \x1b[2J", ExitCode.NOT_FOUND, code="not_found", hint="look again", request_id="req_1"
    )
    Renderer(Options()).error(error)
    assert capsys.readouterr().err == "error: No such thing \\x1b[2J\nrequest: req_1\nhint: look again\n"


def test_in_json_modes_stderr_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer(Options(output="jsonl", verbose=2))
    renderer.note("a note")
    renderer.detail("a detail")
    renderer.warn("a warning")
    with renderer.progress("long") as advance:
        advance(1, 2)
    renderer.error(CliError("broken", ExitCode.FAILED, code="internal_error"))
    captured = capsys.readouterr()
    assert captured.out == ""
    error = {"code": "internal_error", "message": "broken", "status": None, "request_id": None, "hint": None}
    assert json.loads(captured.err) == {"error": error | {"exit_code": 1}}


def test_quiet_keeps_notes_and_not_errors_away(capsys: pytest.CaptureFixture[str]) -> None:
    renderer = Renderer(Options(quiet=True))
    renderer.note("a note")
    renderer.error(CliError("broken", ExitCode.FAILED, code="internal_error"))
    assert capsys.readouterr().err == "error: broken\n"


def test_a_bar_is_drawn_on_a_terminal_unless_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_wanted in (True, False):
        monkeypatch.setattr("sys.stderr", screen := Terminal())
        with Renderer(Options(color="never", no_progress=not is_wanted)).progress("importing") as advance:
            advance(3, 7)
        assert ("importing" in screen.getvalue(), screen.getvalue() != "") == (is_wanted, is_wanted)


# Lists without an end ------------------------------------------------------------------------------------------------


COLUMNS = {"at": 16, "type": 10, "id": 36}
LINE = {"at": "2026-11-21T13:00:00+01:00", "type": "a\x1b[2J", "id": "one"}


def test_on_a_terminal_a_line_has_the_columns_that_fit(recorded_terminal: RecordedTerminal) -> None:
    screen = recorded_terminal(40)
    Stream(Cli(), COLUMNS).show(LINE)
    assert screen.getvalue() == "at                type\n2026-11-21 13:00  a\\x1b[2J\n"


def test_fields_that_were_asked_for_are_all_shown(recorded_terminal: RecordedTerminal) -> None:
    screen, cli = recorded_terminal(40), Cli()
    cli.options.fields = ("id", "type", "at", "nothing")
    stream = Stream(cli, COLUMNS)
    stream.show(LINE)
    assert "one  a\\x1b[2J  2026-11-21 13:00\n" in screen.getvalue()


@pytest.mark.parametrize("output", ["json", "jsonl", None])
def test_an_item_is_a_line_with_full_values_in_a_pipe(capsys: pytest.CaptureFixture[str], output: str | None) -> None:
    cli = Cli()
    cli.options.output = output
    stream = Stream(cli, COLUMNS)
    for _ in range(2):
        stream.show(LINE)
    line = f"{json.dumps(LINE)}\n" if output else "2026-11-21T13:00:00+01:00\ta\\x1b[2J\tone\n"
    assert tuple(capsys.readouterr()) == (line * 2, "")


def test_a_follower_waits_for_a_service_that_is_away_and_says_so(
    booking: Booking, canned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_POLL_S", 0.0)
    monkeypatch.setattr("booking_sdk._feed_reader._BACKOFF_S", 0.0)
    page = json.dumps({"data": [], "has_more": False, "next_cursor": None, "resume_cursor": "c"}).encode()
    away = (503, b'{"error": "Away.", "code": "service_unavailable"}')
    revoked = (401, b'{"error": "Revoked.", "code": "api_key_revoked"}')
    canned.answers = [(200, page), (200, page), away, away, away, (200, page), revoked]
    ended = booking("events", "tail", "--follow")
    assert ended.code == ExitCode.AUTH
    waiting, outage = ended.err.splitlines()[:2]
    assert waiting == "Waiting for events; Ctrl-C to stop."
    assert outage.startswith("the event feed does not answer and is requested again: 503 service_unavailable")
    assert len(canned.requests) == 7
