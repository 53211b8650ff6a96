"""Counts the lines of code of the API's server part, of the data layer and of the command line, in one or more trees.

    python -m scripts.code_size              # this tree
    python -m scripts.code_size BEFORE .     # two trees beside each other

A line of code is a line of Python with more than a comment or a docstring, or a line of SQL with more than a comment.
Lines are also divided by what they serve: operations of the API, tables, commands. Functions of more than 40 lines are
counted in each package.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONG_FUNCTION = 40
PACKAGES = ("webhook_verify", "booking_core", "booking_server", "booking_sdk", "booking_cli")
NO_CODE = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
EXCLUDED = re.compile(r"/versions/|/_sync/")
"""Revisions of the schema, which are history, and generated code."""
TABLE = re.compile(r"^\w+ = (?:Table|_table|_entity)\($", re.MULTILINE)
COMMAND = re.compile(r"^@command\(", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """A part of the project.

    Args:
        patterns: where its code is, in every layout that the project has had.
        unit: the thing that it has many of.
    """

    name: str
    patterns: tuple[str, ...]
    unit: str


PARTS = [
    Part(
        "server, HTTP part",
        (
            "booking_server/app.py",
            *(f"booking_server/{folder}/**/*.py" for folder in ("api", "http", "execution", "routes")),
            # The layout before the folders.
            *(
                f"booking_server/{module}.py"
                for module in (
                    "api_changelog auth bodies clients desk dispatch errors framing limits openapi operations params"
                    " protocol rate_limit reply uses"
                ).split()
            ),
        ),
        "operation",
    ),
    Part("booking_core/db", ("booking_core/db/**/*.py", "booking_core/db/**/*.sql"), "table"),
    Part("booking_cli", ("booking_cli/**/*.py",), "command"),
]


@dataclass(frozen=True)
class Size:
    """The size of a part.

    Args:
        units: the number of things that it has many of.
    """

    lines: int
    units: int

    @property
    def per_unit(self) -> float:
        return self.lines / max(self.units, 1)


def code_lines(path: Path) -> int:
    """Return the number of lines of code of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        return sum(bool(line.strip()) and not line.lstrip().startswith("--") for line in text.splitlines())
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(ast.parse(text))) - 1  # the end of the file is a token, too


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of texts that are statements: docstrings, and those below constants and fields."""
    texts = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}


def files(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the files of a part, without what is generated and without revisions of the schema."""
    found = {path for pattern in patterns for path in root.glob(pattern)}
    return sorted(path for path in found if not EXCLUDED.search(path.as_posix()))


def size(root: Path, part: Part) -> Size:
    """Return the size of a part in the tree."""
    return Size(sum(map(code_lines, files(root, part.patterns))), UNITS[part.unit](root))


def _operations(root: Path) -> int:
    document = json.loads((root / "openapi.json").read_text(encoding="utf-8"))
    methods = {"get", "post", "put", "patch", "delete"}
    return sum(len(methods & path.keys()) for path in document["paths"].values())


def _tables(root: Path) -> int:
    return len(TABLE.findall((root / "booking_core/db/tables.py").read_text(encoding="utf-8")))


def _commands(root: Path) -> int:
    return sum(len(COMMAND.findall(path.read_text(encoding="utf-8"))) for path in files(root, ("booking_cli/**/*.py",)))


UNITS = {"operation": _operations, "table": _tables, "command": _commands}


def long_functions(root: Path, package: str) -> Iterator[str]:
    """Yield the functions of a package that have more than `LONG_FUNCTION` lines, decorators left out."""
    for path in files(root, (f"{package}/**/*.py",)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONG_FUNCTION:
                    yield f"{path.relative_to(root)}:{node.lineno} {node.name} ({length})"


def report(roots: list[Path]) -> Iterator[str]:
    """Yield the sizes of the trees beside each other, and the long functions of the last one."""
    for part in PARTS:
        sizes = (size(root, part) for root in roots)
        yield f"{part.name:20}" + "".join(
            f"{each.lines:8} lines, {each.per_unit:5.1f} per {part.unit}" for each in sizes
        )
    for package in PACKAGES:
        counts = (sum(1 for _ in long_functions(root, package)) for root in roots)
        yield f"{package:20}" + "".join(f"{count:8} functions of more than {LONG_FUNCTION} lines" for count in counts)
    for package in PACKAGES:
        yield from long_functions(roots[-1], package)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report([Path(name) for name in sys.argv[1:]] or [Path()]))
