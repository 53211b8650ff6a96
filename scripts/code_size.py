"""Counts files and lines of code of each package, in one or more trees.

    python -m scripts.code_size              # this tree
    python -m scripts.code_size BEFORE .     # two trees beside each other

A line of code is a line of Python with more than a comment or a docstring, or a line of SQL with more than a comment.
Revisions of the schema and generated code are omitted.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

LONG_FUNCTION = 40
PRODUCT = ("booking_core", "booking_server", "booking_cli", "booking_sdk", "webhook_verify")
OTHERS = ("tests", "bench", "docsite", "scripts")
NO_CODE = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
EXCLUDED = re.compile(r"(^|/)versions/|(^|/)_sync/")
METHODS = {"get", "post", "put", "patch", "delete"}


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
    """Return the lines of texts that are statements: docstrings, and the docstrings of constants and fields."""
    texts = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}


def sources(root: Path, package: str) -> list[Path]:
    """Return the hand-written Python and SQL files of a package."""
    paths = (path for path in (root / package).rglob("*") if path.suffix in (".py", ".sql"))
    return sorted(path for path in paths if not EXCLUDED.search(path.relative_to(root).as_posix()))


def operations(root: Path) -> int:
    """Return the number of operations of the API."""
    document = json.loads((root / "openapi.json").read_text(encoding="utf-8"))
    return sum(len(METHODS & path.keys()) for path in document["paths"].values())


def long_functions(root: Path, package: str) -> Iterator[str]:
    """Yield the functions of a package with more than `LONG_FUNCTION` lines, without decorators."""
    for path in (path for path in sources(root, package) if path.suffix == ".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONG_FUNCTION:
                    yield f"{path.relative_to(root)}:{node.lineno} {node.name} ({length})"


def report(roots: list[Path]) -> Iterator[str]:
    """Yield the sizes of the trees, and the long functions of the last tree."""
    for packages in (*((name,) for name in PRODUCT), PRODUCT, *((name,) for name in OTHERS)):
        name = packages[0] if len(packages) == 1 else "product"
        files = [[path for name in packages for path in sources(root, name)] for root in roots]
        yield f"{name:16}" + "".join(f"{len(paths):6} files {sum(map(code_lines, paths)):7,} lines" for paths in files)
    for root in roots:
        both = sum(map(code_lines, sources(root, "booking_core") + sources(root, "booking_server")))
        yield f"core and server: {both / operations(root):.0f} lines for each of {operations(root)} operations"
    for package in PRODUCT:
        yield from long_functions(roots[-1], package)


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report([Path(name) for name in sys.argv[1:]] or [Path()]))
