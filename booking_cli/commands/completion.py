"""`booking completion`: what a shell asks when Tab is pressed, and the few lines that teach it to ask.

The shell runs the command itself, with the words so far as its arguments and `BOOKING_COMPLETE` in the environment;
what may come next is printed, a candidate a line.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from booking_cli.framework import context, event_types
from booking_cli.framework.arguments import one_of
from booking_cli.framework.command import command, single

VARIABLE = "BOOKING_COMPLETE"
"""Set by the scripts: `words`, or `described` where the shell shows what a candidate is."""

app = single()

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
    shell: Annotated[
        str, typer.Argument(metavar="|".join(SHELLS), parser=one_of(*SHELLS), help="Whose script to write.")
    ],
) -> None:
    """Writes the script that makes Tab complete commands, options and their values."""
    cli = context.of(ctx)
    if cli.render.is_json:
        cli.render.one({"shell": shell, "script": SCRIPTS[shell]})
    else:
        cli.render.text(SCRIPTS[shell].rstrip("\n"))


# The answer to Tab -----------------------------------------------------------------------------------------------


def answer(root: Any, words: Sequence[str], *, described: bool) -> None:
    """Prints what may stand where the last of the words begins."""
    for candidate, summary in candidates(root, words):
        sys.stdout.write(f"{candidate}\t{summary}\n" if described and summary else f"{candidate}\n")


def candidates(root: Any, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What may stand there, with what it is; nothing where only the user knows."""
    *before, begun = words or [""]
    current, ctx, pending = root, root.context_class(root, info_name="booking"), None
    for word in before:
        if pending is not None:
            pending = None
        elif word.startswith("-"):
            pending = _valued(current, ctx, word)
        elif hasattr(current, "get_command"):
            current = current.get_command(ctx, word)
            if current is None:
                return
    if pending is not None:
        found = _values(pending)
    elif begun.startswith("-"):
        found = _options(current, ctx)
    elif hasattr(current, "list_commands"):
        found = current.summaries(ctx)
    else:
        found = (value for param in _arguments(current, ctx) for value in _values(param))
    yield from ((name, summary) for name, summary in found if name.startswith(begun))


def _valued(current: Any, ctx: Any, word: str) -> Any:
    """The option of that name, when a value follows it."""
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
    """Yield the values that the help names as the only ones, a|b|c, and the words of well-known metavars."""
    metavar = (param.metavar or "").strip("[].")
    if words := WORDS.get(metavar):
        yield from ((value, "") for value in words())
    elif "|" in metavar and not set(metavar) & set(" @<"):
        yield from ((value, "") for value in metavar.split("|"))


def _topics() -> Sequence[str]:
    from booking_cli.commands import help as pages
    from booking_cli.main import MODULES

    return (*pages.TOPICS, *MODULES)


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
"""What stands for a metavar: event types for TYPE."""
