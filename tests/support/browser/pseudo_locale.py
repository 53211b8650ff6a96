"""Translations that mark each message, to find texts that bypass the catalogues."""

import gettext
import re
from html import unescape
from types import ModuleType

import pytest

from booking_core.base import languages
from booking_core.base.languages import Language


class Pseudo(gettext.NullTranslations):
    """Translations that put every message between brackets."""

    def gettext(self, message: str) -> str:
        return f"⟦{super().gettext(message)}⟧"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"⟦{super().ngettext(msgid1, msgid2, n)}⟧"


def _outside(text: str) -> str:
    """Return the text outside all brackets. They may be nested: a value in a message may be a message too."""
    depth, characters = 0, []
    for character in text:
        depth += (character == "⟦") - (character == "⟧")
        if not depth and character not in "⟦⟧":
            characters.append(character)
    return "".join(characters)


_DATA = re.compile(
    r"https?://\S+|\S+@\S+|Fjord (kayak|Tours)|Ada Lovelace|Adult|Dry suit|NOK|Europe/Oslo|UTC|Simadalsvegen"
    r"|At the boathouse\.|Parking is free\.|A towel|Water|Children with an adult\.|(\w+day )?\d+ November 2026|Ada"
    r"|[A-Z0-9]{4}(-[A-Z0-9]{4}){3}|English|Deutsch|Français|Español|Italiano|Norsk"
)
"""Names, addresses, dates and other values that are not messages."""


def letters_left(text: str) -> list[str]:
    """Return the words of a text that are neither marked nor data of the tests."""
    return re.findall(r"[A-Za-z]{2,}", _DATA.sub(" ", _outside(text)))


def visible(html: str) -> str:
    """Return the visible text of a mail or a page."""
    return unescape(re.sub(r"<head>.*?</head>|<[^>]*>", " ", html, flags=re.DOTALL))


def use_pseudo_locale(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Make the modules, which import `language` by name, use the marking translations."""
    pseudo = Language("en", languages.language("en").locale, Pseudo())
    for module in modules:
        monkeypatch.setattr(module, "language", lambda tag: pseudo)
