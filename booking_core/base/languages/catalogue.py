"""Message catalogues: the .po files of `messages/`, read once for each language and process."""

import gettext
from functools import cache
from io import BytesIO
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

FOLDER = Path(__file__).with_name("messages")


def N_(message: str) -> str:  # noqa: N802 - the name that gettext's tools know
    """Mark a message for the catalogues where it stands; it is translated where it is used."""
    return message


@cache
def translations(code: str) -> gettext.NullTranslations:
    """Return the translations of a language. Without a catalogue, as for English, a message is its own translation."""
    path = FOLDER / f"{code}.po"
    if not path.exists():
        return gettext.NullTranslations()
    compiled = BytesIO()
    with path.open("rb") as file:
        write_mo(compiled, read_po(file, locale=code))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)
