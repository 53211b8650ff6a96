"""How a command is declared: every group and command takes the global options, and shows examples in its help.

Help is plain text, so that it reads the same in a pipe and loads nothing; a group's module is imported when it is
used. Nothing here, and nothing at the head of a group's module, imports the library behind the command.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from booking_cli._version import __version__
from booking_cli.framework import context, gc_tuning
from booking_cli.framework.arguments import one_of
from booking_cli.framework.output import COLORS, FORMATS

_PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}

F = TypeVar("F", bound=Callable[..., Any])


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(part.strip() for part in text.split(","))
    if not all(paths):
        raise typer.BadParameter("write field names separated by commas, such as id,price.amount_minor")
    return paths


def _same(value: Any) -> Any:
    return value


def _remember(parse: Callable[[Any], Any]) -> Callable[..., None]:
    def callback(ctx: Any, param: Any, value: Any) -> None:
        if value:
            setattr(context.of(ctx).options, param.name, parse(value))

    return callback


def _global(*names: str, help: str, parse: Callable[[Any], Any] = _same, **kind: Any) -> TyperOption:  # noqa: A002
    return TyperOption(
        param_decls=list(names), help=help, callback=_remember(parse), expose_value=False, is_eager=True, **kind
    )


def _show_version(ctx: Any, param: Any, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        typer.echo(f"booking {__version__}")
        raise typer.Exit


def _global_options() -> list[Any]:
    return [
        _global("-o", "--output", metavar="|".join(FORMATS), parse=one_of(*FORMATS), help="How results are written."),
        _global("--json", is_flag=True, help="Short for --output json."),
        _global("--fields", metavar="a,b.c", parse=_paths, help="Only these fields."),
        _global("--color", metavar="|".join(COLORS), parse=one_of(*COLORS), help="Overrides NO_COLOR."),
        _global("-q", "--quiet", is_flag=True, help="No notes on stderr."),
        _global("-v", "--verbose", count=True, type=int, help="More notes on stderr."),
        _global("--debug", is_flag=True, help="Show the traceback of an error."),
        _global("--no-progress", is_flag=True, help="No progress bars."),
        _global("--yes", is_flag=True, help="Answer yes to every question."),
        _global("--profile", metavar="NAME", help="Which login to use; else BOOKING_PROFILE."),
        _global("--base-url", metavar="URL", help="The service's root; else BOOKING_BASE_URL."),
        _global("--api-key-stdin", is_flag=True, help="The API key is the first line of stdin."),
        TyperOption(
            param_decls=["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version and exit.",
        ),
    ]


def _sections(command: Any, ctx: Any, formatter: Any) -> None:
    """Writes a command's help: its own arguments and options first, the global ones last."""
    shown: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Global options": []}
    for param in command.get_params(ctx):
        title = "Arguments" if param.param_type_name == "argument" else "Options"
        record = param.get_help_record(ctx)
        if record is not None:
            shown[title if param in command.own_params else "Global options"].append(record)
    for title in ("Arguments", "Options"):
        _section(formatter, title, shown[title])
    if command.examples:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in command.examples))
    _section(formatter, "Global options", shown["Global options"])


def _section(formatter: Any, title: str, records: list[tuple[str, str]]) -> None:
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


@dataclass(frozen=True, slots=True)
class Written:
    """What a command writes, and whether it changes something first."""

    shape: str | None = None
    changes: bool = False


_DECLARED = "booking_written"
"""The attribute of a command's function that holds it; Typer keeps it on the function that it makes of this one."""


def _check_text(ctx: Any, params: Iterable[Any]) -> None:
    """Refuse arguments whose bytes are no UTF-8. Python gives them as lone surrogates, which neither a database nor
    JSON takes; a path may hold any bytes.

    Raises:
        BadParameter: naming the argument.
    """
    for param in params:
        value = ctx.params.get(param.name)
        texts = value if isinstance(value, list | tuple) else (value,)
        if param.type.name != "path" and any(isinstance(text, str) and _is_cut(text) for text in texts):
            raise typer.BadParameter("this is not valid UTF-8.", ctx=ctx, param=param)


