"""`booking completion`: shell completion scripts, and the candidates that they request.

On Tab the script runs `booking` with the words so far and `BOOKING_COMPLETE` in the environment, and the candidates are
printed one per line. Unlike Typer's own completion it imports no command but the one that is completed.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from booking_cli.framework import event_types
from booking_cli.framework.arguments import one_of
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli

VARIABLE = "BOOKING_COMPLETE"
"""Set by the scripts: `words`, or `described` for a shell that shows descriptions."""

app = command_app()

_BASH = r"""_booking() {
    local IFS=$'\n'
    COMPREPLY=($(BOOKING_COMPLETE=words "${COMP_WORDS[0]}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _booking booking
"""

_ZSH = r"""#compdef booking
_booking() {
    local -a found
    found=("${(@f)$(BOOKING_COMPLETE=words "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
compdef _booking booking
"""

_FISH = r"""function __booking_complete
    set -l words (commandline -opc) (commandline -ct)
    BOOKING_COMPLETE=described booking $words[2..-1] 2>/dev/null
end
complete -c booking -a '(__booking_complete)'
"""

_POWERSHELL = r"""Register-ArgumentCompleter -Native -CommandName booking -ScriptBlock {
    param($word, $ast, $position)
    $words = @($ast.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    if ($word -eq '') { $words += '""' }
    $env:BOOKING_COMPLETE = 'words'
    try { booking @words 2>$null | ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) } }
    finally { Remove-Item Env:BOOKING_COMPLETE }
}
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "powershell": _POWERSHELL}
SHELLS = tuple(SCRIPTS)


@command(
    app,
    "completion",
    "booking completion bash > ~/.local/share/bash-completion/completions/booking",
    "source <(booking completion bash)",
    "booking completion fish > ~/.config/fish/completions/booking.fish",
)
def completion(
    ctx: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS), parser=one_of(*SHELLS), help="The shell.")],
) -> None:
    """Print a script that completes commands, options and values in a shell."""
    cli: Cli = ctx.obj
    if cli.render.is_json:
        cli.render.one({"shell": shell, "script": SCRIPTS[shell]})
    else:
        cli.render.text(SCRIPTS[shell].rstrip("\n"))


def print_candidates(root: Any, words: Sequence[str], *, with_help: bool) -> None:
    """Print the candidates for the last word."""
    for candidate, summary in candidates(root, words):
        sys.stdout.write(f"{candidate}\t{summary}\n" if with_help and summary else f"{candidate}\n")


def candidates(root: Any, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the candidates for the last word, with their descriptions."""
    *before, prefix = words or [""]
    current, ctx, option = root, root.context_class(root, info_name="booking"), None
    for word in before:
        if option is not None:
            option = None
        elif word.startswith("-"):
            option = _option_with_value(current, ctx, word)
        elif hasattr(current, "get_command"):
            current = current.get_command(ctx, word)
            if current is None:
                return
    if option is not None:
        values = _values(option)
    elif prefix.startswith("-"):
        values = _options(current, ctx)
    elif hasattr(current, "list_commands"):
        values = current.summaries(ctx)
    else:
        values = (value for param in _arguments(current, ctx) for value in _values(param))
    yield from ((name, summary) for name, summary in values if name.startswith(prefix))


def _option_with_value(current: Any, ctx: Any, word: str) -> Any:
    """Return the option if its value is the next word."""
    if "=" in word:
        return None
    for param in current.get_params(ctx):
        if word in param.opts and not getattr(param, "is_flag", False) and not getattr(param, "count", False):
            return param
    return None


def _options(current: Any, ctx: Any) -> Iterator[tuple[str, str]]:
    for param in current.get_params(ctx):
        for name in (*param.opts, *param.secondary_opts):
            if name.startswith("--"):
                yield name, (param.help or "").rstrip(".")


def _arguments(current: Any, ctx: Any) -> Iterator[Any]:
    return (param for param in current.get_params(ctx) if param.param_type_name == "argument")


def _values(param: Any) -> Iterator[tuple[str, str]]:
    """Yield the choices of a metavar such as a|b|c, or the words of a metavar in WORDS."""
    metavar = (param.metavar or "").strip("[].")
    if words := WORDS.get(metavar):
        yield from ((value, "") for value in words())
    elif "|" in metavar and not set(metavar) & set(" @<"):
        yield from ((value, "") for value in metavar.split("|"))


def _topics() -> Sequence[str]:
    from booking_cli.commands.help import TOPICS
    from booking_cli.commands.registry import MODULES

    return (*TOPICS, *MODULES)


def _settings() -> Sequence[str]:
    from booking_cli.commands.config import SETTINGS

    return SETTINGS


def _scopes() -> Sequence[str]:
    from booking_cli.commands.keys import SCOPES

    return SCOPES


WORDS: Mapping[str, Callable[[], Sequence[str]]] = {
    "TYPE": lambda: event_types.WORDS,
    "TOPIC": _topics,
    "SCOPE": _scopes,
    "SETTING": _settings,
}
"""The candidates for a metavar, such as event types for TYPE."""
