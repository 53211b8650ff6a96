"""Renders the guest's pages as HTML responses."""

import base64
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup

from booking_core.errors import BookingError
from booking_core.notifications import GuestView
from booking_server.api import errors
from booking_server.guest_pages.offers import can_cancel, offer

_FOLDER = Path(__file__).parent / "templates"

_UNCHANGED = "Nothing was changed. Please try again in a minute."
_UNKNOWN = "Your booking may be cancelled by now, or not. Please open your link again in a minute: the page will say."
_AGAIN = "Please open the link in your confirmation mail once more."
_MESSAGES = {
    404: (
        "This link does not work",
        "It may be incomplete or expired. Please open the link in your confirmation mail once more, or contact the"
        " company you booked with.",
    ),
    405: ("That is not possible here", _AGAIN),
    413: ("That is not possible here", _AGAIN),
    429: ("Too many visits at once", "Please wait a minute, then load the page again."),
}


def booking_page(view: GuestView, path: str, *, status: int = 200) -> HTMLResponse:
    """Render the booking, with a link to the cancellation page while it can be cancelled."""
    organization = view.actor.organization
    return _render(
        "booking.html",
        status,
        booking=view.summary,
        organization=organization.name,
        contact=organization.staff_email,
        path=path,
        can_cancel=can_cancel(view),
    )


def cancellation_page(view: GuestView, path: str, *, has_changed: bool = False) -> HTMLResponse:
    """Render the form that cancels the booking, with the refund that is offered.

    Args:
        has_changed: the offer is not the one that the guest agreed to.
    """
    return _render(
        "cancel.html",
        409 if has_changed else 200,
        booking=view.summary,
        organization=view.actor.organization.name,
        path=path,
        offer=offer(view),
        has_changed=has_changed,
    )


def error_page(error: BookingError, method: str) -> HTMLResponse:
    """Render an error for the guest."""
    status = errors.STATUS[type(error)]
    # When the connection is lost during a commit, it is unknown whether the booking was cancelled.
    advice = _UNKNOWN if method == "POST" else _UNCHANGED
    default = "Please try again", f"The page is not available at the moment. {advice}"
    title, words = _MESSAGES.get(status, default)
    response = _render("message.html", status, title=title, words=words)
    response.headers.update(errors.headers(error))
    return response


@lru_cache(maxsize=1)
def security_headers() -> tuple[tuple[bytes, bytes], ...]:
    """Return headers that forbid scripts, external content, framing, referrers and indexing."""
    style = base64.b64encode(hashlib.sha256(_css().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return (
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-robots-tag", b"noindex, nofollow"),
        (b"x-frame-options", b"DENY"),
    )


def _render(template: str, status: int, **context: Any) -> HTMLResponse:
    html = _environment().get_template(template).render(context, css=Markup(_css()))  # noqa: S704 - our own file
    return HTMLResponse(html.encode("utf-8", "replace"), status)


@lru_cache(maxsize=1)
def _css() -> str:
    return (_FOLDER / "page.css").read_text()


@lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    return SandboxedEnvironment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
