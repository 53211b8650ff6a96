"""The choice of a language, its formats of money, dates and times, and the completeness of its catalogue."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from babel.messages.catalog import Message

from booking_core.base.clock import HOUR, zone
from booking_core.base.languages import LANGUAGES, choose, language
from scripts.messages import catalogues, collect

OSLO = zone("Europe/Oslo")
AT = OSLO.parse("2026-12-24T10:00:00")


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        (("de", "fr"), "de"),
        ((None, "fr"), "fr"),
        ((None, None), "en"),
        (("sv", "it"), "it"),
        (("nb-NO", None), "nb-NO"),
        (("pt-BR", "zz"), "en"),
        (("DE-at", "fr"), "DE-at"),
        (("",), "en"),
    ],
)
def test_the_first_language_with_a_catalogue_is_chosen(tags: tuple[str | None, ...], chosen: str) -> None:
    assert choose(*tags) == chosen


@pytest.mark.parametrize(
    ("tag", "code", "span", "money"),
    [
        ("en", "en", "Thursday 24 December 2026, 10:00–12:00", "1,234.50 NOK"),
        ("de", "de", "Donnerstag, 24. Dezember 2026, 10:00–12:00", "1.234,50 NOK"),
        ("fr", "fr", "jeudi 24 décembre 2026, 10:00–12:00", "1 234,50 NOK"),
        ("es", "es", "jueves, 24 de diciembre de 2026, 10:00–12:00", "1.234,50 NOK"),
        ("it", "it", "giovedì 24 dicembre 2026, 10:00–12:00", "1.234,50 NOK"),
        ("nb", "nb", "torsdag 24. desember 2026, 10:00–12:00", "1 234,50 NOK"),
        ("en-US", "en", "Thursday, December 24, 2026, 10:00 AM–12:00 PM", "1,234.50 NOK"),
        ("de-ZZ", "de", "Donnerstag, 24. Dezember 2026, 10:00–12:00", "1.234,50 NOK"),
        ("de-Nonsense-x", "de", "Donnerstag, 24. Dezember 2026, 10:00–12:00", "1.234,50 NOK"),
        ("xx", "en", "Thursday 24 December 2026, 10:00–12:00", "1,234.50 NOK"),
    ],
)
def test_times_and_money_are_written_as_in_the_language(tag: str, code: str, span: str, money: str) -> None:
    wording = language(tag)
    assert wording.code == code
    assert " ".join(wording.span(OSLO, AT, AT + 2 * HOUR).split()) == span
    assert " ".join(wording.money(123450, "NOK").split()) == money


@pytest.mark.parametrize(
    ("tag", "amount_minor", "currency", "text"),
    [
        ("de", 8900, "EUR", "89,00 €"),
        ("en", 8900, "EUR", "€89.00"),
        ("en", -8900, "EUR", "-€89.00"),
        ("en", 8900, "USD", "89.00 USD"),  # not US$
        ("de-AT", 8900, "EUR", "€ 89,00"),
        ("fr", 1780, "JPY", "1 780 JPY"),
        ("it", 12345, "KWD", "12,345 KWD"),
        ("es", 9223372036854775807, "NOK", "92.233.720.368.547.758,07 NOK"),
    ],
)
def test_an_amount_has_the_decimals_of_its_currency_and_an_unambiguous_symbol(
    tag: str, amount_minor: int, currency: str, text: str
) -> None:
    assert " ".join(language(tag).money(amount_minor, currency).split()) == text


def test_a_count_has_its_plural() -> None:
    sentences = [language("it").ngettext("%(count)d seat left", "%(count)d seats left", n) for n in (1, 2)]
    assert sentences == ["1 posto libero", "2 posti liberi"]


def test_values_are_escaped_in_html_and_the_message_is_not() -> None:
    assert language("fr").markup("Hello %(name)s,", name="<b>") == "Bonjour &lt;b&gt;,"


# Catalogues ----------------------------------------------------------------------------------------------------------


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
    return {message.id for message in collect() if message.id}


def texts(message: Message) -> tuple[str, ...]:
    return message.string if isinstance(message.string, tuple) else (message.string,)


def translated(code: str) -> list[Message]:
    return [message for message in CATALOGUES[code] if message.id]


def translations(code: str) -> Iterator[tuple[str, str]]:
    """Yield each text of the code, in its plural if it has one, and each of its translations."""
    for message in translated(code):
        source = message.id[-1] if isinstance(message.id, tuple) else message.id
        yield from ((source, text) for text in texts(message))


def test_there_is_a_catalogue_for_each_language_but_that_of_the_code(of_the_code: set[Any]) -> None:
    assert {"en", *CATALOGUES} == set(LANGUAGES)
    assert len(of_the_code) > 100


@each_catalogue
def test_each_message_of_the_code_is_translated_and_no_other(code: str, of_the_code: set[Any]) -> None:
    """`make messages` adds new messages to the catalogues."""
    messages = {message.id for message in translated(code)}
    assert messages == of_the_code
    assert [message.id for message in translated(code) if not all(texts(message)) or message.fuzzy] == []


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
