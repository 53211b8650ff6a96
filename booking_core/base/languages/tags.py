"""Language tags (BCP 47), and the choice of a supported one."""

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
