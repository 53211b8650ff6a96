"""Docstrings and signatures of Python objects as Markdown."""

import ast
import copy
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docsite.markdown import code, fence, table

_SECTION = re.compile(r"^(Args|Raises|Returns|Yields|Attributes):$", re.MULTILINE)
_HEADS = {"Args": "parameter", "Raises": "error", "Attributes": "attribute"}
_TITLES = {
    "Args": "Parameters",
    "Raises": "Raises",
    "Returns": "Returns",
    "Yields": "Yields",
    "Attributes": "Attributes",
}
_LINE_LENGTH = 88


def described(thing: Any) -> str:
    """Return the docstring of an object: prose unchanged, sections as tables."""
    text = own_doc(thing)
    head, *pieces = _SECTION.split(text)
    parts = [examples(head.strip())]
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        entries = list(_entries(body))
        rows = [(code(term), text) for term, text in entries if term]
        prose = " ".join(text for term, text in entries if not term)
        parts.append(f"**{_TITLES[name]}**\n\n" + (table((_HEADS.get(name, ""), "meaning"), rows) or prose))
    return "\n\n".join(part for part in parts if part)


def own_doc(thing: Any) -> str:
    """Return the docstring that is written for an object, and not one that Python or pydantic generated."""
    text = thing.__dict__.get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", "")
    text = inspect.cleandoc(text or "")
    return "" if inspect.isclass(thing) and text.startswith(f"{thing.__name__}(") else text


def examples(text: str) -> str:
    """Return prose with indented blocks as blocks of Python, or as text if they contain no code."""
    parts: list[tuple[bool, list[str]]] = []
    for line in text.split("\n"):
        is_block = line.startswith("    ") or (not line.strip() and bool(parts) and parts[-1][0])
        if not parts or parts[-1][0] != is_block:
            parts.append((is_block, []))
        parts[-1][1].append(line)
    return "\n\n".join(_block(lines) if is_block else "\n".join(lines).strip() for is_block, lines in parts)


def _block(lines: list[str]) -> str:
    block = textwrap.dedent("\n".join(lines)).strip("\n")
    return fence(block, "python" if _is_python(block) else "text").strip()


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return "await " in text
    return True


def _entries(body: str) -> Iterator[tuple[str, str]]:
    """Yield the terms of a section with their texts; a text without a term is prose."""
    term, lines = "", list[str]()
    for line in textwrap.dedent(body.strip("\n")).splitlines():
        if found := re.match(r"([*\w.]+): +(.*)", line):
            if term or lines:
                yield term, " ".join(lines)
            term, lines = found[1], [found[2]]
        elif line.strip():
            lines.append(line.strip())
    if term or lines:
        yield term, " ".join(lines)


def signature(function: Any, name: str) -> str:
    """Return a signature as in the source, without `self`."""
    node = _parsed(function)
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return fence(name, "python")
    arguments = copy.deepcopy(node.args)
    for group in (arguments.posonlyargs, arguments.args):
        if group and group[0].arg in ("self", "cls"):
            del group[0]
            break
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    returns = f" -> {_unquoted(ast.unparse(node.returns))}" if node.returns and node.name != "__init__" else ""
    each = [_unquoted(parameter) for parameter in _each(arguments)]
    flat = f"{prefix}{name}({', '.join(each)}){returns}"
    if len(flat) <= _LINE_LENGTH:
        return fence(flat, "python")
    lines = "".join(f"    {parameter},\n" for parameter in each)
    return fence(f"{prefix}{name}(\n{lines}){returns}", "python")


def _each(arguments: ast.arguments) -> Iterator[str]:
    """Yield the parameters one by one, with the marks for positional and keyword-only parameters."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True), 1):
        yield _parameter(argument, default)
        if arguments.posonlyargs and index == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield "*" + ast.unparse(arguments.vararg)
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if arguments.kwarg:
        yield "**" + ast.unparse(arguments.kwarg)


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if argument.annotation else f"{text}={ast.unparse(default)}"


def _unquoted(text: str) -> str:
    """Return annotations without the quotes of a forward reference."""
    return re.sub(r"'([A-Z]\w*(?:\[[^']*\])?)'", r"\1", text)


def _parsed(thing: Any) -> ast.stmt | None:
    """Return the definition of a class or function in its source; None without a source."""
    thing = inspect.unwrap(thing)
    return _definitions(thing.__module__).get(thing.__qualname__) if hasattr(thing, "__qualname__") else None


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Return the classes and functions of a module by their qualified names; each file is parsed once."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or not file.endswith(".py"):
        return {}
    return dict(_named(ast.parse(Path(file).read_text(encoding="utf-8")).body, ""))


def _named(statements: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            yield prefix + statement.name, statement
            yield from _named(statement.body, f"{prefix}{statement.name}.")


def attributes(kind: type) -> dict[str, tuple[str, str]]:
    """Return the annotated attributes of a class and of its bases here: name to annotation and docstring."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith(("booking_", "webhook_verify")):
            continue
        node = _parsed(base)
        body = node.body if isinstance(node, ast.ClassDef) else []
        for statement, following in zip(body, [*body[1:], None], strict=True) if body else ():
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                if not name.startswith("_"):
                    found[name] = (_unquoted(ast.unparse(statement.annotation)), _string(following))
    return found


def _string(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""
