"""Translates the texts of a booking's experience for its guest. No storage, no clock."""

from typing import Any

import orjson

from booking_core.base.context import Organization
from booking_core.catalogue import experiences
from booking_core.notifications.summary import BookingDetails

_TEXTS = ("title", "meeting_point", "terms")


def translated(row: BookingDetails, organization: Organization, chosen: str | None = None) -> BookingDetails:
    """Return the booking with the texts of its experience in the guest's language, as far as they are translated.

    A text without a translation is in the organization's language, or else as the experience has it.

    Args:
        chosen: the language that the guest chose on the page, in the place of that of the booking.
    """
    if row.translations is None:
        return row
    texts = experiences.texts_for(row.translations, (chosen or row.locale, organization.language))
    given: dict[str, Any] = {name: texts[name] for name in _TEXTS if name in texts}
    if "what_to_bring" in texts:
        given["what_to_bring"] = orjson.dumps(texts["what_to_bring"]).decode()
    return row._replace(
        **given,
        guests=_renamed(row.guests, "tier_id", "tier_label", texts.get("price_tiers", {})),
        add_ons=_renamed(row.add_ons, "id", "label", texts.get("add_ons", {})),
    )


def _renamed(stored: str, key: str, label: str, names: dict[str, str]) -> str:
    """Return stored lines with the names of their tiers or add-ons."""
    if not names:
        return stored
    lines: list[dict[str, Any]] = orjson.loads(stored)
    return orjson.dumps([line | {label: names.get(line[key], line[label])} for line in lines]).decode()