def _is_cut(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


class Command(TyperCommand):
    """A command that takes the global options."""

    def __init__(self, name: str | None, *, epilog: str | None = None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.examples = (epilog or "").splitlines()
        self.own_params = list(self.params)
        self.params.extend(_global_options())

    def invoke(self, ctx: Any) -> Any:
        gc_tuning.end()
        _check_text(ctx, self.own_params)
        declared: Written = getattr(self.callback, _DECLARED, Written())
        context.of(ctx).render.expect(declared.shape, checked=declared.changes)
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _sections(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands that takes the global options."""

    examples: tuple[str, ...] = ()

    def __init__(self, *, name: str | None = None, **settings: Any) -> None:
        super().__init__(name=name, **settings)
        self.own_params = list(self.params)
        self.params.extend(_global_options())

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _section(formatter, "Commands", list(self.summaries(ctx)))
        _sections(self, ctx, formatter)

    def summaries(self, ctx: Any) -> Iterable[tuple[str, str]]:
        """Each command and the first line of its help."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            yield name, ((command and command.help) or "").partition("\n")[0]


class Listed(Group):
    """A group whose commands are loaded when they are used, and listed without being loaded.

    Each stands with the module whose `app` it is, or is among, and with its line in the list.
    """

    def __init__(self, modules: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._modules = modules
        self.commands = dict.fromkeys(modules)  # type: ignore[assignment]  # what typing errors are compared with

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self._modules:
            return None
        module, _ = self._modules[cmd_name]
        command = _built(importlib.import_module(module).app, cmd_name)
        command.name = cmd_name
        return command

    def summaries(self, ctx: Any) -> Iterable[tuple[str, str]]:
        return ((name, line) for name, (_, line) in self._modules.items())


def _built(app: Any, name: str) -> Any:
    """The group or the command that an `app` is; of several commands the one of that name, and no other is built."""
    if isinstance(app, Listed):
        return app
    if app.registered_callback is None and len(app.registered_commands) > 1:
        alone = single()
        alone.registered_commands = [each for each in app.registered_commands if each.name == name]
        return typer.main.get_command(alone)
    return typer.main.get_command(app)


class Root(Listed):
    """The command itself, whose list is divided into sections."""

    def __init__(
        self, modules: Mapping[str, tuple[str, str]], sections: Mapping[str, Sequence[str]], **settings: Any
    ) -> None:
        super().__init__(modules, name="booking", **settings)
        self._sections = sections

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, names in self._sections.items():
            _section(formatter, title, [(name, self._modules[name][1]) for name in names])
        _sections(self, ctx, formatter)


def group(help: str) -> typer.Typer:  # noqa: A002 - the word of the library
    """An empty group of commands."""
    app = typer.Typer(cls=Group, help=help, no_args_is_help=True, **_PLAIN)
    app.callback()(lambda: None)  # also a group of one command is a group
    return app


def single() -> typer.Typer:
    """A place for one command that is no group."""
    return typer.Typer(**_PLAIN)


def several() -> typer.Typer:
    """A place for commands that a `Listed` group takes from here one at a time."""
    return typer.Typer(**_PLAIN)


def command(
    app: typer.Typer, name: str, *examples: str, shape: str | None = None, changes: bool = False
) -> Callable[[F], F]:
    """Declare a command of the group.

    Args:
        examples: lines for its help.
        shape: what it writes, a name of `shapes`; `--fields` is checked against it.
        changes: it changes something, so that `--fields` is checked before it begins.
    """

    def declare(function: F) -> F:
        setattr(function, _DECLARED, Written(shape, changes))
        return app.command(name, cls=Command, epilog="\n".join(examples))(function)

    return declare
