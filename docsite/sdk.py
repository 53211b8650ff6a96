"""The references of the SDK and of `webhook_verify`: mkdocstrings renders the docstrings of the names on each page."""

import inspect
import re
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import griffe
from pydantic import BaseModel

import booking_sdk
import booking_sdk.testing
import webhook_verify
import webhook_verify.testing
from booking_sdk import AsyncBookingClient, BookingClient
from docsite.markdown import code, page, table

FOLDER = "docs/reference/sdk"
VERIFY = "docs/reference/webhook-verify.md"
_CLIENT = (
    "These pages are generated from the docstrings of `booking_sdk`. They show the sync client;"
    f" `{AsyncBookingClient.__name__}` has the same names and arguments, and its methods are awaited."
)
_OWN_MEMBERS = "\n    options:\n      inherited_members: false"
_MODELS = "The models of results, events and inputs. They keep fields that are newer than the SDK."
_OTHERS = (
    "Pages, paginators and feeds of the async client have the same names with the prefix `Async`; their methods are"
    " awaited."
)


def pages() -> dict[str, str]:
    """Return the text of every page by its path."""
    public = {name: getattr(booking_sdk, name) for name in booking_sdk.__all__ if not name.startswith(("Async", "__"))}
    errors = [name for name, value in public.items() if _is_a(value, Exception)]
    models = [name for name, value in public.items() if _is_a(value, BaseModel)]
    others = [name for name in public if name not in {*errors, *models, BookingClient.__name__}]
    tree = inspect.getdoc(booking_sdk.errors) or ""
    testing = booking_sdk.testing
    return {
        f"{FOLDER}/index.md": page("Python SDK", _CLIENT, *_described(booking_sdk, [BookingClient.__name__])),
        **{f"{FOLDER}/{name}.md": page(f"client.{name}", f"::: {kind}") for name, kind in resources().items()},
        f"{FOLDER}/models.md": page("Models", _MODELS, *_model_tables(models)),
        f"{FOLDER}/errors.md": page("Errors", tree, *_described(booking_sdk, errors, _OWN_MEMBERS)),
        f"{FOLDER}/helpers.md": page("Options and helpers", _OTHERS, *_described(booking_sdk, others)),
        f"{FOLDER}/testing.md": page(testing.__name__, *_described(testing, testing.__all__)),
        VERIFY: page(
            webhook_verify.__name__,
            *_described(webhook_verify, webhook_verify.__all__),
            f"::: {webhook_verify.testing.__name__}",
        ),
    }


def resources() -> dict[str, str]:
    """Return the classes of a client's resources by the names of its properties, in the order of their definition."""
    with BookingClient("svc_" + "0" * 40, base_url="http://127.0.0.1:8000") as client:
        names = [name for kind in reversed(BookingClient.__mro__) for name in vars(kind) if not name.startswith("_")]
        kinds = {name: type(getattr(client, name)) for name in names}
    return {
        name: f"{kind.__module__}.{kind.__name__}" for name, kind in kinds.items() if "resources" in kind.__module__
    }


def _is_a(value: Any, kind: type) -> bool:
    return inspect.isclass(value) and issubclass(value, kind)


def _described(module: ModuleType, names: Iterable[str], options: str = "") -> list[str]:
    """Return the directives that mkdocstrings replaces by the docstrings of these names."""
    return [f"::: {module.__name__}.{name}{options}" for name in names]


def _model_tables(names: Iterable[str]) -> Iterator[str]:
    """Yield the models with their fields as tables; mkdocstrings would render each field under a heading."""
    package = griffe.load(booking_sdk.__name__, resolve_aliases=True, resolve_external=True)
    for name in names:
        model, fields = package[name], getattr(booking_sdk, name).model_fields
        rows = [
            (
                code(field.name),
                code(_plain_type(str(field.annotation))),
                field.docstring.value if field.docstring else "",
            )
            for field in model.all_members.values()
            if field.name in fields
        ]
        yield f"## {name}"
        yield model.docstring.value if model.docstring else ""
        yield table(("field", "type", "meaning"), rows)


def _plain_type(annotation: str) -> str:
    """Return a type without the names that only describe its validation."""
    annotation = re.sub(r"\bOpen\[(\w+), \w+\]", r"\1 | str", annotation)
    return re.sub(r"\b(?:Id|LineId)\b", "str", annotation).replace("AwareDatetime", "datetime")
