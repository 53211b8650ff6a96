"""The message catalogues: complete, with every placeholder, and in the polite form."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from babel.messages.catalog import Message

from booking_core.base.languages import LANGUAGES
from scripts.messages import catalogues, collect

PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%")
CATALOGUES = {path.stem: catalog for path, catalog in catalogues()}
INFORMAL = {
    "de": r"\b(du|dich|dir|dein\w*|deiner|euch|euer\w*)\b",
    "fr": r"\b(tu|toi|te|ton|ta|tes)\b",
    "es": r"\b(tú|ti|te|tu|tus|puedes|tienes|vosotros)\b",
    "it": r"\b(tu|ti|te|tuo|tua|tuoi|tue|puoi|hai)\b",
    "nb": r"\b(dere|deres)\b",  # one guest is addressed; the polite form is du
}


each_catalogue = pytest.mark.parametrize("code", sorted(CATALOGUES))


@pytest.fixture(scope="module")
def of_the_code() -> set[Any]:
    """Return the ids of the messages of the code."""
    return {each.id for each in collect() if each.id}


def texts(message: Message) -> tuple[str, ...]:
    return message.string if isinstance(message.string, tuple) else (message.string,)


def translated(code: str) -> list[Message]:
    return [each for each in CATALOGUES[code] if each.id]


def translations(code: str) -> Iterator[tuple[str, str]]:
    """Yield each text of the code, in its plural if it has one, and each of its translations."""
    for each in translated(code):
        source = each.id[-1] if isinstance(each.id, tuple) else each.id
        yield from ((source, text) for text in texts(each))


def test_there_is_a_catalogue_for_each_language_but_that_of_the_code(of_the_code: set[Any]) -> None:
    assert {"en", *CATALOGUES} == set(LANGUAGES)
    assert len(of_the_code) > 100


@each_catalogue
def test_each_message_of_the_code_is_translated_and_no_other(code: str, of_the_code: set[Any]) -> None:
    """`make messages` adds new messages to the catalogues."""
    found = {each.id for each in translated(code)}
    assert found == of_the_code
    assert [each.id for each in translated(code) if not all(texts(each)) or each.fuzzy] == []


@each_catalogue
def test_a_translation_has_the_placeholders_of_its_message_and_no_markup(code: str) -> None:
    for source, text in translations(code):
        assert sorted(PLACEHOLDER.findall(text)) == sorted(PLACEHOLDER.findall(source)), source
        assert text == text.strip()
        assert not set("<>&") & set(text)
        assert text.endswith(".") == source.endswith("."), text


@each_catalogue
def test_guests_are_addressed_politely(code: str) -> None:
    for _, text in translations(code):
        assert not re.search(INFORMAL[code], text, re.IGNORECASE), text
