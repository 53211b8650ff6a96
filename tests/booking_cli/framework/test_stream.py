"""A list without an end: lines that come one by one."""

import json
from typing import Any

import pytest
from support.serving.commands import Booking, RecordedTerminal

from booking_cli.commands import events
from booking_cli.framework.context import Cli
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.stream import Stream

COLUMNS = {"at": 16, "type": 10, "id": 36}
ITEM = {"at": "2026-11-21T13:00:00+01:00", "type": "a\x1b[2J", "id": "one"}


def test_on_a_terminal_a_line_has_the_columns_that_fit(recorded_terminal: RecordedTerminal) -> None:
    seen = recorded_terminal(40)
    Stream(Cli(), COLUMNS).show(ITEM)
    assert seen.getvalue() == "at                type\n2026-11-21 13:00  a\\x1b[2J\n"


def test_fields_that_were_asked_for_are_all_shown(recorded_terminal: RecordedTerminal) -> None:
    seen, cli = recorded_terminal(40), Cli()
    cli.options.fields = ("id", "type", "at", "nothing")
    stream = Stream(cli, COLUMNS)
    stream.show(ITEM)
    assert "one  a\\x1b[2J  2026-11-21 13:00\n" in seen.getvalue()


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_in_both_json_modes_an_item_is_a_line(capsys: pytest.CaptureFixture[str], output: str) -> None:
    cli = Cli()
    cli.options.output = output
    stream = Stream(cli, COLUMNS)
    stream.show(ITEM)
    stream.show(ITEM)
    captured = capsys.readouterr()
    assert [json.loads(line) for line in captured.out.splitlines()] == [ITEM, ITEM]
    assert captured.err == ""


def test_in_a_pipe_an_item_is_a_line_with_full_values(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream(Cli(), COLUMNS)
    stream.show(ITEM)
    captured = capsys.readouterr()
    assert captured.out == "2026-11-21T13:00:00+01:00\ta\\x1b[2J\tone\n"


def test_a_follower_waits_for_a_service_that_is_away_and_says_so(
    booking: Booking, canned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_POLL_S", 0.0)
    monkeypatch.setattr("booking_sdk._feed_reader._BACKOFF_S", 0.0)
    page = json.dumps({"data": [], "has_more": False, "next_cursor": None, "resume_cursor": "c"}).encode()
    away = (503, b'{"error": "Away.", "code": "service_unavailable"}')
    gone = (401, b'{"error": "Revoked.", "code": "api_key_revoked"}')
    canned.answers = [(200, page), (200, page), away, away, away, (200, page), gone]
    ended = booking("events", "tail", "--follow")
    assert ended.code == ExitCode.AUTH
    waiting, outage = ended.err.splitlines()[:2]
    assert waiting == "Waiting for events; Ctrl-C to stop."
    assert outage.startswith("the event feed does not answer and is requested again: 503 service_unavailable")
    assert len(canned.asked) == 7
