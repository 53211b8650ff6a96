"""The routes of the guest's pages."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Receive, Scope, Send

from booking_core import bookings, notifications
from booking_core.db.engine import Tx
from booking_core.errors import BookingError, MethodNotAllowed, NotFound
from booking_core.guest_links import open_token
from booking_core.models.bookings import BookingStatus, CancelReason
from booking_core.notifications import GuestView
from booking_server.api import errors
from booking_server.api.dependencies import ServiceDep, counted, service_of
from booking_server.api.requests import read_body
from booking_server.execution.service import Service
from booking_server.guest_pages import pages
from booking_server.guest_pages.offers import can_cancel, offer

PATH = "/manage/{token:rest_of_path}"
"""The whole rest of the path, so that a link which was cut or pasted with a dot gets the page of an invalid link
too."""

_METHODS = ("GET", "HEAD", "POST")
_CANCEL = "/cancel"
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
    """A route that limits requests and renders every error as a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def respond(request: Request) -> Response:
            return await _respond(request, handler)

        return respond

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer other methods with a page, in the place of the API's JSON."""
        if scope["method"] in _METHODS:
            await super().handle(scope, receive, send)
            return
        response = await _respond(Request(scope, receive), _refuse_method)
        await response(scope, receive, send)


router = APIRouter(include_in_schema=False, route_class=GuestRoute)


@dataclass(frozen=True, slots=True)
class Link:
    """The parts of a guest's link."""

    token: str
    path: str
    """The path of the booking's page, as a browser sees it."""
    is_cancellation: bool
    """The link leads to the cancellation page below it."""


async def get_link(token: str, service: ServiceDep) -> Link:
    """Split the path into the token and the page below it."""
    prefix = urlsplit(service.installation.public_url).path
    is_cancellation, token = token.endswith(_CANCEL), token.removesuffix(_CANCEL)
    return Link(token, f"{prefix}/manage/{token}", is_cancellation)


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
    """Show the booking, or the form that cancels it."""
    open_link = lambda tx: notifications.open_link(tx, service.installation, link.token)  # noqa: E731
    view = await asyncio.to_thread(service.database.read, open_link)
    if link.is_cancellation and can_cancel(view):
        return pages.cancellation_page(view, link.path)
    return pages.booking_page(view, link.path)


@router.post(PATH)
async def cancel(
    link: Annotated[Link, Depends(get_link)],
    form: Annotated[bytes, Depends(get_form)],
    service: ServiceDep,
) -> Response:
    """Cancel the booking, when the guest agreed to the offer that holds now."""
    if not link.is_cancellation:
        raise MethodNotAllowed(("GET", "HEAD"))
    cancel = lambda tx: _cancel(tx, service, link, _agreed_offer(form))  # noqa: E731
    opened = open_token(service.installation.secret_keys, link.token)
    if opened is None:
        raise NotFound
    return await service.write(cancel, organization_id=opened.organization_id, is_once=False)


def _cancel(tx: Tx, service: Service, link: Link, agreed: str | None) -> Response:
    view = _locked_view(tx, service, link.token)
    if view.row.status != BookingStatus.CANCELLED:
        if not can_cancel(view):
            return pages.booking_page(view, link.path, status=409)
        if agreed != str(offer(view).minor):
            return pages.cancellation_page(view, link.path, has_changed=True)
        bookings.cancel(tx, view.actor, view.row.id, reason=CancelReason.CUSTOMER)
    # A redirect, so that reloading the page does not send the form again.
    return RedirectResponse(link.path, 303)


def _locked_view(tx: Tx, service: Service, token: str) -> GuestView:
    """Lock the booking and return its view.

    The link is opened again under the lock: staff may have moved the booking, or its payment may have come, just
    before.
    """
    view = notifications.open_link(tx, service.installation, token)
    bookings.lock(tx, view.actor, view.row.id)
    return notifications.open_link(tx, service.installation, token)


def _agreed_offer(form: bytes) -> str | None:
    """Return the refund that the guest agreed to, from the form."""
    if len(form) > _FORM_BYTES_MAX:
        return None
    return dict(parse_qsl(form.decode("ascii", "replace"))).get("offer")


async def _refuse_method(_: Request) -> Response:
    raise MethodNotAllowed(_METHODS)


async def _respond(request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
    try:
        await _count(request)
        response = await handler(request)
    except BookingError as error:
        errors.note(request, error)
        response = pages.error_page(error, request.method)
    response.raw_headers.extend(pages.security_headers())
    return response


async def _count(request: Request) -> None:
    """Count a request against its address like one without a key (decision K5), so that links cannot be guessed.

    Raises:
        RateLimited: the address is over its limit.
    """
    with counted(request) as credentials:
        # In a thread, because a shared store of the limiter is called over the network.
        await asyncio.to_thread(service_of(request).authenticator.count_address, credentials)
