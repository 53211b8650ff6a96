"""The texts of an experience in other languages: as they are stored, and the names that they may have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from booking_core.catalogue import experiences
from booking_core.catalogue.catalog.document import Problem, Texts, did_you_mean, pointer
from booking_core.models.experiences import STANDARD_TIER_ID

NAMES = {"price_tiers": "price tier", "add_ons": "add-on"}
"""Keys of the names that are translated, each with the noun of its entries."""


def stored(translations: Mapping[str, Texts]) -> dict[str, Any] | None:
    """Return the texts that are given, by language; None: there are none."""
    dumped = {tag: texts.model_dump(exclude_defaults=True) for tag, texts in translations.items()}
    return {tag: texts for tag, texts in dumped.items() if texts} or None


def unknown_names(
    path: str,
    translations: object,
    *,
    price_tiers: Sequence[str] | None = None,
    add_ons: Sequence[str] | None = None,
) -> Iterator[Problem]:
    """Yield a problem for each translated name of a price tier or add-on that the experience does not have.

    Args:
        path: the pointer of the experience.
        translations: by language; parts of another shape are left out.
        price_tiers, add_ons: the ids that it has, without the standard tier; None: not known.
    """
    tiers = None if price_tiers is None else (price_tiers or [STANDARD_TIER_ID])
    known = {"price_tiers": tiers, "add_ons": add_ons}
    for tag, key, each in experiences.unknown_names(translations, tiers, add_ons):
        close = did_you_mean(each, known[key] or ())
        yield Problem(path + pointer("translations", tag, key, each), f"is no {NAMES[key]} of its experience{close}")
