"""Named SQL statements, kept in `.sql` files beside the modules that run them.

The statements of a module `amounts.py` are in `amounts.sql`. Each follows a header of comments with its name and a
sentence that describes it; the header is not sent to the database:

    -- name: gift_card_balances
    -- Select gift cards whose balance is not their face value and their ledger.

A statement that the databases need in two forms is there twice, as `-- name: claim (postgresql)` and `-- name: claim
(sqlite)`. At the end of a line, `-- include: NAME` inserts the text of another statement of the file, or of a part: an
incomplete piece of SQL with the header `-- part: NAME`. `-- include: MODULE.NAME` inserts a part of another module of
the package.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from sqlalchemy import text
from sqlalchemy.engine import Dialect

from booking_core.db.statements import Statement

_HEADER = re.compile(r"^-- (name|part): (\w+)(?: \((postgresql|sqlite)\))?\n((?:--.*\n)+)", re.MULTILINE)
_LABEL = re.compile(r"^-- ([a-z ]+): (.+(?:\n--   .+)*)", re.MULTILINE)
_INCLUDE = re.compile(r"-- include: (?:(\w+)\.)?(\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class SqlFile:
    """The statements of one file, by name and dialect. The dialect is None for a statement of both databases."""

    texts: Mapping[tuple[str, str | None], str]
    parts: frozenset[str]
    """The names of the parts, which are incomplete statements."""
    package: str
    labels: Mapping[str, Mapping[str, str]]
    """By name: the lines of its header of the form `-- label: text`; `--   ` continues such a line."""

    def text(self, name: str, dialect: Dialect | None = None) -> str:
        """Return the text of a statement. Raises KeyError when the file has none of that name for the dialect."""
        dialect_text = self.texts.get((name, dialect.name)) if dialect is not None else None
        text = self.texts[name, None] if dialect_text is None else dialect_text
        return _INCLUDE.sub(lambda match: "\n" + self._of(match[1]).text(match[2], dialect), text)

    def _of(self, module: str | None) -> "SqlFile":
        return load(f"{self.package}.{module}") if module else self

    def statement(self, name: str) -> Statement:
        """Return a statement for `Tx`, which compiles the text of the database that runs it."""
        return Statement(lambda dialect: text(self.text(name, dialect)))


@lru_cache
def load(module: str) -> SqlFile:
    """Read the statements of a module, given as its `__name__`."""
    package, _, name = module.rpartition(".")
    return parse(files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8"), package)


def parse(content: str, package: str = "") -> SqlFile:
    """Split the content of a file into its statements. Text before the first header is a comment."""
    _, *parts = _HEADER.split(content)
    texts: dict[tuple[str, str | None], str] = {}
    fragments: set[str] = set()
    labels: dict[str, Mapping[str, str]] = {}
    for kind, name, dialect, header, body in zip(*(iter(parts),) * 5, strict=True):
        if (name, dialect) in texts:
            raise ValueError(f"the statement {name} is defined twice")
        texts[name, dialect] = body.strip()
        labels[name] = {label: text.replace("\n--  ", "") for label, text in _LABEL.findall(header)}
        if kind == "part":
            fragments.add(name)
    return SqlFile(texts, frozenset(fragments), package, labels)
