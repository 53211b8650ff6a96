"""Read the rows of a SQL script with COPY blocks, as `pg_restore` writes it."""

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

_COPY = re.compile(r'COPY (?P<schema>"(?:[^"]|"")+"|\w+)\.(?P<table>\w+) \((?P<columns>[^)]*)\) FROM stdin;')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NULL = r"\N"
_END = r"\."


def rows(script: Iterable[bytes]) -> Iterator[tuple[str, str, dict[str, str | None]]]:
    """Yield the schema, the table and the columns of each row, as text."""
    lines = (line.decode().removesuffix("\n") for line in script)
    for line in lines:
        if block := _COPY.fullmatch(line):
            schema, columns = _unquoted(block["schema"]), [_unquoted(name) for name in block["columns"].split(", ")]
            for values in takewhile(lambda line: line != _END, lines):
                texts = [_unescaped(value) for value in values.split("\t")]
                yield schema, block["table"], dict(zip(columns, texts, strict=True))


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _unescaped(value: str) -> str | None:
    return None if value == _NULL else _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), value)
