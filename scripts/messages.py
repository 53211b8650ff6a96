"""Bring the message catalogues in line with the code: `make messages`.

Messages are collected from the core, the guest's pages and their templates. A new one is added to each catalogue
without a translation, which the tests refuse; one that is gone is removed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "booking_core" / "languages" / "messages"
SOURCES = ("booking_core", "booking_server/guest_pages")
_METHODS = [("**/templates/**.txt", "jinja2"), ("**/templates/**.html", "jinja2"), ("**.py", "python")]
_KEYWORDS = {"_": None, "gettext": None, "N_": None, "ngettext": (1, 2)}
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
    """Add new messages to the catalogues, and remove messages that are gone."""
    template = collect()
    for path, catalog in catalogues():
        catalog.update(template, no_fuzzy_matching=True)
        catalog.obsolete.clear()
        with path.open("wb") as file:
            write_po(file, catalog, width=120, include_lineno=False, sort_output=True, omit_header=False)
        missing = sum(not each.string for each in catalog if each.id)
        sys.stdout.write(f"{path.name}: {missing} without a translation\n")


if __name__ == "__main__":
    main()
