"""The routes of the guest's pages."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Receive, Scope, Send

from booking_core import bookings, notifications
from booking_core.base.errors import BookingError, Conflict, InsufficientCapacity, MethodNotAllowed, NotFound
from booking_core.base.guest_links import GIFT_CARD_PURPOSE, PURPOSE, open_token
from booking_core.bookings import LockedBooking
from booking_core.db.engine import Tx
from booking_core.models.base import is_id
from booking_core.models.bookings import BookingStatus
from booking_core.notifications import GuestView
from booking_server.api.dependencies import ServiceDep, credentials_of, service_of
from booking_server.execution.service import Service
from booking_server.fastapi_ext.requests import read_body
from booking_server.guest_pages import pages
from booking_server.guest_pages.links import Link, get_gift_card_link, get_link

PATH = "/manage/{token:rest_of_path}"
"""The whole rest of the path: a link that was cut, or pasted with a dot, gets the page of an invalid link too."""

GIFT_CARD_PATH = "/gift-card/{token:rest_of_path}"

_METHODS = ("GET", "HEAD", "POST")
_FORM_BYTES_MAX = 256


class RestOfPath(Convertor[str]):
    """Matches the rest of a path, line breaks included. The usual `path` would leave out a line break at the end."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("rest_of_path", RestOfPath())


class GuestRoute(APIRoute):
    """A route that limits requests, and protects every response by headers."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def respond(request: Request) -> Response:
            await _count(request)
            response = await handler(request)
            if "content-security-policy" not in response.headers:
                response.raw_headers.extend(pages.security_headers())
            return response

        return respond

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse other methods by an error that is counted and has a page, instead of the API's JSON."""
        if scope["method"] not in _METHODS:
            await _count(Request(scope, receive))
            raise MethodNotAllowed(_METHODS)
        await super().handle(scope, receive, send)


router = APIRouter(include_in_schema=False, route_class=GuestRoute)


async def get_form(request: Request) -> bytes:
    """Read the form.

    Raises:
        PayloadTooLarge: it is larger than any request may be.
        Malformed: the client disconnected before its end.
    """
    body = await read_body(request.scope, request.receive)
    if isinstance(body, BookingError):
        raise body
    return body


@router.api_route(PATH, methods=["GET", "HEAD"])
async def show(link: Annotated[Link, Depends(get_link)], service: ServiceDep) -> Response:
    """Show the booking, its receipt or calendar entry, or the form that cancels or moves it."""
    organization_id = _organization_of(service, link)
    return await service.reads.read_of(organization_id, lambda tx: _show(tx, service, link), is_list=True)


def _organization_of(service: Service, link: Link, purpose: str = PURPOSE) -> str:
    """Return the organization whose turn a request is.

    Raises:
        NotFound: the token was not made by this installation.
    """
    opened = open_token(service.installation.secret_keys, link.token, purpose)
    if opened is None:
        raise NotFound
    return opened.organization_id


def _show(tx: Tx, service: Service, link: Link) -> Response:
    view = _view(tx, service, link)
    if link.page == "cancel" and bookings.guest_may_cancel(view.actor, view.row):
        return pages.cancellation_page(view, link, bookings.get_refundable(tx, view.actor, view.row.id))
    if link.page == "move" and bookings.guest_may_move(view.actor, view.row):
        return pages.move_page(view, link, bookings.find_moves(tx, view.actor, view.row.id))
    if link.page == "receipt":
        return pages.receipt_page(view, link)
    if link.page == "calendar.ics":
        sender = notifications.configured_sender(service.installation, service.settings.mail_from)
        return pages.calendar_entry(view, sender.address)
    return pages.booking_page(view, link, has_moved=link.has_moved)


@router.post(PATH)
async def change(
    link: Annotated[Link, Depends(get_link)],
    form: Annotated[bytes, Depends(get_form)],
    service: ServiceDep,
) -> Response:
    """Cancel the booking, when the guest agreed to the offer that holds now, or move it to the chosen departure."""
    changes = {"cancel": _cancel, "move": _move}
    if link.page not in changes:
        raise MethodNotAllowed(("GET", "HEAD"))
    organization_id, fields = _organization_of(service, link), _fields(form)
    return await service.write(
        lambda tx: changes[link.page](tx, service, link, fields),
        organization_id=organization_id,
        is_once=False,
    )


def _cancel(tx: Tx, service: Service, link: Link, fields: Mapping[str, str]) -> Response:
    view, booking = _lock(tx, service, link)
    if view.row.status != BookingStatus.CANCELLED:
        if not bookings.guest_may_cancel(view.actor, view.row):
            return pages.booking_page(view, link, is_refused=True)
        refundable = bookings.refundable_now(view.actor, booking)
        if fields.get("offer") != str(refundable.minor):
            return pages.cancellation_page(view, link, refundable, has_changed=True)
        bookings.cancel_by_guest(tx, view.actor, booking)
    # A redirect: reloading the page does not send the form again.
    return RedirectResponse(link.to(), 303)


def _move(tx: Tx, service: Service, link: Link, fields: Mapping[str, str]) -> Response:
    view, booking = _lock(tx, service, link)
    if not bookings.guest_may_move(view.actor, view.row):
        return pages.booking_page(view, link, is_refused=True)
    departure_id = fields.get("departure", "").lower()
    try:
        if not is_id(departure_id):
            raise NotFound
        bookings.move(tx, view.actor, booking, departure_id)
    except (Conflict, InsufficientCapacity, NotFound) as refusal:
        # Nothing is written before a refusal.
        return pages.move_page(view, link, bookings.find_moves(tx, view.actor, view.row.id), refusal)
    separator = "&" if link.query else "?"
    return RedirectResponse(f"{link.to()}{separator}moved=1", 303)


@router.api_route(GIFT_CARD_PATH, methods=["GET", "HEAD"])
async def show_gift_card(link: Annotated[Link, Depends(get_gift_card_link)], service: ServiceDep) -> Response:
    """Show the gift card with its code."""

    def read(tx: Tx) -> Response:
        view = notifications.open_gift_card_link(tx, service.installation, link.token, link.locale)
        return pages.gift_card_page(view, link)

    organization_id = _organization_of(service, link, GIFT_CARD_PURPOSE)
    return await service.reads.read_of(organization_id, read, is_list=True)


def _view(tx: Tx, service: Service, link: Link) -> GuestView:
    return notifications.open_link(tx, service.installation, link.token, link.locale)


def _lock(tx: Tx, service: Service, link: Link) -> tuple[GuestView, LockedBooking]:
    """Lock the booking, and return its view and the booking.

    The link is opened again under the lock: staff may have moved the booking, or its payment may have come, just
    before.
    """
    view = _view(tx, service, link)
    booking = bookings.lock(tx, view.actor, view.row.id)
    return _view(tx, service, link), booking


def _fields(form: bytes) -> Mapping[str, str]:
    """Return the fields of a form: the refund that the guest accepted, or the departure. A form that is too long has
    none."""
    if len(form) > _FORM_BYTES_MAX:
        return {}
    return dict(parse_qsl(form.decode("ascii", "replace")))


async def _count(request: Request) -> None:
    """Count a request against its address in the bucket of guests' pages (decision K5): links cannot be guessed.

    Raises:
        RateLimited: the address exceeds its limit.
    """
    # In a thread, because a shared store of the limiter is called over the network.
    await asyncio.to_thread(service_of(request).authenticator.count_address, credentials_of(request), "guest")
