"""Renders the pages of guests as HTML responses, and their calendar entry."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup

from booking_core import bookings, notifications
from booking_core.base.errors import BookingError
from booking_core.base.languages import N_, NAMES, Language, choose, language
from booking_core.bookings import Move, Refundable
from booking_core.notifications import Brand, GiftCardView, GuestView
from booking_server.api.errors import INTERNAL_STATUS, STATUS
from booking_server.guest_pages.links import Link, language_of_stranger
from booking_server.guest_pages.offers import offer

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

_FOLDER = Path(__file__).parent / "templates"
_HOST = re.compile(r"[a-z0-9.-]+", re.ASCII)

_AGAIN = N_("Please open the link in your confirmation mail once more.")
_MESSAGES = {
    404: (
        N_("This link does not work"),
        N_(
            "It may be incomplete or expired. Please open the link in your confirmation mail once more, or contact the"
            " company you booked with."
        ),
    ),
    405: (N_("That is not possible here"), _AGAIN),
    413: (N_("That is not possible here"), _AGAIN),
    429: (N_("Too many visits at once"), N_("Please wait a minute, then load the page again.")),
}
_REFUSALS = {
    "departure_cancelled": N_("That departure is cancelled. Please choose another one."),
    "departure_closed": N_("That departure can no longer be booked. Please choose another one."),
    "departure_started": N_("That departure has begun. Please choose another one."),
    "price_differs": N_("That departure has another price. Please choose another one."),
    "insufficient_capacity": N_("That departure does not have enough seats left. Please choose another one."),
}
_UNCHOSEN = N_("Please choose one of the departures.")


# Pages of a booking ----------------------------------------------------------------------------------------------


def booking_page(view: GuestView, link: Link, *, has_moved: bool = False, is_refused: bool = False) -> HTMLResponse:
    """Render the booking, with links to the actions that its guest may take now.

    Args:
        has_moved: the guest has just moved it.
        is_refused: the guest has just tried to cancel or move it, too late.
    """
    is_shown = view.summary.is_confirmed and not view.has_begun
    return _render(
        "booking.html",
        409 if is_refused else 200,
        view.language,
        _brand(view),
        link,
        picture=view.summary.image_url,
        public_url=view.actor.installation.public_url,
        booking=view.summary,
        can_cancel=bookings.guest_may_cancel(view.actor, view.row),
        can_move=bookings.guest_may_move(view.actor, view.row),
        has_begun=view.has_begun,
        has_moved=has_moved,
        is_refused=is_refused,
        code=notifications.qr_svg(view.row.id) if is_shown else None,
    )


def cancellation_page(
    view: GuestView, link: Link, refundable: Refundable, *, has_changed: bool = False
) -> HTMLResponse:
    """Render the form that cancels the booking, with the refund that is offered.

    Args:
        refundable: of the booking, now.
        has_changed: the offer differs from the offer that the guest accepted.
    """
    status = 409 if has_changed else 200
    return _render(
        "cancel.html",
        status,
        view.language,
        _brand(view),
        link,
        booking=view.summary,
        offer=offer(view, refundable),
        has_changed=has_changed,
    )


def move_page(view: GuestView, link: Link, moves: Sequence[Move], refusal: BookingError | None = None) -> HTMLResponse:
    """Render the form that moves the booking.

    Args:
        moves: the departures that can be chosen.
        refusal: of the departure that was chosen before.
    """
    wording, zone = view.language, view.actor.organization.zone
    choices = [(move, wording.span(zone, move.starts_at, move.ends_at)) for move in moves]
    return _render(
        "move.html",
        200 if refusal is None else STATUS[type(refusal)],
        wording,
        _brand(view),
        link,
        booking=view.summary,
        choices=[
            (
                move.departure_id,
                when,
                wording.ngettext("%(count)d seat left", "%(count)d seats left", move.seats_available),
            )
            for move, when in choices
        ],
        refusal=_refusal(wording, refusal) if refusal else None,
    )


def _refusal(wording: Language, refusal: BookingError) -> str:
    reasons = [detail.reason for detail in refusal.details or ()]
    text = next((_REFUSALS[reason] for reason in (*reasons, refusal.code) if reason in _REFUSALS), _UNCHOSEN)
    return wording.gettext(text)


def receipt_page(view: GuestView, link: Link) -> HTMLResponse:
    """Render the receipt of the booking, to be printed."""
    wording, zone = view.language, view.actor.organization.zone
    return _render(
        "receipt.html",
        200,
        wording,
        _brand(view),
        link,
        booking=view.summary,
        booked_on=wording.day(zone, view.row.created_at),
        printed_on=wording.day(zone, view.actor.at),
    )


def calendar_entry(view: GuestView, organizer: str) -> Response:
    """Return the booking's calendar entry as a file."""
    organization, at = view.actor.organization, view.actor.at
    entry = notifications.calendar_entry(view.row, organization, organizer=organizer, at=at, wording=view.language)
    headers = {"content-disposition": 'attachment; filename="booking.ics"'}
    return Response(entry, media_type="text/calendar; charset=utf-8", headers=headers)


