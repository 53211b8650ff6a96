"""What every command is given: the global options, the renderer they ask for, and how a command gives up."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.output import Item, Renderer


class CliError(Exception):
    """The command cannot go on. The message is one line, the hint says what to do next."""

    def __init__(
        self,
        message: str,
        exit_code: ExitCode = ExitCode.USAGE,
        *,
        code: str = "usage",
        hint: str | None = None,
        details: Sequence[Item] = (),
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.hint = hint
        self.details = details
        self.status = status
        self.request_id = request_id


@dataclass(slots=True)
class Options:
    """The global options. Each may stand before or behind the command; the last one counts."""

    output: str | None = None
    json: bool = False
    fields: tuple[str, ...] = ()
    color: str = "auto"
    quiet: bool = False
    verbose: int = 0
    debug: bool = False
    no_progress: bool = False
    yes: bool = False
    profile: str | None = None
    base_url: str | None = None
    api_key_stdin: bool = False


class Cli:
    """One run of the command."""

    def __init__(self) -> None:
        self.options = Options()
        self.key_from_stdin: str | None = None
        self.organization: str | None = None
        """The slug of the organization that was told on stderr."""
        self._renderer: Renderer | None = None

    @property
    def render(self) -> Renderer:
        """The renderer, made when the options are known."""
        if self._renderer is None:
            options = self.options
            self._renderer = Renderer(
                output="json" if options.json else options.output,
                fields=options.fields,
                color=options.color,
                quiet=options.quiet,
                verbose=options.verbose or int(options.debug),
                progress=not options.no_progress,
            )
        return self._renderer

    def confirm(self, question: str) -> None:
        """Goes on when a person says yes, or --yes said so before.

        Raises:
            CliError: the answer is no, or nobody is there to give one.
        """
        if self.options.yes:
            return
        if not self.can_ask:
            raise CliError(
                f"{question} A confirmation is needed, and there is no terminal to ask on.",
                code="confirmation_required",
                hint="pass --yes",
            )
        if self._answer(f"{question} [y/N] ").lower() not in ("y", "yes"):
            raise CliError("Cancelled; nothing was changed.", ExitCode.FAILED, code="cancelled")

    @property
    def can_ask(self) -> bool:
        """Whether somebody is there to answer."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def ask(self, question: str, *, instead: str, hidden: bool = False) -> str:
        """What a person answers; hidden: without showing it.

        Raises:
            CliError: nobody is there, or the answer to a hidden question is empty; `instead` names the option.
        """
        if not self.can_ask:
            raise CliError(
                f"{instead} is needed: there is no terminal to ask on.", code="input_required", hint=f"pass {instead}"
            )
        if not hidden:
            return self._answer(question)
        answer = hidden_answer(question)
        if not answer:
            raise CliError("Nothing was typed.", ExitCode.FAILED, code="cancelled")
        return answer

    def _answer(self, question: str) -> str:
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip()


def hidden_answer(question: str) -> str:
    """What is typed, without showing it; nothing when the answer is Ctrl-D."""
    from getpass import getpass

    try:
        return getpass(question, sys.stderr).strip()
    except EOFError:
        return ""


def of(ctx: Any) -> Cli:
    """The run that a command belongs to."""
    cli = ctx.find_root().obj
    assert isinstance(cli, Cli)
    return cli
