"""Bring the message catalogues in line with the code: `make messages`.

Messages are collected from the core, the guest's pages and their templates. A new message is added to each catalogue
without a translation, and the tests fail until it is translated. A message that the code no longer has is removed.
"""

import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "booking_core" / "base" / "languages" / "messages"
SOURCES = ("booking_core", "booking_server/guest_pages")
_METHODS = [("**/templates/**.txt", "jinja2"), ("**/templates/**.html", "jinja2"), ("**.py", "python")]
_KEYWORDS = {"_": None, "gettext": None, "N_": None, "ngettext": (1, 2)}
_VOLATILE = tuple(
    f'"{name}:'.encode()
    for name in (
        "Report-Msgid-Bugs-To",
        "POT-Creation-Date",
        "PO-Revision-Date",
        "Last-Translator",
        "Language-Team",
        "Generated-By",
    )
)
_OPTIONS = {"**/templates/**": {"trim_blocks": "true", "lstrip_blocks": "true"}}


def collect() -> Catalog:
    """Return the messages of the code, each with the files that have it."""
    catalog = Catalog(project="Booking Service", charset="utf-8")
    for source in SOURCES:
        for name, _, message, _, _ in extract_from_dir(
            str(ROOT / source), method_map=_METHODS, options_map=_OPTIONS, keywords=_KEYWORDS
        ):
            catalog.add(message, locations=[(f"{source}/{name}", 0)])
    return catalog


def catalogues() -> Iterator[tuple[Path, Catalog]]:
    """Yield each catalogue with its file."""
    for path in sorted(FOLDER.glob("*.po")):
        with path.open("rb") as file:
            yield path, read_po(file, locale=path.stem)


def main() -> None:
    """Add new messages to the catalogues, and remove messages that the code no longer has."""
    template = collect()
    for path, catalog in catalogues():
        catalog.update(template, no_fuzzy_matching=True)
        catalog.obsolete.clear()
        path.write_bytes(_rendered(catalog))
        missing = sum(not message.string for message in catalog if message.id)
        sys.stdout.write(f"{path.name}: {missing} without a translation\n")


def _rendered(catalog: Catalog) -> bytes:
    """Return the file of a catalogue, without headers that would change with each run."""
    written = BytesIO()
    write_po(written, catalog, width=120, include_lineno=False, sort_output=True)
    return b"".join(line for line in written.getvalue().splitlines(keepends=True) if not line.startswith(_VOLATILE))


if __name__ == "__main__":
    main()
