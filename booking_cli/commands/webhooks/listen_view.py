"""What `listen` shows: on a terminal a line for each event above a line that says what is going on; elsewhere a record
for each attempt."""

import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from booking_cli.framework.context import Cli
from booking_cli.framework.output import one_line, wants_color

if TYPE_CHECKING:
    from booking_cli.commands.webhooks.listen import Forwarded

COLUMNS = ("at", "outcome", "status", "duration_ms", "type", "id", "attempt", "error", "delivery_id")
_GREEN, _RED, _YELLOW, _DIM, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_CLEAR = "\r\x1b[2K"
_COLORS: Mapping[str, str] = {"accepted": _GREEN, "given_up": _RED}


class View(Protocol):
    """Told of everything that happens."""

    def forwarded(self, attempt: "Forwarded") -> None: ...

    def idle(self, accepted: int, given_up: int) -> None: ...

    def trouble(self, reason: str | None) -> None: ...

    def end(self) -> None: ...


def made_for(cli: Cli, *, show_body: bool = False) -> View:
    """Return the view that fits the output; records have the receiver's answer in any case."""
    if cli.render.format == "table" and sys.stdout.isatty():
        return Screen(cli, show_body=show_body)
    return Records(cli, show_body=show_body)


def record(attempt: "Forwarded") -> dict[str, Any]:
    """One attempt, for a program."""
    return {
        "at": attempt.at.isoformat(timespec="milliseconds"),
        "type": attempt.event.type,
        "id": attempt.event.id,
        "sequence": attempt.event.sequence,
        "delivery_id": attempt.delivery_id,
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "status": attempt.answer.status,
        "duration_ms": attempt.answer.duration_ms,
        "error": attempt.answer.error,
        "response": attempt.answer.excerpt,
    }


class Records:
    """A line for each attempt, or a JSON object on a line of its own."""

    def __init__(self, cli: Cli, *, show_body: bool = False) -> None:
        self._cli = cli
        self._columns = (*COLUMNS, "response") if show_body else COLUMNS
        self._in_trouble = False

    def forwarded(self, attempt: "Forwarded") -> None:
        render = self._cli.render
        if render.is_json:
            render.line(record(attempt))
        else:
            render.many([record(attempt)], self._columns)
        render.flush()

    def idle(self, accepted: int, given_up: int) -> None:
        """Nothing to tell."""

    def trouble(self, reason: str | None) -> None:
        if reason and not self._in_trouble:
            self._cli.render.note(f"The service does not answer, and is asked again: {one_line(reason)}")
        elif reason is None:
            self._cli.render.note("The service answers again.")
        self._in_trouble = reason is not None

    def end(self) -> None:
        """Nothing is left open."""


class Screen:
    """A line for each event that scrolls by, and one at the bottom that changes."""

    def __init__(self, cli: Cli, *, show_body: bool = False) -> None:
        self._show_body = show_body
        self._colored = wants_color(sys.stdout, cli.options.color)
        self._waiting_for = ""
        self._doing = ""

    def forwarded(self, attempt: "Forwarded") -> None:
        # A receiver that is down has one line for each event that waits, however often it is tried.
        if attempt.outcome != "waiting" or self._waiting_for != attempt.event.id:
            self._print(_line(attempt, self._painted))
            if attempt.outcome != "accepted":
                self._print(self._painted(f"         {_explanation(attempt, with_body=not self._show_body)}", _DIM))
            if self._show_body and attempt.answer.excerpt:
                self._print_body(attempt.answer.excerpt)
        self._waiting_for = attempt.event.id if attempt.outcome == "waiting" else ""
        if attempt.outcome == "waiting":
            self._status(f"the receiver is down; trying again in {attempt.pause_s:.0f} s")
        elif attempt.outcome == "retrying":
            self._status(f"trying again in {attempt.pause_s:.0f} s")

    def idle(self, accepted: int, given_up: int) -> None:
        self._doing = f"{accepted} forwarded" + (f", {given_up} not accepted" if given_up else "")
        self._status(f"{self._doing}; waiting for events")

    def trouble(self, reason: str | None) -> None:
        if reason is None:
            self._status(f"{self._doing}; waiting for events")
        else:
            self._status(f"the service does not answer, and is asked again: {one_line(reason)}", _YELLOW)

    def end(self) -> None:
        sys.stdout.write(_CLEAR)
        sys.stdout.flush()

    def _print_body(self, body: str) -> None:
        """Print each line of an answer below its event."""
        for line in body.splitlines():
            self._print(f"         {self._painted('|', _DIM)} {one_line(line)}")

    def _print(self, text: str) -> None:
        sys.stdout.write(f"{_CLEAR}{text}\n")
        sys.stdout.flush()

    def _status(self, text: str, color: str = _DIM) -> None:
        shown = text[: shutil.get_terminal_size().columns - 1]
        sys.stdout.write(_CLEAR + self._painted(shown, color))
        sys.stdout.flush()

    def _painted(self, text: str, color: str) -> str:
        return f"{color}{text}{_PLAIN}" if self._colored else text


def _line(attempt: "Forwarded", painted: Any) -> str:
    answer, event = attempt.answer, attempt.event
    status = painted(f"{answer.status or '---'!s:>3}", _COLORS.get(attempt.outcome, _YELLOW))
    took = "" if answer.is_away else f"{answer.duration_ms}ms"
    return f"{attempt.at:%H:%M:%S} {status} {took:>6} {event.id} {one_line(event.type)}"


def _explanation(attempt: "Forwarded", *, with_body: bool) -> str:
    answer = attempt.answer
    if attempt.outcome == "waiting":
        return f"the receiver is down ({answer.reason}); everything waits for it"
    said = f": {one_line(answer.excerpt)[:120]}" if answer.excerpt and with_body else ""
    if attempt.outcome == "given_up":
        return f"attempt {attempt.attempt}, the last: {answer.reason}{said}"
    return f"attempt {attempt.attempt}: {answer.reason}{said}"
