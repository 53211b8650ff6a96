"""What every command is given: the global options, the renderer they ask for, and how a command gives up."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from booking_cli.exit_codes import ExitCode
from booking_cli.render import Item, Renderer


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
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.hint = hint
        self.details = details


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


class Cli:
    """One run of the command."""

    def __init__(self) -> None:
        self.options = Options()
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
                verbose=options.verbose,
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
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CliError(
                f"{question} A confirmation is needed, and there is no terminal to ask on.",
                code="confirmation_required",
                hint="pass --yes",
            )
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CliError("Cancelled; nothing was changed.", ExitCode.FAILED, code="cancelled")


def of(ctx: Any) -> Cli:
    """The run that a command belongs to."""
    cli = ctx.find_root().obj
    assert isinstance(cli, Cli)
    return cli
