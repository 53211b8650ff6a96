"""Named SQL statements, kept in `.sql` files beside the modules that run them.

The statements of a module `amounts.py` are in `amounts.sql`. Each follows a header of comments with its name and a
sentence that describes it; the header is not sent to the database:

    -- name: gift_card_balances
    -- Select gift cards whose balance is not their face value and their ledger.

A statement that the databases need in two forms is there twice, as `-- name: claim (postgresql)` and `-- name: claim
(sqlite)`. At the end of a line, `-- include: NAME` inserts the text of another statement of the file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from sqlalchemy import text
from sqlalchemy.engine import Dialect

from booking_core.db.statements import Statement

_HEADER = re.compile(r"^-- name: (\w+)(?: \((postgresql|sqlite)\))?\n((?:--.*\n)+)", re.MULTILINE)
_LABEL = re.compile(r"^-- ([a-z ]+): (.+(?:\n--   .+)*)", re.MULTILINE)
_INCLUDE = re.compile(r"-- include: (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class SqlFile:
    """The statements of one file, by name and dialect. The dialect is None for a statement of both databases."""

    texts: Mapping[tuple[str, str | None], str]
    labels: Mapping[str, Mapping[str, str]]
    """By name: the lines of its header of the form `-- label: text`; `--   ` continues such a line."""

    def text(self, name: str, dialect: Dialect | None = None) -> str:
        """Return the text of a statement. Raises KeyError when the file has none of that name for the dialect."""
        dialect_text = self.texts.get((name, dialect.name)) if dialect is not None else None
        text = self.texts[name, None] if dialect_text is None else dialect_text
        return _INCLUDE.sub(lambda match: "\n" + self.text(match[1], dialect), text)

    def statement(self, name: str) -> Statement:
        """Return a statement for `Tx`, which compiles the text of the database that runs it."""
        return Statement(lambda dialect: text(self.text(name, dialect)))


@lru_cache
def load(module: str) -> SqlFile:
    """Read the statements of a module, given as its `__name__`."""
    package, _, name = module.rpartition(".")
    return parse(files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8"))


def parse(content: str) -> SqlFile:
    """Split the content of a file into its statements. Text before the first header is a comment."""
    _, *parts = _HEADER.split(content)
    texts: dict[tuple[str, str | None], str] = {}
    labels: dict[str, Mapping[str, str]] = {}
    for name, dialect, header, body in zip(*(iter(parts),) * 4, strict=True):
        if (name, dialect) in texts:
            raise ValueError(f"the statement {name} is defined twice")
        texts[name, dialect] = body.strip()
        labels[name] = {label: text.replace("\n--  ", "") for label, text in _LABEL.findall(header)}
    return SqlFile(texts, labels)
