"""Write the files of a new resource that is listed and read: "Add a resource" in CONTRIBUTING.md explains each.

    make resource NAME=guides FIELDS="name:text phone:text? is_certified:boolean"

A name is a plural in lower case, with underscores. A field is `name:type`, or `name:type?` when it may be null. The
types are `text`, `integer` and `boolean`.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "scripts" / "resource"

MIGRATIONS = ROOT / "booking_core" / "db" / "migrations" / "versions"

NEW_FILES = {
    "model.py.tmpl": "booking_core/models/$plural.py",
    "core.py.tmpl": "booking_core/catalogue/$plural.py",
    "router.py.tmpl": "booking_server/api/routers/$plural.py",
    "sdk.py.tmpl": "booking_sdk/resources/$plural.py",
    "command.py.tmpl": "booking_cli/commands/$plural.py",
}
"""The template of each new file, and its path."""

TYPES = {
    "text": ("str", "Text", '"Text"'),
    "integer": ("int", "BigInteger", "1"),
    "boolean": ("bool", "Boolean", "True"),
}
"""For each type of a field: its Python type, its column type and an example in Python."""


@dataclass(frozen=True)
class Field:
    """A field of the resource, and its column."""

    name: str
    type: str
    is_nullable: bool

    @property
    def annotation(self) -> str:
        """The Python type, with None if the field may be null."""
        return TYPES[self.type][0] + (" | None" if self.is_nullable else "")

    @property
    def column(self) -> str:
        """The column of the table."""
        options = "" if self.is_nullable else ", nullable=False"
        return f'Column("{self.name}", {TYPES[self.type][1]}{options}),'

    @property
    def presented(self) -> str:
        """The value in the response: SQLite returns a boolean as a number."""
        value = f"row.{self.name}"
        if self.type != "boolean":
            return value
        return f"None if {value} is None else bool({value})" if self.is_nullable else f"bool({value})"


def parse_field(text: str) -> Field:
    """Return the field of a text such as `phone:text?`.

    Raises:
        ValueError: the text is not a field.
    """
    match = re.fullmatch(r"([a-z][a-z0-9_]*):([a-z]+)(\??)", text)
    if match is None or match[2] not in TYPES or match[1] in ("id", "created_at"):
        raise ValueError(f"a field is name:type, with one of the types {', '.join(TYPES)}")
    return Field(match[1], match[2], bool(match[3]))


def names(plural: str, fields: list[Field]) -> dict[str, str]:
    """Return the values of the placeholders of the templates."""
    singular = plural.removesuffix("s")
    title = plural.replace("_", " ")

    def lines(indent: int, texts: list[str]) -> str:
        return "\n".join(" " * indent + text for text in texts)

    return {
        "plural": plural,
        "singular": singular,
        "path": plural.replace("_", "-"),
        "noun": singular.replace("_", " "),
        "title": title,
        "Title": title.capitalize(),
        "Class": singular.title().replace("_", ""),
        "Classes": plural.title().replace("_", ""),
        "CONST": plural.upper(),
        "rule": "-" * (115 - len(title)),
        "example": lines(4, [f'"{field.name}": {TYPES[field.type][2]},' for field in fields]),
        "model_fields": lines(4, [f"{field.name}: {field.annotation}" for field in fields]),
        "row_fields": lines(4, [f"{field.name}: {field.annotation}" for field in fields]),
        "present": lines(8, [f'"{field.name}": {field.presented},' for field in fields]),
        "table_columns": lines(4, [field.column for field in fields]),
        "columns": ", ".join(f'"{field.name}"' for field in fields),
        "columns_of_a_row": ", ".join(f"{field.name}={TYPES[field.type][2]}" for field in fields),
    }


def insert(content: str, text: str, before: str | None) -> str:
    """Return the content with a text inserted before the only line that begins with `before`, or at the end.

    Raises:
        ValueError: no line begins with it, or several.
    """
    if before is None:
        return content + text
    starts = [match.start() for match in re.finditer(f"^{re.escape(before)}", content, re.MULTILINE)]
    if len(starts) != 1:
        raise ValueError(f"{len(starts)} lines begin with {before!r}")
    return content[: starts[0]] + text + content[starts[0] :]


def write(plural: str, fields: list[Field]) -> list[Path]:
    """Write the new files and insert the lines into the existing ones, and return the paths of both.

    Raises:
        FileExistsError: the resource exists.
        ValueError: the line before which a text is inserted does not exist.
    """
    values = names(plural, fields)
    contents: dict[Path, str] = {}
    for template, target in NEW_FILES.items():
        path = ROOT / Template(target).substitute(values)
        if path.exists():
            raise FileExistsError(path)
        contents[path] = Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
    for insertion in tomllib.loads((TEMPLATES / "insertions.toml").read_text(encoding="utf-8"))["insert"]:
        path = ROOT / insertion["file"]
        content = contents.get(path) or path.read_text(encoding="utf-8")
        try:
            contents[path] = insert(content, Template(insertion["text"]).substitute(values), insertion.get("before"))
        except ValueError as error:
            raise ValueError(f"{insertion['file']}: {error}") from None
    for path, content in contents.items():
        path.write_text(content, encoding="utf-8")
    return list(contents)


def run(*arguments: str) -> str:
    """Run a module in the root of the tree, and return its output."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout  # noqa: S603


def generate(plural: str, written: list[Path]) -> None:
    """Format the written files, and generate the migration, the sync client, the OpenAPI document and its parts."""
    run("booking_core.db.migrations", f"The table of {plural.replace('_', ' ')}")
    modules = [str(path) for path in (*written, MIGRATIONS) if path.suffix in (".py", "")]
    for rule in (["format"], ["check", "--fix"], ["format"]):
        run("ruff", *rule, "--quiet", *modules)
    run("scripts.unasync")
    document = run("booking_server.api.openapi")
    (ROOT / "openapi.json").write_text(document, encoding="utf-8")
    run("scripts.command_data")


def main() -> None:
    """Write a resource, and print the paths of its files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the plural, as in guides or tour_guides")
    parser.add_argument("--fields", nargs="+", type=parse_field, required=True, metavar="NAME:TYPE")
    arguments = parser.parse_args()
    if not re.fullmatch(r"[a-z][a-z_]*s", arguments.name):
        parser.error("a name is a plural in lower case that ends with s, with underscores")
    try:
        written = write(arguments.name, arguments.fields)
    except (FileExistsError, ValueError) as error:
        sys.exit(str(error))
    generate(arguments.name, written)
    for path in written:
        print(path.relative_to(ROOT))  # noqa: T201


if __name__ == "__main__":
    main()
