"""The state of one run of the command: the global options, the renderer and the questions to the user.

`main` puts a `Cli` into Typer's context, and a command takes it as its argument `cli`.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from booking_cli.framework.errors import CliError, retry_hint
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import one_line
from booking_cli.framework.global_options import Options
from booking_cli.framework.output import Renderer


class Question(Exception):
    """A question about a change whose transaction has begun. The user reads it after the transaction was rolled back,
    so no row is locked meanwhile."""


class Cli:
    """A run of the command."""

    def __init__(self) -> None:
        self.options = Options()
        self.key_from_stdin: str | None = None
        self.connection: Any = None
        """The settings of the API client, once they are resolved."""
        self.organization: str | None = None
        """The slug of the organization that was already noted on stderr."""
        self.organization_id: str | None = None
        self.action: str | None = None
        """The words of a command that changes something, joined by dots: its action in the audit trail."""
        self.arguments: dict[str, Any] = {}
        """The arguments of that command, without its options."""
        self.audited: dict[str, Any] = {}
        """Ids or names that the command adds to its entry of the audit trail."""
        self.is_service = False
        """The command runs the service: its process ends without finalizing the interpreter."""
        self._answers: set[str] = set()
        """The questions whose answer was yes."""
        self._renderer: Renderer | None = None

    @property
    def render(self) -> Renderer:
        """Return the renderer, made when the options are known."""
        if self._renderer is None:
            self._renderer = Renderer(self.options)
        return self._renderer

    @property
    def is_interactive(self) -> bool:
        """Return whether there is a terminal to ask questions on."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str) -> None:
        """Ask for a confirmation, unless --yes is given.

        Raises:
            CliError: the answer is no, or there is no terminal.
        """
        if self.options.yes:
            return
        if not self.is_interactive:
            raise CliError(
                f"{question} A confirmation is needed, and there is no terminal to ask on.",
                code="confirmation_required",
                hint="pass --yes",
            )
        if self._read_answer(f"{one_line(question)} [y/N] ").lower() not in ("y", "yes"):
            raise CliError("Cancelled; nothing was changed.", ExitCode.FAILED, code="cancelled")
        self._answers.add(question)

    def require_answer(self, question: str) -> None:
        """Require that a question was answered with yes, within the transaction of a change (`Session.change`).

        Raises:
            Question: it was not asked yet.
        """
        if not self.options.yes and question not in self._answers:
            raise Question(question)

    def ask(self, question: str, *, option: str, hidden: bool = False) -> str:
        """Return the answer to a question; a hidden one is not echoed.

        Args:
            option: the option that gives the same answer without a terminal.

        Raises:
            CliError: there is no terminal, or the answer to a hidden question is empty.
        """
        if not self.is_interactive:
            raise CliError(
                f"{option} is needed: there is no terminal to ask on.", code="input_required", hint=f"pass {option}"
            )
        if not hidden:
            return self._read_answer(question)
        answer = hidden_answer(question)
        if not answer:
            raise CliError("Nothing was typed.", ExitCode.FAILED, code="cancelled")
        return answer

    @contextmanager
    def idempotency_key(self, option: str | None) -> Iterator[str]:
        """Yield the key of --idempotency-key, or a new one, for a change that must happen once.

        Raises:
            CliError: Ctrl-C was pressed; the hint has the key to run the same command again.
        """
        from secrets import token_hex

        key = option or f"cli-{token_hex(16)}"
        self.render.detail(f"idempotency key: {key}")
        try:
            yield key
        except KeyboardInterrupt:
            message = "Interrupted; the change may have been made."
            raise CliError(message, ExitCode.INTERRUPTED, code="interrupted", hint=retry_hint(key)) from None

    def _read_answer(self, question: str) -> str:
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip()


def hidden_answer(question: str) -> str:
    """Return the answer to a question without echoing it; an empty string after Ctrl-D."""
    from getpass import getpass

    try:
        return getpass(question, sys.stderr).strip()
    except EOFError:
        return ""


def pause_collections() -> None:
    """Disable the garbage collector while a command is loaded.

    Imported code stays for the whole process, so a collection during the imports finds nothing. Several of them would
    take a tenth of the time of a short command, and a fourteenth of the start of the service.
    """
    gc.disable()


def resume_collections() -> None:
    """Enable the garbage collector again, for objects that are made from now on."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
