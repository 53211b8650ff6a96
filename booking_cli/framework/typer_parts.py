"""The private parts of Typer that the command needs. No other module names one.

Typer contains Click as `typer._click`, and exports neither Click's error for a missing parameter, which names only the
first one, nor the class of such errors, nor its item of completion, which a group needs to list commands without
importing them. It writes and runs the scripts of completion in private modules, too. The metadata allows the releases
of Typer that have these parts, and `tests/architecture/test_private_parts.py` names the part that a newer release
lacks.
"""

from typing import Any

from typer._click.exceptions import MissingParameter, NoArgsIsHelpError, UsageError
from typer._click.shell_completion import CompletionItem

__all__ = [
    "COMPLETION_VARIABLE",
    "CompletionItem",
    "MissingParameter",
    "NoArgsIsHelpError",
    "UsageError",
    "complete",
    "script",
]

COMPLETION_VARIABLE = "_BOOKING_COMPLETE"
"""The variable that a completion script sets for its requests."""


def script(shell: str) -> str:
    """Return the script that completes `booking` in a shell."""
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name="booking", complete_var=COMPLETION_VARIABLE, shell=shell)


def complete(root: Any, cli: Any, instruction: str) -> int:
    """Answer a request of a completion script, and return the exit code."""
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    completion_init()
    return shell_complete(root, {"obj": cli}, "booking", COMPLETION_VARIABLE, instruction)