# Other pages -----------------------------------------------------------------------------------------------------


def gift_card_page(view: GiftCardView, link: Link) -> HTMLResponse:
    """Render the gift card with its code and its present balance."""
    code = view.summary.code
    return _render(
        "gift_card.html",
        200,
        view.language,
        notifications.brand(view.actor.organization),
        link,
        card=view.summary,
        code=notifications.qr_svg(code) if code and view.summary.is_usable else None,
    )


def error_page(request: Request, error: BookingError) -> HTMLResponse:
    """Render an error for the guest, in a language that the browser accepts."""
    return _message_page(request, STATUS[type(error)])


def failure_page(request: Request) -> HTMLResponse:
    """Render a failure on our side for the guest."""
    return _message_page(request, INTERNAL_STATUS)


def _message_page(request: Request, status: int) -> HTMLResponse:
    wording = language(choose(language_of_stranger(request)))
    title, words = _MESSAGES.get(status, (N_("Please try again"), _advice(request.method)))
    context = {"title": wording.gettext(title), "words": wording.gettext(words)}
    return _render("message.html", status, wording, None, None, **context)


def _advice(method: str) -> str:
    """Return the advice after a fault: when the connection is lost during a commit, its outcome is unknown."""
    if method == "POST":
        return N_(
            "The page is not available at the moment. Your change may have been made, or not. Please open your link"
            " again in a minute: the page will say."
        )
    return N_("The page is not available at the moment. Nothing was changed. Please try again in a minute.")


# Rendering -------------------------------------------------------------------------------------------------------


def _brand(view: GuestView) -> Brand:
    return notifications.brand(view.actor.organization)


def _render(
    template: str,
    status: int,
    wording: Language,
    brand: Brand | None,
    link: Link | None,
    *,
    picture: str | None = None,
    public_url: str = "",
    **context: Any,
) -> HTMLResponse:
    urls = {"logo": brand.logo_url if brand else None, "picture": picture}
    sources = {name: _source(url, public_url) for name, url in urls.items()}
    pictures = {name: url if sources[name] else None for name, url in urls.items()}
    css = _css(brand)
    html = (
        _environment()
        .get_template(template)
        .render(
            context | pictures,
            css=Markup(css),  # noqa: S704 - our own file
            brand=brand,
            link=link,
            lang=wording.code,
            languages=NAMES,
            _=wording.markup,
        )
    )
    response = HTMLResponse(html.encode("utf-8", "replace"), status)
    response.raw_headers.extend(security_headers(css, tuple(sorted({source for source in sources.values() if source}))))
    return response


def _source(url: str | None, public_url: str) -> str | None:
    """Return the origin of a picture for the policy, or None for a picture without TLS, which a page does not load.

    Args:
        public_url: of the service, whose pictures are loaded as the page is.
    """
    if not url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    is_own = parts.scheme == "http" and url.startswith(f"{public_url}/")
    if not (parts.scheme == "https" or is_own) or not _HOST.fullmatch(host):
        return None
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}"


@lru_cache(maxsize=256)
def security_headers(css: str = "", sources: tuple[str, ...] = ()) -> tuple[tuple[bytes, bytes], ...]:
    """Return headers that forbid scripts, framing, referrers, indexing, and all content but the style and pictures.

    Args:
        css: the style of the page.
        sources: the origins of its pictures.
    """
    style = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    pictures = f" img-src {' '.join(sources)};" if sources else ""
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}';{pictures} form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    )
    return (
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-robots-tag", b"noindex, nofollow"),
        (b"x-frame-options", b"DENY"),
    )


def _css(brand: Brand | None) -> str:
    """Return the style of the pages, with the colours of an organization."""
    if brand is None:
        return _base_css()
    values = {"color": brand.color, "on-color": brand.on_color, "link": brand.link, "link-dark": brand.link_dark}
    variables = "".join(f"--{name}:{value};" for name, value in values.items())
    return f"{_base_css()}:root{{{variables}}}"


@lru_cache(maxsize=1)
def _base_css() -> str:
    return (_FOLDER / "page.css").read_text()


@lru_cache(maxsize=1)
def _environment() -> "SandboxedEnvironment":
    from jinja2 import FileSystemLoader, StrictUndefined  # at the first page: the service starts without it
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["bdi"] = notifications.isolated
    return environment
