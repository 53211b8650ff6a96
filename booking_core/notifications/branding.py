"""The identity of an organization in mails and on the guest's page, with colours that stay readable.

No storage, no clock. Contrast is that of WCAG 2.2, whose level AA asks for 4.5 between a text and its background.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from booking_core.base.context import Organization

DEFAULT_COLOR = "#1d4ed8"
CONTRAST_MIN = 4.6
"""A little above the 4.5 that is asked for, since colours are rounded."""
WHITE, BLACK = "#ffffff", "#000000"
PAPER, NIGHT = "#ffffff", "#1b2230"
"""The backgrounds of text in the light and in the dark scheme."""
_STEPS = 20

Rgb = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Brand:
    """The name, logo, contact and colours of an organization. A value that is not set is None."""

    name: str
    logo_url: str | None
    website: str | None
    contact_email: str | None
    contact_phone: str | None
    color: str
    """The organization's own colour, for areas."""
    on_color: str
    """White or black: the text on such an area."""
    link: str
    """The colour, as far as it can be read on white."""
    link_dark: str
    """The colour, as far as it can be read in the dark scheme."""


def brand(organization: Organization) -> Brand:
    """Return the identity of an organization."""
    color = organization.brand_color or DEFAULT_COLOR
    return Brand(
        name=organization.name,
        logo_url=organization.logo_url,
        website=organization.website,
        contact_email=organization.contact_email or organization.staff_email,
        contact_phone=organization.contact_phone,
        color=color,
        on_color=text_on(color),
        link=readable(color, PAPER),
        link_dark=readable(color, NIGHT),
    )


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours written #rrggbb, from 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def text_on(background: str) -> str:
    """Return white where it can be read on the background, else black."""
    return WHITE if contrast(WHITE, background) >= CONTRAST_MIN else BLACK


@lru_cache(maxsize=1024)
def readable(color: str, background: str) -> str:
    """Return the colour, or the nearest of its darker or lighter shades that can be read on the background."""
    towards = BLACK if contrast(BLACK, background) > contrast(WHITE, background) else WHITE
    return next(shade for shade in _shades(color, towards) if contrast(shade, background) >= CONTRAST_MIN)


def _shades(color: str, towards: str) -> Iterator[str]:
    for step in range(_STEPS + 1):
        mixed = (round(own + (its - own) * step / _STEPS) for own, its in zip(_rgb(color), _rgb(towards), strict=True))
        yield "#{:02x}{:02x}{:02x}".format(*mixed)


def _rgb(color: str) -> Rgb:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    red, green, blue = (_linear(part / 255) for part in _rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)
