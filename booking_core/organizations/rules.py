"""Rules of organizations: parsing of slugs, names and the settings of `booking orgs set`."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from booking_core.base import clock
from booking_core.base.context import Organization
from booking_core.base.errors import Conflict, Malformed
from booking_core.base.languages import NAMES, code_of
from booking_core.models.base import LANGUAGE_TAG_PATTERN, mailbox, single_line
from booking_core.models.errors import ErrorDetail
from booking_core.models.limits import TEXT_LENGTH_MAX
from booking_core.models.money import CURRENCIES

SLUG_LENGTH_MAX = 63
"""The length of a DNS label: a slug can become a host name."""
HOURS_MAX = 8_784
"""The hours of a leap year."""
PENDING_MINUTES_MAX = 10_080
"""A week. A longer time would keep seats from other guests."""

SettingParser = Callable[[str], Any]
"""Parses the text of a setting, or raises a ValueError with its format."""

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_ADDRESS = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[!#-;=?-\[\]_a-z~]*)?", re.ASCII)
"""Printable ASCII without a quote, a blank and angle brackets."""
_COLOR = re.compile(r"#[0-9a-fA-F]{6}", re.ASCII)
_PHONE = re.compile(r"\+?[0-9][0-9 ().\-]{3,39}", re.ASCII)
URL_LENGTH_MAX = 2048
_SWITCH = {"on": True, "off": False}


def slug(text: str) -> str:
    """Validate a slug: lower-case words joined by hyphens."""
    if not _SLUG.fullmatch(text) or len(text) > SLUG_LENGTH_MAX:
        raise ValueError(f"must be lower-case words joined by hyphens, at most {SLUG_LENGTH_MAX} characters")
    return text


def name(text: str) -> str:
    """Validate a name, and strip blanks around it."""
    text = single_line(text).strip()
    if not 1 <= len(text) <= TEXT_LENGTH_MAX:
        raise ValueError(f"must have 1 to {TEXT_LENGTH_MAX} characters")
    return text


def timezone(text: str) -> str:
    """Validate the name of a zone of the IANA database."""
    return clock.zone(text).name


def currency(text: str) -> str:
    """Validate an ISO 4217 code."""
    if text not in CURRENCIES:
        raise ValueError("must be an ISO 4217 code in capitals, such as NOK")
    return text


def _switch(text: str) -> bool:
    if text not in _SWITCH:
        raise ValueError("must be on or off")
    return _SWITCH[text]


def _whole(least: int, most: int) -> SettingParser:
    def parse(text: str) -> int:
        # Only nine digits are parsed, after leading zeros: they show that a number of 400 digits is too large.
        if not (text.isascii() and text.isdecimal() and least <= int(text.lstrip("0")[:9] or "0") <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def _percent(text: str) -> float:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    if not (value.is_finite() and 0 <= value <= 100):
        raise ValueError("must be a number from 0 to 100")
    return float(value)


def _or_none(parse: SettingParser) -> SettingParser:
    return lambda text: parse(text) if text else None


def _email(text: str) -> str:
    if len(text) > TEXT_LENGTH_MAX:
        raise ValueError(f"must have at most {TEXT_LENGTH_MAX} characters")
    return mailbox(text)


def _web_address(text: str) -> str:
    """Validate an address that a page or a mail loads or links to: https, printable, without a space or a quote."""
    if not _ADDRESS.fullmatch(text):
        raise ValueError("must be an address that begins with https://, such as https://example.com/logo.png")
    if len(text) > URL_LENGTH_MAX:
        raise ValueError(f"must have at most {URL_LENGTH_MAX} characters")
    return text


def _color(text: str) -> str:
    if not _COLOR.fullmatch(text):
        raise ValueError("must be a colour written #rrggbb, such as #0f766e")
    return text.lower()


def _phone(text: str) -> str:
    if not _PHONE.fullmatch(text):
        raise ValueError("must be a telephone number, such as +47 55 12 34 56")
    return text


def _language(text: str) -> str:
    if not re.fullmatch(LANGUAGE_TAG_PATTERN, text) or code_of(text) not in NAMES:
        raise ValueError(f"must be one of {', '.join(NAMES)}, with a region if you like, such as de-AT")
    return text


NEW: Mapping[str, SettingParser] = {"slug": slug, "name": name, "timezone": timezone, "currency": currency}
"""The fields of a new organization."""

SETTINGS: Mapping[str, SettingParser] = {
    "name": name,
    "timezone": timezone,
    "default_currency": currency,
    "api_app": _switch,
    "plan_api": _switch,
    "add_ons_app": _switch,
    "hours_before_booking_closes": _whole(0, HOURS_MAX),
    "pending_minutes": _or_none(_whole(1, PENDING_MINUTES_MAX)),
    "refund_full_until_hours": _whole(0, HOURS_MAX),
    "refund_late_percent": _whole(0, 100),
    "notify_staff": _switch,
    "staff_email": _or_none(_email),
    "on_site_fee_percent": _percent,
    "cancel_under_minimum": _switch,
    "availability_events": _switch,
    "language": _or_none(_language),
    "logo_url": _or_none(_web_address),
    "brand_color": _or_none(_color),
    "website": _or_none(_web_address),
    "contact_email": _or_none(_email),
    "contact_phone": _or_none(_phone),
    "reply_to_email": _or_none(_email),
    "guest_cancel_until_hours": _or_none(_whole(0, HOURS_MAX)),
    "guest_move_until_hours": _or_none(_whole(0, HOURS_MAX)),
}
"""The keys of `booking orgs set`, in the order they are listed; each is a column. An empty `pending_minutes` means the
installation's default, an empty `staff_email` no recipient, an empty `reply_to_email` the address of staff, an empty
`guest_cancel_until_hours` or `guest_move_until_hours` that guests cancel or move no booking on their page."""


def parsed(parsers: Mapping[str, SettingParser], texts: Mapping[str, str]) -> dict[str, Any]:
    """Parse the texts of settings.

    Raises:
        Malformed: with one detail for each key that is unknown or has a bad value.
    """
    values: dict[str, Any] = {}
    problems: list[ErrorDetail] = []
    for key, text in texts.items():
        try:
            values[key] = _parsed(parsers, key, text)
        except ValueError as error:
            problems.append(ErrorDetail(field=key, reason="invalid", message=str(error)))
    if problems:
        raise Malformed("; ".join(f"{problem.field} {problem.message}" for problem in problems), details=problems)
    return values


def _parsed(parsers: Mapping[str, SettingParser], key: str, text: str) -> Any:
    if key not in parsers:
        raise ValueError(f"is not one of {', '.join(parsers)}")
    return parsers[key](text)


def require_sandbox(organization: Organization) -> None:
    """Refuse a live organization.

    Raises:
        Conflict: `not_a_sandbox`.
    """
    if not organization.is_sandbox:
        raise Conflict("not_a_sandbox", "The organization is live: its clock is the real one, and its mails are sent.")
