"""The guest's page: behind the secret link a guest sees the booking, and can cancel it. Plain HTML, without a script.

Not a part of the API: whoever has the link may look and cancel, and needs no key. A GET changes nothing; a cancellation
is a POST from a page that says what it means, and what would be returned.
"""

import asyncio
import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup
from starlette.types import Receive, Scope, Send

from booking_core import bookings, notifications, payments
from booking_core.db.engine import Tx
from booking_core.db.writes import Writes
from booking_core.errors import BookingError, MethodNotAllowed, RateLimited
from booking_core.models.bookings import BookingStatus, CancelReason, PaymentSource, PaymentStatus
from booking_core.notifications import GuestView
from booking_server.api import errors
from booking_server.api.requests import read_body
from booking_server.execution.rate_limit import ANONYMOUS, Reading, anonymous_bucket
from booking_server.execution.service import Service

PATH = "/manage/{token:path}"
"""All that lies below, so that a link that was cut short or pasted with a dot gets the page of a bad link too."""

_FOLDER = Path(__file__).parent / "templates"
_READ = frozenset({"GET", "HEAD"})
_METHODS = ("GET", "HEAD", "POST")
_CANCEL = "/cancel"
_FORM_BYTES_MAX = 256


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


@lru_cache(maxsize=1)
def _safe() -> list[tuple[bytes, bytes]]:
    """Nothing may run, be loaded, frame the page, be told its address, or list it."""
    style = base64.b64encode(hashlib.sha256(_css().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-robots-tag", b"noindex, nofollow"),
        (b"x-frame-options", b"DENY"),
    ]


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    status: int
    html: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def send(self, send: Send, reading: Reading | None) -> None:
        body = self.html.encode("utf-8", "replace")
        kind = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        headers = [*kind, *_safe(), *self.headers, *(reading.headers if reading else ())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _page(status: int, template: str, **given: Any) -> Page:
    return Page(status, _environment().get_template(template).render(given, css=Markup(_css())))  # noqa: S704 - ours


_CERTAIN = "Nothing was changed. Please try again in a minute."
_UNCERTAIN = "Your booking may be cancelled by now, or not. Please open your link again in a minute: the page will say."


def _message(error: BookingError, method: str) -> Page:
    """What is said instead of the page."""
    # A connection that is lost while a cancellation is committed leaves it open whether it was.
    away = f"The page is not to be had at the moment. {_CERTAIN if method in _READ else _UNCERTAIN}"
    title, words = {
        404: ("This link does not work", "It may be incomplete, or its time is over. Please open the link in your"
              " confirmation mail once more, or write to whoever you booked with."),
        405: ("That is not possible here", "Please open the link in your confirmation mail once more."),
        413: ("That is not possible here", "Please open the link in your confirmation mail once more."),
        429: ("Too many visits at once", "Please wait a minute, then load the page again."),
    }.get(errors.STATUS[type(error)], ("Please try again", away))  # fmt: skip
    page = _page(errors.STATUS[type(error)], "message.html", title=title, words=words)
    return Page(page.status, page.html, tuple((k.encode(), v.encode()) for k, v in errors.headers(error).items()))


# What is shown ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """What the guest would get back."""

    minor: int
    words: str
    gift_card: str | None


def offer(view: GuestView) -> Offer:
    """What cancelling now would return, by the organization's policy (decision B12)."""
    row, organization = view.row, view.actor.organization
    gift_card = notifications.money(row.gift_card_minor, row.currency) if row.gift_card_minor else None
    is_card = row.payment_source == PaymentSource.STRIPE and row.payment_status == PaymentStatus.PAID
    paid = (row.paid_minor or 0) if is_card else row.recorded_minor
    if not paid:
        words = (
            "No card was charged, so nothing is returned to one."
            " If you paid in another way, please ask whoever you booked with."
        )
        return Offer(0, words, gift_card)
    at = {"starts_at": row.starts_at, "at": view.actor.at}
    if is_card:
        minor = payments.owed(organization, paid_minor=paid, currency=row.currency, **at)
        how = "is returned to your card"
    else:
        minor = payments.by_policy(organization, paid_minor=paid, **at)
        how = f"is returned to you by {notifications.one_line(organization.name)}"
    whole, part = notifications.money(paid, row.currency), notifications.money(minor, row.currency)
    if minor <= 0:
        return Offer(0, f"It is too late for a refund: of the {whole} that you paid nothing is returned.", gift_card)
    words = f"{part} {how}." if minor >= paid else f"{part} of {whole} {how}."
    return Offer(minor, words, gift_card)


def can_cancel(view: GuestView) -> bool:
    """Until it begins. Later it is for staff to say what a guest who did not come gets back."""
    return view.row.status != BookingStatus.CANCELLED and not view.has_begun


def _shown(view: GuestView, path: str, status: int = 200) -> Page:
    organization = view.actor.organization
    return _page(
        status,
        "booking.html",
        booking=view.summary,
        organization=organization.name,
        contact=organization.staff_email,
        path=path,
        can_cancel=can_cancel(view),
    )


def _asked(view: GuestView, path: str, status: int = 200) -> Page:
    return _page(
        status,
        "cancel.html",
        booking=view.summary,
        organization=view.actor.organization.name,
        path=path,
        offer=offer(view),
        has_changed=status != 200,
    )


# What is done ----------------------------------------------------------------------------------------------------


class Manage:
    """Everything below `/manage/`: an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._prefix = urlsplit(service.installation.public_url).path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = None
        try:
            reading = await self._counted(scope)
            if reading and reading.retry_after_s:
                raise RateLimited(reading.retry_after_s)
            page = await self._answer(scope, receive)
        except BookingError as error:
            page = _message(error, scope["method"])
        await page.send(send, reading)

    async def _counted(self, scope: Scope) -> Reading | None:
        """Counts as a request without a key does (decision K5), so that nobody guesses links in bulk."""
        service = self._service
        if not service.settings.rate_limit:
            return None
        address = scope["client"][0] if scope.get("client") else ""
        # In a thread, because a shared store of the limiter is asked over a socket.
        return await asyncio.to_thread(service.authenticator.limiter.take, anonymous_bucket(address), ANONYMOUS)

    async def _answer(self, scope: Scope, receive: Receive) -> Page:
        if scope["method"] not in _METHODS:
            raise MethodNotAllowed(_METHODS)
        text: str = scope["path_params"]["token"]
        token, asks = text.removesuffix(_CANCEL), text.endswith(_CANCEL)
        path = f"{self._prefix}/manage/{token}"
        if scope["method"] in _READ:
            view = await asyncio.to_thread(self._service.database.read, self._opening(token))
            return _asked(view, path) if asks and can_cancel(view) else _shown(view, path)
        body = await read_body(scope, receive)
        if isinstance(body, BookingError):
            raise body
        if not asks:
            raise MethodNotAllowed(sorted(_READ))
        page = await asyncio.to_thread(self._service.database.write, self._cancelling(token, path, _offered(body)))
        self._service.committed()
        return page

    def _opening(self, token: str) -> Callable[[Tx], GuestView]:
        return lambda tx: notifications.open_link(tx, self._service.installation, token)

    def _cancelling(self, token: str, path: str, offered: str | None) -> Callable[[Tx], Page]:
        """Cancels, when the guest has seen what that means now; else shows it first."""

        def cancel(tx: Tx) -> Page:
            view = notifications.open_link(tx, self._service.installation, token)
            # Once more when it is held: what was seen is compared with what is done, and not with what was a moment
            # before somebody moved the booking, or its payment came.
            bookings.lock(tx, view.actor, view.row.id)
            view = notifications.open_link(tx, self._service.installation, token)
            if view.row.status == BookingStatus.CANCELLED:
                return _moved(path)
            if not can_cancel(view):
                return _shown(view, path, 409)
            if offered != str(offer(view).minor):
                return _asked(view, path, 409)
            pending = Writes()
            bookings.cancel(tx, view.actor, pending, view.row.id, reason=CancelReason.CUSTOMER)
            tx.write(pending)
            return _moved(path)

        return cancel


def _moved(path: str) -> Page:
    """To the booking, so that loading the page again does not send the form again."""
    return Page(303, headers=((b"location", path.encode()),))


def _offered(body: bytes) -> str | None:
    """The refund that the guest has seen, from the form."""
    if len(body) > _FORM_BYTES_MAX:
        return None
    return dict(parse_qsl(body.decode("ascii", "replace"))).get("offer")
