"""Declare groups and commands: Typer's, with global options, examples in the help and lazy imports.

    app = command_group("Manage API keys.")

    @command(app, "list", shape="key")
    def list_(cli: Cli, org: Org) -> None: ...

Help is plain text: Rich is not imported for it. A group's module is imported when the group is used. Neither this
module nor the top of a group's module imports booking_core, booking_server or booking_sdk.
"""

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache, wraps
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from booking_cli._version import __version__
from booking_cli.framework.arguments import OFFERED, one_of
from booking_cli.framework.context import resume_collections
from booking_cli.framework.errors import CliError
from booking_cli.framework.formatting import BOLD, PLAIN, wants_color
from booking_cli.framework.output import COLORS, FORMATS
from booking_cli.framework.typer_parts import CompletionItem, MissingParameter, UsageError

_PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}

F = TypeVar("F", bound=Callable[..., Any])


def _parse_fields(text: str) -> tuple[str, ...]:
    paths = tuple(part.strip() for part in text.split(","))
    if not all(paths):
        raise typer.BadParameter("write field names separated by commas, such as id,price.amount_minor")
    return paths


_GLOBAL: dict[str, Any] = {"expose_value": False, "is_eager": True, "show_default": False}


def _global(*names: str, help: str, parse: Callable[[Any], Any] | None = None, **settings: Any) -> Any:  # noqa: A002
    """Return an option that is stored in `Cli.options` rather than passed to the command."""
    words = getattr(parse, OFFERED, ())

    def callback(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> None:
        if value:
            setattr(ctx.obj.options, param.name or "", parse(value) if parse else value)

    settings = _GLOBAL | settings | {"help": help, "callback": callback, "autocompletion": lambda: words}
    return typer.Option(*names, **settings)


def _show_version(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        typer.echo(f"booking {__version__}")
        raise typer.Exit


def _declare_global_options(
    output: Annotated[
        str | None,
        _global("-o", "--output", metavar="|".join(FORMATS), parse=one_of(*FORMATS), help="Output format."),
    ] = None,
    json: Annotated[bool, _global("--json", help="Same as --output json.")] = False,
    fields: Annotated[
        str | None, _global("--fields", metavar="a,b.c", parse=_parse_fields, help="Output only these fields.")
    ] = None,
    color: Annotated[
        str | None,
        _global("--color", metavar="|".join(COLORS), parse=one_of(*COLORS), help="Use colors; overrides NO_COLOR."),
    ] = None,
    quiet: Annotated[bool, _global("-q", "--quiet", help="Print no notes on stderr.")] = False,
    verbose: Annotated[int, _global("-v", "--verbose", count=True, help="Print more notes on stderr.")] = 0,
    debug: Annotated[bool, _global("--debug", help="Print the traceback of an error.")] = False,
    no_progress: Annotated[bool, _global("--no-progress", help="Show no progress bars.")] = False,
    yes: Annotated[bool, _global("--yes", help="Answer yes to every question.")] = False,
    profile: Annotated[
        str | None, _global("--profile", metavar="NAME", help="Profile to use; overrides BOOKING_PROFILE.")
    ] = None,
    base_url: Annotated[
        str | None,
        _global("--base-url", metavar="URL", help="Base URL of the service; overrides BOOKING_BASE_URL."),
    ] = None,
    api_key_stdin: Annotated[bool, _global("--api-key-stdin", help="Read the API key from stdin.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="Show the version and exit.", **_GLOBAL)
    ] = False,
) -> None:
    """Declare the options of every command and group."""


@cache
def _global_options() -> tuple[Any, ...]:
    """Return the options of every command and group. They hold nothing of a call, and are the same objects in each."""
    app = command_app()
    app.command()(_declare_global_options)
    return tuple(typer.main.get_command(app).params)


def global_options(ctx: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and the meaning of each option of every command."""
    for param in (*_global_options(), ctx.command.get_help_option(ctx)):
        if record := param.get_help_record(ctx):
            yield record


def _write_sections(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the sections of a help page: arguments and options of the command, examples, a line on global options."""
    records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.own_params:
        record = param.get_help_record(ctx)
        if record is not None:
            records["Arguments" if param.param_type_name == "argument" else "Options"].append(record)
    for title in ("Arguments", "Options"):
        _write_section(formatter, title, records[title])
    if command.examples:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in command.examples))
    formatter.write(f"\n{GLOBAL_OPTIONS}\n")


def _write_section(formatter: Any, title: str, records: list[tuple[str, str]]) -> None:
    is_bold = all(wants_color(stream, "auto") for stream in (sys.stdout, sys.stderr))
    if records:
        with formatter.section(f"{BOLD}{title}{PLAIN}" if is_bold else title):
            formatter.write_dl(records)


GLOBAL_OPTIONS = "Global options: --json, --fields, -q, --yes and more; see booking help options"
"""The last line of each help page."""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The shape of a command's output, and whether the command changes something before it writes."""

    shape: str | None = None
    changes: bool = False


_EXAMPLES = "\n\nExamples:\n"
OUTPUT_SPEC = "booking_output"
"""The attribute of a command's function that holds its OutputSpec. Typer keeps it on its wrapper of the function."""


def _check_utf8(ctx: Any, params: Iterable[Any]) -> None:
    """Refuse arguments that are not UTF-8. Python gives their bytes as lone surrogates, which neither a database nor
    JSON takes. A path may hold any bytes.

    Raises:
        BadParameter: names the argument.
    """
    for param in params:
        value = ctx.params.get(param.name)
        texts = value if isinstance(value, list | tuple) else (value,)
        if param.type.name != "path" and any(isinstance(text, str) and _has_surrogates(text) for text in texts):
            raise typer.BadParameter("this is not valid UTF-8.", ctx=ctx, param=param)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


class CliCommand(TyperCommand):
    """A command that takes the global options."""

    def __init__(self, name: str | None, *, epilog: str | None = None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.examples = (epilog or "").splitlines()
        self.own_params = list(self.params)
        self.params.extend(_global_options())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except MissingParameter:
            raise self._missing(ctx) from None
        except UsageError as error:
            error.ctx = error.ctx or ctx  # the parser's own errors have none, and the hint names the command
            raise

    def _missing(self, ctx: Any) -> CliError:
        """Return the error for the required parameters that were not given. Typer's names only the first of them."""
        hints: dict[str, list[str]] = {"argument": [], "option": []}
        for param in self.own_params:
            if param.required and param.name not in ctx.params:  # those that were given are parsed first
                hints[param.param_type_name].append(param.get_error_hint(ctx))
        parts = [f"{kind}{'s' * (len(names) > 1)} {', '.join(names)}" for kind, names in hints.items() if names]
        path = ctx.command_path
        hint = f"for example: {self.full_example}; all options: {path} --help"
        return CliError(f"Missing {' and '.join(parts)}.", hint=hint)

    @property
    def full_example(self) -> str:
        """Return the first example that has each required option, on one line and without its remark."""
        required_options = [
            param.opts[0] for param in self.own_params if param.required and param.param_type_name == "option"
        ]
        examples = re.sub(r" \\\n +", " ", "\n".join(self.examples)).splitlines()
        full = (line for line in examples if all(re.search(rf" {option}\b", line) for option in required_options))
        return next(full, examples[0]).partition("     (")[0]

    def invoke(self, ctx: Any) -> Any:
        resume_collections()
        _check_utf8(ctx, self.own_params)
        spec: OutputSpec = getattr(self.callback, OUTPUT_SPEC, OutputSpec())
        ctx.obj.render.set_shape(spec.shape, check_now=spec.changes)
        if spec.changes and not ctx.params.get("dry_run"):
            ctx.obj.action = ".".join(ctx.command_path.split()[1:])
            ctx.obj.arguments = {
                param.name: ctx.params.get(param.name)
                for param in self.own_params
                if param.param_type_name == "argument"
            }
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_sections(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands that takes the global options."""

    examples: tuple[str, ...] = ()

    def __init__(self, *, name: str | None = None, **settings: Any) -> None:
        super().__init__(name=name, **settings)
        self.own_params = list(self.params)
        self.params.extend(_global_options())

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_section(formatter, "Commands", list(self.summaries(ctx)))
        _write_sections(self, ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[CompletionItem]:
        """Return the candidates of completion. Typer would import every command of a lazy group."""
        candidates = [
            CompletionItem(name, help=line) for name, line in self.summaries(ctx) if name.startswith(incomplete)
        ]
        return [*candidates, *TyperCommand.shell_complete(self, ctx, incomplete)]

    def summaries(self, ctx: Any) -> Iterable[tuple[str, str]]:
        """Yield the name of each command and the first line of its help."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            yield name, ((command and command.help) or "").partition("\n")[0]


class LazyGroup(Group):
    """A group that imports the module of a command when the command is used, and lists it without the import.

    Args:
        modules: for each command the module of its `app`, and its line in the list.
    """

    def __init__(self, modules: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._modules = modules
        self.commands = dict.fromkeys(modules)  # type: ignore[assignment]  # used to suggest a mistyped command

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self._modules:
            return None
        module, _ = self._modules[cmd_name]
        command = _build(importlib.import_module(module).app, cmd_name)
        command.name = cmd_name
        return command

    def summaries(self, ctx: Any) -> Iterable[tuple[str, str]]:
        return ((name, line) for name, (_, line) in self._modules.items())


@cache
def _build(app: Any, name: str) -> Any:
    """Return the group or the command of an `app`. Of several commands only the named one is built.

    Building takes longer than most commands, and the result holds nothing of a call: once for a process is enough.
    """
    if isinstance(app, LazyGroup):
        return app
    if app.registered_callback is None and len(app.registered_commands) > 1:
        alone = command_app()
        alone.registered_commands = [command for command in app.registered_commands if command.name == name]
        return typer.main.get_command(alone)
    return typer.main.get_command(app)


class RootGroup(LazyGroup):
    """The `booking` command itself, whose help is a map of the commands that are used most."""

    def __init__(
        self, modules: Mapping[str, tuple[str, str]], sections: Mapping[str, Sequence[str]], **settings: Any
    ) -> None:
        super().__init__(modules, name="booking", **settings)
        self._sections = sections

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, names in self._sections.items():
            _write_section(formatter, title, [(f"{name:<12}", self._modules[name][1]) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write(self.epilog or "")


def command_group(help: str) -> typer.Typer:  # noqa: A002 - Typer's name
    """Return a Typer app for a group of commands."""
    app = typer.Typer(cls=Group, help=help, no_args_is_help=True, **_PLAIN)
    app.callback()(lambda: None)  # keeps a group of one command a group
    return app


def default_group(help: str) -> typer.Typer:  # noqa: A002 - Typer's name
    """Return a Typer app for a group of commands whose callback, which the caller adds, runs without a command too."""
    return typer.Typer(cls=Group, help=help, invoke_without_command=True, **_PLAIN)


def command_app() -> typer.Typer:
    """Return a Typer app for one command, or for commands that a `LazyGroup` takes one at a time."""
    return typer.Typer(**_PLAIN)


def command(app: typer.Typer, name: str, *, shape: str | None = None, changes: bool = False) -> Callable[[F], F]:
    """Declare a command, as Typer's `app.command` does. Its docstring is the help, and may end in `Examples:`.

    Args:
        shape: the shape of the output, a name of `output_fields`, against which `--fields` is checked.
        changes: the command changes something, and `--fields` is checked before it runs.
    """

    def declare(function: F) -> F:
        text, _, listed = inspect.cleandoc(function.__doc__ or "").partition(_EXAMPLES)
        run = _with_context(function)
        setattr(run, OUTPUT_SPEC, OutputSpec(shape, changes))
        app.command(name, cls=CliCommand, help=text, epilog=textwrap.dedent(listed))(run)
        return function

    return declare


def _with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the signature that Typer needs: its context for `cli`, and each option of a dataclass."""
    parameters = inspect.signature(function).parameters
    if "cli" not in parameters:
        return function
    annotations: dict[str, Any] = {name: parameter.annotation for name, parameter in parameters.items()}
    groups: dict[str, Any] = {name: kind for name, kind in annotations.items() if is_dataclass(kind)}
    options = {name: inspect.signature(group).parameters for name, group in groups.items()}

    @wraps(function)
    def run(ctx: typer.Context, **arguments: Any) -> Any:
        for name, group in groups.items():
            arguments[name] = group(**{option: arguments.pop(option) for option in options[name]})
        return function(ctx.obj, **arguments)

    new_parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for name, parameter in list(parameters.items())[1:]:
        new_parameters += options[name].values() if name in options else [parameter]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in new_parameters]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return run


class Leaf(NamedTuple):
    """A command that can be run."""

    words: tuple[str, ...]
    command: Any

    @property
    def summary(self) -> str:
        return (self.command.help or "").partition("\n")[0]


def leaves(group: Any, ctx: Any, words: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield every command below a group, in the order of the help."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if hasattr(command, "list_commands"):
            yield from leaves(command, ctx, (*words, name))
        else:
            yield Leaf((*words, name), command)
