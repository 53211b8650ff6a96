"""Formats of user text, places, zones, colours and QR codes. No storage, no clock.

Money and times are in a language (`booking_core.base.languages`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from markupsafe import Markup

from booking_core.base.clock import Zone
from booking_core.base.context import Organization

if TYPE_CHECKING:
    from segno import QRCode

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Marks that change the text direction. Right-to-left scripts do not need them, and a name with one could make the rest
of a line read as something else."""


def one_line(text: str) -> str:
    """Return the text on one line, safe for a header.

    It has no line breaks, no control characters, no lone surrogates, and single blanks between words.
    """
    return " ".join(_UNPRINTABLE.sub(" ", _REORDERING.sub("", text)).split())


def lines(text: str) -> list[str]:
    """Return the lines of a text, each without characters that break a line."""
    return [one_line(line) for line in text.strip().splitlines()]


def shortened(text: str, length: int) -> str:
    """Cut a text that is longer than `length`, and end it with an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def zone_name(zone: Zone, at: int) -> str:
    """Return a zone such as `Europe/Oslo, UTC+01:00`.

    The offset distinguishes the two equal hours of a clock change.
    """
    offset = zone.iso(at)[19:]
    return f"{zone.name}, UTC{'' if offset in ('+00:00', 'Z') else offset}"


def map_url(latitude: float | None, longitude: float | None, address: str | None) -> str | None:
    """Return the address of a map of the meeting place, which telephones open in their own program."""
    if latitude is not None and longitude is not None:
        place = f"{latitude:.6f},{longitude:.6f}"
    elif address and address.strip():
        place = one_line(address)
    else:
        return None
    return f"https://www.google.com/maps/search/?{urlencode({'api': 1, 'query': place})}"


# Colours --------------------------------------------------------------------------------------------------------------

DEFAULT_COLOR = "#1d4ed8"
CONTRAST_MIN = 4.6
"""WCAG 2.2, level AA, asks for 4.5 between a text and its background; a little above it, since colours are rounded."""
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


def contrast(colour: str, background: str) -> float:
    """Return the contrast of two colours written #rrggbb, from 1 to 21."""
    lighter, darker = sorted((_luminance(colour), _luminance(background)), reverse=True)
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
        mixed = (
            round(channel + (its - channel) * step / _STEPS)
            for channel, its in zip(_rgb(color), _rgb(towards), strict=True)
        )
        yield "#{:02x}{:02x}{:02x}".format(*mixed)


def _rgb(color: str) -> Rgb:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    red, green, blue = (_linear(part / 255) for part in _rgb(color))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


# QR codes -------------------------------------------------------------------------------------------------------------

_QUIET_ZONE = 4
"""Modules of white around the code, as the standard asks for."""
_MAIL_SCALE = 4
_MASK = 3
"""Every reader takes every mask. To compare all eight would cost four times as much as the rest of the code."""


def qr_svg(content: str) -> Markup:
    """Return the code as an SVG element without a style: no policy of a page stops it."""
    inline = _code(content).svg_inline(
        border=_QUIET_ZONE, dark="#000", light="#fff", omitsize=True, svgclass="qr", lineclass=None
    )
    return Markup(inline)  # noqa: S704 - it holds no text


def qr_png(content: str) -> bytes:
    """Return the code as a picture for a mail."""
    out = BytesIO()
    _code(content).save(out, kind="png", border=_QUIET_ZONE, scale=_MAIL_SCALE, dark="#000", light="#fff")
    return out.getvalue()


def _code(content: str) -> "QRCode":
    """Return the code of an id or a gift card's code. Capitals, which mean the same there, make it smaller.

    Staff finds a booking by its code, which is its id; never the guest's secret link, since guests show the code.
    """
    import segno  # at the first code: the service starts without it

    return segno.make(content.upper(), error="m", micro=False, mask=_MASK, boost_error=False)
