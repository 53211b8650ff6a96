"""Languages of guests: message catalogues (gettext), and formats of dates, times and money (CLDR).

`choose` picks the tag for a guest, `language` returns its `Language`. Messages are written in English in the code and
in the templates; `messages/` has a catalogue for each other language (decisions/0017).
"""

from booking_core.base.languages.catalogue import N_
from booking_core.base.languages.language import ENGLISH, Language, language
from booking_core.base.languages.tags import DEFAULT, LANGUAGES, NAMES, choose

__all__ = ["DEFAULT", "ENGLISH", "LANGUAGES", "NAMES", "N_", "Language", "choose", "language"]
