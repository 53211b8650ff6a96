"""The reference of the SDK and of `webhook_verify`, generated from their public names and docstrings."""

import inspect
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

import booking_sdk
import booking_sdk.testing
import webhook_verify
import webhook_verify.testing
from booking_sdk import AsyncBookingClient, BookingClient
from docsite.docstrings import attributes, described, signature
from docsite.markdown import code, page, slug, table

FOLDER = "reference/sdk"
_OURS = ("booking_", "webhook_verify")
VERIFY = "reference/webhook-verify.md"
_MODELS = f"{FOLDER}/models.md"


class Reference:
    """The pages of the SDK's reference."""

    def __init__(self) -> None:
        with BookingClient("svc_" + "0" * 40, base_url="http://127.0.0.1:8000") as client:
            self.resources = dict(_resources(client))
        self.public = {name: getattr(booking_sdk, name) for name in booking_sdk.__all__}

    def pages(self) -> dict[str, str]:
        """Return the text of every page by its path."""
        pages = {f"{FOLDER}/index.md": self._client()}
        for name, kind in self.resources.items():
            pages[f"{FOLDER}/{slug(name)}.md"] = page(
                f"client.{name}",
                described(kind),
                *_methods(kind, f"client.{name}"),
                description=f"The methods of `client.{name}` in the Python SDK.",
            )
        return pages | {
            f"{FOLDER}/errors.md": self._errors(),
            _MODELS: self._models(),
            f"{FOLDER}/helpers.md": self._helpers(),
            f"{FOLDER}/testing.md": _module("booking_sdk.testing", booking_sdk.testing),
            VERIFY: _module("webhook_verify", webhook_verify, ("webhook_verify.testing", webhook_verify.testing)),
        }

    def nav(self) -> list[Any]:
        """Return the navigation of the reference."""
        resources = [{f"client.{name}": f"{FOLDER}/{slug(name)}.md"} for name in self.resources]
        return [
            f"{FOLDER}/index.md",
            *resources,
            {"Models": _MODELS},
            {"Errors": f"{FOLDER}/errors.md"},
            {"Options and helpers": f"{FOLDER}/helpers.md"},
            {"booking_sdk.testing": f"{FOLDER}/testing.md"},
        ]

    def _client(self) -> str:
        rows = [
            (f"[client.{name}]({slug(name)}.md)", ", ".join(code(each) for each, _ in _functions(kind)))
            for name, kind in self.resources.items()
        ]
        return page(
            "Python SDK",
            "These pages are generated from the docstrings of `booking_sdk`. They show the sync client;"
            f" `{AsyncBookingClient.__name__}` has the same names and arguments, and its methods are awaited.",
            table(("resource", "methods"), rows),
            "## BookingClient",
            signature(BookingClient.__init__, "BookingClient"),
            described(BookingClient),
            described(BookingClient.__init__),
            *_methods(BookingClient, "client"),
            description="The Python SDK, generated from its docstrings.",
        )

    def _errors(self) -> str:
        errors = [kind for kind in self.public.values() if inspect.isclass(kind) and issubclass(kind, Exception)]
        parts = []
        for kind in errors:
            bases = ", ".join(code(base.__name__) for base in kind.__bases__ if base is not Exception)
            parts.append(f"## {kind.__name__}\n\n" + (f"A subclass of {bases}.\n\n" if bases else "") + described(kind))
            parts.append(_attributes(kind))
        tree = inspect.getdoc(booking_sdk.errors) or ""
        return page("Errors", _indented_as_text(tree), *parts, description="Every exception that the SDK raises.")

    def _models(self) -> str:
        models = {name: kind for name, kind in self.public.items() if _is_model(kind)}
        enums = {name: kind for name, kind in self.public.items() if inspect.isclass(kind) and issubclass(kind, Enum)}
        parts = [f"## {name}\n\n{described(kind)}\n\n{_fields(kind)}" for name, kind in sorted(models.items())]
        values = [
            (code(name), ", ".join(code(str(each.value)) for each in kind)) for name, kind in sorted(enums.items())
        ]
        return page(
            "Models",
            "The models of results, events and inputs. They keep fields that are newer than the SDK.",
            *parts,
            "## Enums",
            table(("enum", "values"), values),
            description="The models and enums of the SDK.",
        )

    def _helpers(self) -> str:
        left = {
            name: thing
            for name, thing in self.public.items()
            if callable(thing)
            and thing not in (BookingClient, AsyncBookingClient)
            and name.removeprefix("Async") not in self.public.keys() - {name}
            and not (inspect.isclass(thing) and issubclass(thing, Exception | Enum | BaseModel))
        }
        return page(
            "Options and helpers",
            "Pages, paginators and feeds of the async client have the same names with the prefix `Async`; their"
            " methods are awaited.",
            *_things(left.items(), with_constructors=False),
            "## Types in signatures",
            table(("type", "one of"), self._types()),
            description="Functions, options, pages and metadata of the SDK.",
        )

    def _types(self) -> Iterator[tuple[str, str]]:
        """Yield the names of unions and literals, with their members."""
        for name, thing in sorted(self.public.items()):
            if get_origin(thing) in (Union, UnionType, Literal):
                yield code(name), ", ".join(map(code, _members(thing)))


