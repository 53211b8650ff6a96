"""QR codes of bookings and gift cards. No storage, no clock.

The code of a booking is its id, by which staff finds it; never the guest's secret link, since guests show the code.
"""

from io import BytesIO
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from segno import QRCode

_QUIET_ZONE = 4
"""Modules of white around the code, as the standard asks for."""
_MAIL_SCALE = 4
_MASK = 3
"""Every reader takes every mask. To compare all eight would cost four times as much as the rest of the code."""


def svg(content: str) -> Markup:
    """Return the code as an SVG element without a style, so that no policy of a page stops it."""
    inline = _code(content).svg_inline(
        border=_QUIET_ZONE, dark="#000", light="#fff", omitsize=True, svgclass="qr", lineclass=None
    )
    return Markup(inline)  # noqa: S704 - it holds no text


def png(content: str) -> bytes:
    """Return the code as a picture for a mail."""
    out = BytesIO()
    _code(content).save(out, kind="png", border=_QUIET_ZONE, scale=_MAIL_SCALE, dark="#000", light="#fff")
    return out.getvalue()


def _code(content: str) -> "QRCode":
    """Return the code of an id or a gift card's code. Capitals, which mean the same there, make it smaller."""
    import segno  # at the first code: the service starts without it

    return segno.make(content.upper(), error="m", micro=False, mask=_MASK, boost_error=False)
