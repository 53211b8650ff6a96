"""Texts of an experience in other languages than its own. No storage, no clock.

They are stored as a JSON object by language tag; each has the texts and names that are translated, and no others.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

_UNTRANSLATED: dict[str, Any] = {
    **dict.fromkeys(("title", "excerpt", "meeting_point", "what_to_bring", "terms")),
    "price_tiers": {},
    "add_ons": {},
}
NAMES = ("price_tiers", "add_ons")
"""Keys of the names that are translated, each an object by id."""

Texts = Mapping[str, Any]
"""Texts by field; the names of price tiers and add-ons by id."""


def present(stored: str | None, *, has_add_ons: bool) -> dict[str, dict[str, Any]]:
    """Present translations as in the API.

    Args:
        has_add_ons: the Add-ons app is on, so that add-ons can be booked.
    """
    found: dict[str, dict[str, Any]] = orjson.loads(stored) if stored else {}
    hidden: dict[str, Any] = {} if has_add_ons else {"add_ons": {}}
    return {tag: _UNTRANSLATED | texts | hidden for tag, texts in found.items()}


def closest(tags: Iterable[str], wanted: str) -> str | None:
    """Return the tag that serves a wanted language: the same one, else the one that is left when its last parts are cut
    off (`de` for `de-AT`, RFC 4647), else another one of the same language. Case does not matter."""
    known = {tag.lower(): tag for tag in tags}
    prefix = wanted.lower()
    while prefix:
        if prefix in known:
            return known[prefix]
        prefix = prefix.rpartition("-")[0]
    primary = wanted.lower().partition("-")[0]
    return next((tag for lowered, tag in known.items() if lowered.partition("-")[0] == primary), None)


def texts_for(stored: str | None, wanted: Iterable[str | None]) -> Texts:
    """Return the texts for a guest, each in the first of the wanted languages that has it; none without a translation.

    Args:
        wanted: language tags, the preferred one first.
    """
    found: dict[str, dict[str, Any]] = orjson.loads(stored) if stored else {}
    merged: dict[str, Any] = {}
    for language in filter(None, wanted):
        tag = closest(found, language)
        for key, value in found.get(tag or "", {}).items():
            if key in NAMES:
                merged[key] = value | merged.get(key, {})
            elif value:
                merged.setdefault(key, value)
    return merged


def unknown_names(
    translations: object, tiers: Iterable[str] | None, add_ons: Iterable[str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (language tag, key, id) of translated names of price tiers and add-ons that the experience does not have.

    Args:
        translations: by language tag; parts of another shape are left out.
        tiers, add_ons: the ids that the experience has; None: not known.
    """
    known = {"price_tiers": tiers, "add_ons": add_ons}
    for tag, texts in translations.items() if isinstance(translations, dict) else ():
        for key, ids in known.items():
            names = texts.get(key) if isinstance(texts, dict) else None
            if ids is not None and isinstance(names, dict):
                yield from ((tag, key, each) for each in names if each not in set(ids))