def _members(union: Any) -> Iterator[str]:
    for member in get_args(union):
        if get_args(member):
            yield from _members(member)
        else:
            yield member.__name__ if inspect.isclass(member) else repr(member)


def _resources(client: BookingClient) -> Iterator[tuple[str, type]]:
    """Yield the resources of a client with their classes, in the order of their definition."""
    found = {name: thing for base in reversed(type(client).__mro__) for name, thing in vars(base).items()}
    for name, thing in found.items():
        if not name.startswith("_") and not inspect.isfunction(inspect.unwrap(thing)):
            yield name, type(getattr(client, name))


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _module(name: str, module: ModuleType, *others: tuple[str, ModuleType]) -> str:
    names = getattr(module, "__all__", [each for each in vars(module) if not each.startswith("_")])
    parts = [*_things((each, getattr(module, each)) for each in names)]
    for other, inner in others:
        functions = [
            (each, thing)
            for each, thing in vars(inner).items()
            if inspect.isfunction(thing) and thing.__module__ == inner.__name__ and not each.startswith("_")
        ]
        parts += [f"## {other}", _first_line(inner), *_things(functions, "###")]
    return page(name, _first_line(module), *parts, description=f"The module `{name}`, from its docstrings.")


def _first_line(module: ModuleType) -> str:
    return (inspect.getdoc(module) or "").partition("\n\n")[0]


def _things(things: Iterable[tuple[str, Any]], heading: str = "##", *, with_constructors: bool = True) -> Iterator[str]:
    """Yield classes and functions; other values have no docstring to show."""
    for name, thing in things:
        if not getattr(thing, "__module__", "").startswith(_OURS):
            continue
        if inspect.isclass(thing):
            yield f"{heading} {name}\n\n{described(thing)}"
            if with_constructors and "__init__" in vars(thing) and not issubclass(thing, Exception):
                yield signature(thing.__init__, name) + "\n" + described(thing.__init__)
            if issubclass(thing, Enum):
                yield table(("value",), [(code(str(each.value)),) for each in thing])
            yield _attributes(thing)
            yield from _methods(thing, name, heading + "#")
        elif inspect.isfunction(inspect.unwrap(thing)):
            yield f"{heading} {name}\n\n{signature(thing, name)}\n{described(thing)}"


def _functions(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a class, beginning with the methods of its bases in our packages."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith(_OURS):
            found |= vars(base)
    for name, thing in found.items():
        function = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        if not name.startswith("_") and inspect.isfunction(inspect.unwrap(function)):
            yield name, function


def _methods(kind: type, prefix: str, heading: str = "##") -> Iterator[str]:
    for name, function in _functions(kind):
        anchor = f"{prefix.removeprefix('client.')}.{name}".lower().replace(".", "-").replace("_", "-")
        yield f"{heading} {name} {{ #{anchor} }}\n\n{signature(function, f'{prefix}.{name}')}\n{described(function)}"


def _attributes(kind: type) -> str:
    rows = [(code(name), code(annotation), doc) for name, (annotation, doc) in attributes(kind).items()]
    for name, thing in vars(kind).items():
        if isinstance(thing, property) and not name.startswith("_"):
            rows.append((code(name), "property", " ".join((inspect.getdoc(thing) or "").split())))
    return table(("attribute", "type", "meaning"), rows)


def _fields(kind: type[BaseModel]) -> str:
    annotated = attributes(kind)
    rows = []
    for name, info in kind.model_fields.items():
        annotation, doc = annotated.get(name, (str(info.annotation), ""))
        kind_of = code(_plain_type(annotation)) + ("" if info.is_required() else ", optional")
        rows.append((code(name), kind_of, info.description or doc))
    return table(("field", "type", "meaning"), rows)


def _plain_type(annotation: str) -> str:
    """Return a type without the names that only describe its validation."""
    annotation = re.sub(r"\bOpen\[(\w+), \w+\]", r"\1 | str", annotation)
    return re.sub(r"\b(?:Id|LineId)\b", "str", annotation).replace("AwareDatetime", "datetime")


def _indented_as_text(text: str) -> str:
    return described(type("Page", (), {"__doc__": text}))
