"""Languages of guests: message catalogues (gettext), and formats of dates, times and money (CLDR).

`choose` picks the tag for a guest, `language` returns its `Language`. Messages are written in English in the code and
in the templates; `messages/` has a catalogue for each other language (decisions/0017).

Times are in the zone that is given, whose name is shown beside them: a guest may read them anywhere. Dates, times and
numbers follow CLDR; the decimals of an amount follow ISO 4217, as everywhere in the service.
"""

import gettext
import re
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_time
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_currency, format_percent, get_currency_symbol
from markupsafe import Markup

from booking_core.base.clock import Zone
from booking_core.models.currencies import minor_digits

# Tags ---------------------------------------------------------------------------------------------------------------

DEFAULT = "en"
NAMES = {"en": "English", "de": "Deutsch", "fr": "Français", "es": "Español", "it": "Italiano", "nb": "Norsk"}
"""The supported languages by code, each with its own name."""
LANGUAGES = tuple(NAMES)


def code_of(tag: str) -> str:
    """Return the primary language of a tag: `de` of `de-AT`."""
    return tag.partition("-")[0].lower()


def choose(*tags: str | None) -> str:
    """Return the first tag of a supported language, or the default: of the booking, then of the organization."""
    return next((tag for tag in tags if tag and code_of(tag) in NAMES), DEFAULT)


# Catalogues ---------------------------------------------------------------------------------------------------------

FOLDER = Path(__file__).with_name("messages")


def N_(message: str) -> str:  # noqa: N802 - the name that gettext's tools know
    """Mark a message for the catalogues; it is translated where it is used."""
    return message


@cache
def _translations(code: str) -> gettext.NullTranslations:
    """Return the translations of a language. Without a catalogue, as for English, a message is its own translation."""
    path = FOLDER / f"{code}.po"
    if not path.exists():
        return gettext.NullTranslations()
    compiled = BytesIO()
    with path.open("rb") as file:
        write_mo(compiled, read_po(file, locale=code))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


# Formats ------------------------------------------------------------------------------------------------------------

_FOR_EVERYWHERE = Locale("en", "GB")
"""The formats of English without a region: its guests come from everywhere."""
_ENGLISH_DATE = "EEEE d MMMM y"
_NUMBER = re.compile(r"[#0,.]+")
"""The number in a pattern of CLDR."""
_TAGS_MAX = 256
"""Tags come from requests: not every tag is kept."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language of a guest, such as `de-AT`: the translations of German and the formats of Austria."""

    code: str
    """The primary language, for the `lang` of a page and the `Content-Language` of a mail."""
    locale: Locale = field(repr=False)
    translations: gettext.NullTranslations = field(repr=False)

    def gettext(self, message: str, **values: object) -> str:
        """Return the translation of a message, with its placeholders filled."""
        translated = self.translations.gettext(message)
        return translated % values if values else translated

    def ngettext(self, singular: str, plural: str, count: int) -> str:
        """Return the translation for a count, which fills the placeholder `count`."""
        return self.translations.ngettext(singular, plural, count) % {"count": count}

    def markup(self, message: str, **values: object) -> Markup:
        """Return the translation of a message as HTML, with its values escaped."""
        translated = Markup(self.translations.gettext(message))  # noqa: S704 - the catalogues are our own
        return translated % values if values else translated

    def money(self, amount_minor: int, currency: str) -> str:
        """Return an amount such as `890.00 NOK` or `89,00 €`.

        A currency whose symbol would need an addition in this language (US$, JP¥) is written as its code.
        """
        digits = minor_digits(currency)
        amount = Decimal(amount_minor).scaleb(-digits)
        pattern = self._money_pattern(currency, digits)
        return format_currency(amount, currency, pattern, locale=self.locale, currency_digits=False)

    def _money_pattern(self, currency: str, digits: int) -> str:
        number = "#,##0" + ("." + "0" * digits if digits else "")
        if len(get_currency_symbol(currency, locale=self.locale)) > 1:
            return f"{number}{' ' if self.code == DEFAULT else chr(0xA0)}¤¤"
        return _NUMBER.sub(number, str(self.locale.currency_formats["standard"].pattern).partition(";")[0])

    def percent(self, percent: int) -> str:
        """Return a percentage such as `30%` or `30 %`."""
        return format_percent(Decimal(percent) / 100, locale=self.locale)

    def day(self, zone: Zone, at: int) -> str:
        """Return a date such as `24 December 2026`."""
        return format_date(zone.wall(at).date(), "long", locale=self.locale)

    def moment(self, zone: Zone, at: int) -> str:
        """Return a time such as `Thursday 24 December 2026, 10:00`."""
        return self._moment(zone.wall(at))

    def span(self, zone: Zone, starts_at: int, ends_at: int) -> str:
        """Return a span such as `Thursday 24 December 2026, 10:00–12:30`; with the date of the end on another day."""
        starts, ends = zone.wall(starts_at), zone.wall(ends_at)
        if ends_at <= starts_at:
            return self._moment(starts)
        if starts.date() == ends.date():
            return f"{self._moment(starts)}–{self._time(ends)}"
        return f"{self._moment(starts)} – {self._moment(ends)}"

    def _moment(self, wall: datetime) -> str:
        date_format = _ENGLISH_DATE if self.locale == _FOR_EVERYWHERE else "full"
        return f"{format_date(wall.date(), date_format, locale=self.locale)}, {self._time(wall)}"

    def _time(self, wall: datetime) -> str:
        return format_time(wall.time(), "short", locale=self.locale)


@lru_cache(maxsize=_TAGS_MAX)
def language(tag: str) -> Language:
    """Return the language of a tag; of an unknown region with the formats of its language, of any other English."""
    code = code_of(tag) if code_of(tag) in NAMES else DEFAULT
    return Language(code, _locale(tag, code), _translations(code))


def _locale(tag: str, code: str) -> Locale:
    if "-" in tag and code_of(tag) == code:
        try:
            return Locale.parse(tag, sep="-")
        except (UnknownLocaleError, ValueError):
            pass
    return _FOR_EVERYWHERE if code == DEFAULT else Locale.parse(code)


ENGLISH = language(DEFAULT)
"""Of staff, and of guests of whom no other language is known."""
