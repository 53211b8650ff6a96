"""The docstring rule: the first sentence names an action or a thing, it does not ask a question.

A docstring opens with a verb on a function, in the third person or the imperative ("Return the seats left for sale."),
and with a verb or a noun phrase on a module, a class, a property, a fixture or a constant. Pronouns instead of nouns
("who asks") make the reader guess, so the rule limits their share.

`ALLOWED_OPENINGS` counts the remaining exceptions. When a count falls, lower it here: it must never rise again.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["booking_core", "booking_server", "booking_sdk", "booking_cli", "webhook_verify"]
GENERATED = [ROOT / "booking_sdk" / "_sync"]
"""The sync half of the SDK is generated from the async half, which is checked."""

QUESTIONS = frozenset("what who whose whom whether which when how one where whatever whoever".split())
"""Words that open no docstring."""
NOUN_OPENINGS = frozenset(
    "a an the its their his each every all any both some no none nothing same another other this that these those"
    " it there they two three four as if in on at by for from to of with without".split()
)
"""Words that open no docstring of a function: a noun phrase or a condition begins with them, never a verb."""
PRONOUNS = frozenset("who whose whom what whatever those nobody whoever".split())
PRONOUNS_PER_100_WORDS = 1.2
"""The maximum of a package. Seven well-known codebases have 0.4 to 1.0."""

ALLOWED_OPENINGS: dict[str, int] = {"booking_server": 15, "booking_core/webhooks": 1}


@dataclass(frozen=True)
class Docstring:
    """A docstring, or the string below a constant or a field."""

    path: Path
    line: int
    text: str
    names_thing: bool
    """Modules, classes, properties, fixtures and constants may open with a noun phrase."""

    @property
    def words(self) -> list[str]:
        """The words in lower case."""
        return re.findall(r"[a-z]+(?:'[a-z]+)?", self.text.lower())

    @property
    def breaks_rule(self) -> bool:
        """True if the rule excludes the first word."""
        first = next(iter(self.words), "").partition("'")[0]
        return first in QUESTIONS or (not self.names_thing and first in NOUN_OPENINGS)

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text.splitlines()[0]}"


@cache
def docstrings_of(path: Path) -> list[Docstring]:
    """Return the docstrings of a module. Docstrings of tests and of their modules are left out."""
    return list(_docstrings(path, ast.parse(path.read_text(encoding="utf-8"))))


def _docstrings(path: Path, tree: ast.Module) -> Iterator[Docstring]:
    is_test_module = path.name.startswith("test_")
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for value in _strings_below_assignments(node):
                yield Docstring(path, value.lineno, str(value.value), names_thing=True)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if not text or _is_test(node) or (is_test_module and isinstance(node, ast.Module)):
            continue
        yield Docstring(path, getattr(node, "lineno", 1), text, _names_thing(node))


def _strings_below_assignments(node: ast.Module | ast.ClassDef) -> Iterator[ast.Constant]:
    for before, statement in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(before, ast.Assign | ast.AnnAssign)
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        ):
            yield statement.value


def _is_test(node: ast.AST) -> bool:
    return getattr(node, "name", "").lower().startswith("test")


def _names_thing(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if isinstance(node, ast.Module | ast.ClassDef):
        return True
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    return bool(re.search(r"\b(?:property|cached_property|setter|fixture|hybrid_property)\b", decorators))


@cache
def folders() -> dict[str, list[Path]]:
    """Return the modules of each folder: each package, each package inside the core, and each test folder."""
    names = [*PACKAGES, *_subfolders("booking_core"), *_subfolders("tests")]
    found = {name: sorted((ROOT / name).rglob("*.py")) for name in names}
    found["booking_core"] = sorted((ROOT / "booking_core").glob("*.py"))
    return {name: [path for path in paths if not _is_generated(path)] for name, paths in found.items()}


def _subfolders(name: str) -> list[str]:
    return [
        f"{name}/{path.name}" for path in sorted((ROOT / name).iterdir()) if path.is_dir() and any(path.rglob("*.py"))
    ]


def _is_generated(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in GENERATED)


def offenders(name: str) -> list[Docstring]:
    """Return the docstrings of a folder that break the rule."""
    return [docstring for path in folders()[name] for docstring in docstrings_of(path) if docstring.breaks_rule]


def pronouns_per_100_words(package: str) -> float:
    """Return the pronouns' share of the words in a package's docstrings, in percent, rounded to two digits."""
    paths = [path for path in sorted((ROOT / package).rglob("*.py")) if not _is_generated(path)]
    words = [word for path in paths for docstring in docstrings_of(path) for word in docstring.words]
    return round(100 * sum(word.partition("'")[0] in PRONOUNS for word in words) / max(len(words), 1), 2)


@pytest.mark.parametrize("name", folders())
def test_first_sentences_open_with_a_verb_or_name_a_thing(name: str) -> None:
    found = offenders(name)
    allowed = ALLOWED_OPENINGS.get(name, 0)
    assert len(found) <= allowed, "\n".join(map(str, found))
    assert len(found) == allowed, f"lower the count of {name} to {len(found)}"


@pytest.mark.parametrize("name", [*PACKAGES, "tests"])
def test_docstrings_name_their_nouns(name: str) -> None:
    found = pronouns_per_100_words(name)
    assert found <= PRONOUNS_PER_100_WORDS, f"{found} pronouns in 100 words of {name}"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""What it does."""', 1),
        ('"""The thing."""', 0),
        ('def f():\n    """The seats that are left."""', 1),
        ('def f():\n    """Return the seats that are left."""', 0),
        ('class C:\n    """Whose it is."""', 1),
        ('class C:\n    @property\n    def seats(self):\n        """The seats that are left."""', 0),
        ('class C:\n    a: int\n    """How many there are."""', 1),
        ('A = 1\n"""Seconds."""', 0),
        ('def test_a():\n    """One of them."""', 0),
    ],
)
def test_openings_are_found(source: str, count: int) -> None:
    found = list(_docstrings(ROOT / "module.py", ast.parse(source)))
    assert sum(docstring.breaks_rule for docstring in found) == count
