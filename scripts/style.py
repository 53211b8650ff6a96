"""Checks the rules of style that ruff does not have, in every file under version control.

    python -m scripts.style              # prints each problem with its place, and fails if there is one

- A docstring opens with a verb on a function, in the third person or the imperative ("Return the seats left for
  sale."), and with a verb or a noun phrase on a module, a class, a property, a fixture, a constant or an operation of
  the API. It asks no question, and pronouns instead of nouns ("who asks") have a small part of its words.
- The name of a test is one short sentence, and the name of a module a noun of the specification.
- A name is the noun of its value: `rows` or `booking`, not `found` or `each`.
- A public class of the product, or an alias of a type, has its name for itself.
- A page has lines of 120 characters at most, except tables, commands and HTML.
- No file holds a path of the machine it was written on or the host of a package index, or is a leftover.
"""

import ast
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GENERATED = re.compile(r"/_sync/|docs/api-changelog\.md")

QUESTIONS = frozenset("what who whose whom whether which when how one where whatever whoever".split())
"""Words that open no docstring."""
NOUN_OPENINGS = QUESTIONS | frozenset(
    "a an the its their his each every all any both some no none nothing same another other this that these those"
    " it there they two three four as if in on at by for from to of with without".split()
)
"""Words that open no docstring of a function: a noun phrase or a condition begins with them, never a verb."""
NAMES_A_THING = re.compile(r"\b(?:property|cached_property|setter|fixture|router|availability)\b")
"""Decorators of functions whose docstring may be a noun phrase. That of a path operation is its description."""
PRONOUNS = frozenset("who whose whom what whatever those nobody whoever".split())
PRONOUNS_PER_100_WORDS = 0.5
"""The maximum of a top-level folder. Seven well-known codebases have 0.4 to 1.0."""

PRODUCT = ("booking_core/", "booking_server/", "booking_sdk/", "booking_cli/", "webhook_verify/")
EMPTY_WORDS = frozenset(
    "asked brought came done each found given gone got had handed held here kept known left made mine named needed ours"
    " own put said seen shown taken theirs these thing things this those told used wanted".split()
)
"""Words about the history of a value. None of them is a name, also not in upper case or behind an underscore."""
ALLOWED_WORDS = frozenset(
    {
        ("booking_core/bookings/changes.py", "kept"),
        ("booking_core/models/bookings.py", "kept"),
        ("booking_core/models/bookings.py", "KEPT"),
        ("booking_core/payments/money_outcomes.py", "KEPT"),
        ("tests/support/browser/browser.py", "left"),
        ("webhook_verify/receiver.py", "seen"),
    }
)
"""Names of the API, of the command line's output and of the verifier's interface, and a side of a box."""

SHARED_NAMES = frozenset("Attempt BookingError Event Organization Ping PingData PreviousDeparture RateLimit".split())
"""Types with two meanings, of which the SDK or the OpenAPI document has one: both are public."""

TEST_WORDS_MAX = 12
"""The words of a test's name, without `test`: one sentence that is read at a glance in a list of failures."""
EMPTY_NAMES = {"utils.py", "helpers.py", "common.py", "manager.py", "misc.py", "base_service.py"}
"""Names of modules that would collect unrelated functions."""
PAGE_COLUMNS = 120
LEFTOVERS = {".db", ".db-wal", ".db-shm", ".secret", ".pem", ".key", ".orig", ".rej", ".pyc"}

SOMEBODYS_HOME = re.compile(rb"(?<![\w.])/(?:home|Users|root)/[A-Za-z0-9._-]+")
PUBLIC_INDEX = re.compile(rb"(?:files\.)?python" rb"hosted\.org|pypi\.org/simple|registry\.npm" rb"js\.org")
PLACES = re.compile(r"(?:file:|https?:)?//[^\s'\"]+|/[^\s'\"]+")
SHORTEST_PLACE = len("/a/place")
GENERAL = {"//", "/tmp/", "/opt/", "/srv/", "/home/", "/usr/local", "/etc/ssl/certs/ca-certificates.crt"}  # noqa: S108
"""Paths that exist on every machine."""


class Docstring(NamedTuple):
    """A docstring, or the string below a constant or a field."""

    line: int
    text: str
    names_a_thing: bool

    @property
    def words(self) -> list[str]:
        """The words in lower case, without a possessive ending."""
        return re.findall(r"[a-z]+(?=(?:'[a-z]+)?)", self.text.lower())


def tracked(*patterns: str) -> list[Path]:
    """Return the files under version control, and untracked files that are not ignored, in the order of their paths.

    Args:
        patterns: globs of git, of which a file matches one; without any, every file is returned.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    command += [f":(glob){pattern}" for pattern in patterns]
    listing = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout  # noqa: S603
    return [path for name in sorted(set(listing.split("\0"))) if name and (path := ROOT / name).is_file()]


def places_of_this_machine() -> list[bytes]:
    """Return the paths of this clone, of its interpreter and of its package indexes."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    configured = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    settings = [*configured.split(), *(value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_")))]
    places = {match.partition("//")[2] or match for text in settings for match in PLACES.findall(text)}
    places |= {str(ROOT), str(Path.home()), str(Path(sys.base_prefix))}
    long = {place for place in places if len(place) >= SHORTEST_PLACE} | {f"{ROOT.parent}/"}
    return [place.encode() for place in long - GENERAL]


