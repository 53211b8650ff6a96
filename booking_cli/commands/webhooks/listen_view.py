"""The output of `listen`: a line for each event on a terminal, records elsewhere."""

import sys
from collections.abc import Mapping
from typing import Any

from booking_cli.commands.webhooks.receiver import ReceivedDelivery
from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import DIM, RED, YELLOW, one_line
from booking_cli.framework.output import Renderer

COLUMNS = ("at", "outcome", "status", "duration_ms", "type", "id", "attempt", "error", "delivery_id")
_GREEN = "\x1b[32m"
_COLORS: Mapping[str, str] = {"accepted": _GREEN, "given_up": RED}


def record(attempt: ReceivedDelivery) -> dict[str, Any]:
    """Return an attempt as an object."""
    return {
        "at": attempt.at.isoformat(timespec="milliseconds"),
        "type": attempt.event.type,
        "id": attempt.event.id,
        "sequence": attempt.event.sequence,
        "delivery_id": attempt.delivery_id,
        "attempt": attempt.number,
        "outcome": attempt.outcome,
        "status": attempt.result.status,
        "duration_ms": attempt.result.duration_ms,
        "error": attempt.result.error,
        "response": attempt.result.excerpt,
    }


class Records:
    """Writes a line or a JSON object for each attempt."""

    def __init__(self, cli: Cli, *, show_body: bool = False) -> None:
        self._cli = cli
        self._columns = (*COLUMNS, "response") if show_body else COLUMNS
        self._is_outage = False

    def attempt(self, attempt: ReceivedDelivery) -> None:
        render = self._cli.render
        if render.is_json:
            render.line(record(attempt))
        else:
            render.many([record(attempt)], self._columns)
        render.flush()

    def outage(self, reason: str | None) -> None:
        if reason and not self._is_outage:
            self._cli.render.note(f"The service cannot be reached; retrying: {one_line(reason)}")
        elif reason is None:
            self._cli.render.note("The service can be reached again.")
        self._is_outage = reason is not None


class Screen(Records):
    """Prints a line for each event."""

    def __init__(self, cli: Cli, *, show_body: bool = False) -> None:
        super().__init__(cli)
        self._show_body = show_body
        self._waiting_event = ""

    def attempt(self, attempt: ReceivedDelivery) -> None:
        # While the receiver is down, a waiting event is printed once, and not for each attempt.
        if attempt.outcome != "waiting" or self._waiting_event != attempt.event.id:
            self._print(_line(attempt, self._cli.render))
            if attempt.outcome != "accepted":
                self._print(
                    self._cli.render.painted(f"         {_explanation(attempt, with_body=not self._show_body)}", DIM)
                )
            if self._show_body and attempt.result.excerpt:
                self._print_body(attempt.result.excerpt)
        self._waiting_event = attempt.event.id if attempt.outcome == "waiting" else ""

    def _print_body(self, body: str) -> None:
        """Print the lines of a response below its event."""
        for line in body.splitlines():
            self._print(f"         {self._cli.render.painted('|', DIM)} {one_line(line)}")

    def _print(self, text: str) -> None:
        self._cli.render.text(text)
        self._cli.render.flush()


def create_view(cli: Cli, *, show_body: bool = False) -> Records:
    """Return the view for the output format. Records always have the receiver's response."""
    is_screen = cli.render.format == "table" and sys.stdout.isatty()
    return Screen(cli, show_body=show_body) if is_screen else Records(cli, show_body=show_body)


def _line(attempt: ReceivedDelivery, render: Renderer) -> str:
    result, event = attempt.result, attempt.event
    status = render.painted(f"{result.status or '---'!s:>3}", _COLORS.get(attempt.outcome, YELLOW))
    took = "" if result.is_unreachable else f"{result.duration_ms}ms"
    return f"{attempt.at:%H:%M:%S} {status} {took:>6} {event.id} {one_line(event.type)}"


def _explanation(attempt: ReceivedDelivery, *, with_body: bool) -> str:
    result = attempt.result
    if attempt.outcome == "waiting":
        return f"the receiver is down ({result.reason}); events wait for it"
    excerpt = f": {one_line(result.excerpt)[:120]}" if result.excerpt and with_body else ""
    if attempt.outcome == "given_up":
        return f"attempt {attempt.number}, the last one: {result.reason}{excerpt}"
    return f"attempt {attempt.number}: {result.reason}{excerpt}"