def definitions(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield a module with its classes and functions, also the inner ones. Expressions have none: they are not read."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from definitions(child)


def docstrings(tree: ast.Module, module: str) -> Iterator[Docstring]:
    """Yield the docstrings of a module, except those of tests and of their modules."""
    for node in definitions(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            yield from _below_assignments(node)
        is_test = getattr(node, "name", module).lower().startswith("test")
        if (text := ast.get_docstring(node)) and not is_test:
            decorators = " ".join(map(ast.unparse, getattr(node, "decorator_list", ())))
            is_thing = isinstance(node, ast.Module | ast.ClassDef) or bool(NAMES_A_THING.search(decorators))
            yield Docstring(getattr(node, "lineno", 1), text, is_thing)


def _below_assignments(node: ast.Module | ast.ClassDef) -> Iterator[Docstring]:
    for before, statement in zip(node.body, node.body[1:], strict=False):
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(statement, ast.Expr):
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield Docstring(value.lineno, value.value, names_a_thing=True)


def openings(texts: list[Docstring]) -> Iterator[str]:
    """Yield the docstrings that open with a word that the rule excludes."""
    for docstring in texts:
        first = next(iter(docstring.words), "")
        if first in (QUESTIONS if docstring.names_a_thing else NOUN_OPENINGS):
            yield f"{docstring.line}: a docstring opens with “{first}”: {docstring.text.splitlines()[0]}"


def bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each name that a module binds, and its line: variables, parameters and attributes, also of expressions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno


def empty_names(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names in a module that are not the nouns of their values."""
    for binding, line in bindings(tree):
        if binding.strip("_").lower() in EMPTY_WORDS and (name, binding) not in ALLOWED_WORDS:
            yield f"{line}: {binding} says nothing about its value"


def types(name: str, tree: ast.Module) -> set[str]:
    """Return the public classes, and the aliases of types, of a module of the product."""
    if not name.startswith(PRODUCT):
        return set()
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_type(node.value):
            names.add(node.targets[0].id)
    return {name for name in names if name[0].isupper() and not name.isupper()}


def _is_type(value: ast.expr) -> bool:
    """Return whether a value is a type: `dict[str, int]`, `A | B` or another name; `Annotated` declares a parameter."""
    text = ast.unparse(value)
    return isinstance(value, ast.Subscript | ast.BinOp | ast.Name) and not text.startswith(("Annotated[", "frozenset"))


def names_of_tests(tree: ast.Module) -> Iterator[str]:
    """Yield the names of tests that are long, or that join two facts with a second "and"."""
    for node in definitions(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            words = node.name.split("_")[1:]
            if len(words) > TEST_WORDS_MAX or words.count("and") > 1:
                yield f"{node.lineno}: {node.name} has more than {TEST_WORDS_MAX} words, or two “and”"


def lines_of_pages(text: str) -> Iterator[str]:
    """Yield the lines of a page that are too long to be read in an editor."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > PAGE_COLUMNS and not re.match(r"\||\$ |<", line):
            yield f"{number}: a line of {len(line)} characters; {PAGE_COLUMNS} are the most"


def files(path: Path, content: bytes, places: list[bytes]) -> Iterator[str]:
    """Yield the problems that a file of any kind has."""
    if path.suffix in LEFTOVERS or path.name in EMPTY_NAMES:
        yield "1: a leftover, or a module with a name without meaning"
    for place in [*(place for place in places if place in content), *SOMEBODYS_HOME.findall(content)]:
        yield f"1: {place.decode()} is a path or a host of this machine"
    if PUBLIC_INDEX.search(content):
        yield "1: the host of a package index"


def problems() -> Iterator[str]:
    """Yield every problem of the tree as `file:line: problem`."""
    places, words, pronouns = places_of_this_machine(), Counter[str](), Counter[str]()
    modules: dict[str, list[str]] = defaultdict(list)
    for path in tracked():
        name, content = path.relative_to(ROOT).as_posix(), path.read_bytes()
        findings = list(files(path, content, places))
        if path.suffix == ".py" and not GENERATED.search(name):
            tree = ast.parse(content)
            texts = list(docstrings(tree, path.stem))
            findings += [*openings(texts), *names_of_tests(tree), *empty_names(name, tree)]
            spoken = [word for docstring in texts for word in docstring.words]
            for type_name in types(name, tree):
                modules[type_name].append(name)
            words[name.split("/")[0]] += len(spoken)
            pronouns[name.split("/")[0]] += sum(word in PRONOUNS for word in spoken)
        elif path.suffix == ".md" and name.startswith("docs/") and not GENERATED.search(name):
            findings += lines_of_pages(content.decode())
        yield from (f"{name}:{problem}" for problem in findings)
    for type_name in sorted(modules.keys() | SHARED_NAMES):
        if (len(modules[type_name]) > 1) != (type_name in SHARED_NAMES):
            yield f"{type_name}: a type of {modules[type_name]}; SHARED_NAMES has those of two modules, and no others"
    for folder, count in pronouns.items():
        if 100 * count > PRONOUNS_PER_100_WORDS * words[folder]:
            yield f"{folder}: {100 * count / words[folder]:.2f} of 100 words in docstrings are {', '.join(PRONOUNS)}"


if __name__ == "__main__":
    lines = list(problems())
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.exit(bool(lines))
