"""A server of the Model Context Protocol: an agent finds, books and changes tours with the SDK.

A booking takes over a hold, which can be done once, and its idempotency key is derived from the hold and the order: a
repeated call returns the same booking.
A refusal names its reasons, and the nearest departures with enough seats.
"""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field
from pydantic_core import to_json

from booking_cli._version import __version__
from booking_core.models.bookings import AddOnInput, BookingChange, BookingQuote, GuestInput, GuestLineInput
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience
from booking_core.models.holds import Hold
from booking_core.models.money import Money, formatted
from booking_core.models.organizations import Me
from booking_core.models.scopes import Scope
from booking_sdk import (
    APIError,
    APIStatusError,
    AsyncBookingClient,
    NotFoundError,
    PermissionDeniedError,
    idempotency_key,
)
from booking_sdk.models import AnyEvent, Booking
from booking_sdk.params import BookingStatusParam, PaymentParam, RefundParam

INSTRUCTIONS = """Sell seats of {organization}. Find an experience, then a departure with enough seats, and quote the
party. Hold the seats while you ask the guest for the rest, then book with the hold: its seats are free again when it
expires. A refusal names its reason, and other departures with enough seats: offer those, and do not repeat the call.
Days and local times are in {timezone}."""
ALTERNATIVES = 3
ALTERNATIVES_WITHIN = timedelta(days=14)
"""The time before and after a departure that is searched for others."""
_OF_DEPARTURES = frozenset({"insufficient_capacity", "conflict"})
"""The codes of refusals that another departure may not have."""
STOP_WITHIN_S = 5
_HOST = "127.0.0.1"
UNCONFIRMED = "Nobody confirmed it, so nothing was changed."
CANNOT_ASK = (
    "This call moves money, so a person has to confirm it, and this client cannot ask. Start `booking mcp` with"
    " --yes to let agents decide alone."
)


@dataclass(frozen=True, slots=True)
class Shop:
    """The state that all tools share."""

    client: AsyncBookingClient
    confirms: bool


ShopContext = Context[Shop, Any]
Limit = Annotated[int, Field(ge=1, le=100, description="The largest number of results.")]
Guests = Annotated[
    list[GuestLineInput], Field(description="The number of guests for each price tier of the departure.")
]
AddOns = Annotated[list[AddOnInput] | None, Field(description="The number of each add-on.")]


class QuoteWithAlternatives(BaseModel):
    """A price with each reason to refuse the booking, and other departures if it would be refused."""

    quote: BookingQuote
    alternatives: list[Departure]


class Events(BaseModel):
    """Events, the oldest first, and the cursor that continues after them."""

    events: list[AnyEvent]
    next_cursor: str | None


class Confirmation(BaseModel):
    """The answer of the person whom the agent works for."""

    confirmed: bool = Field(description="True to go ahead.")


def _client(ctx: ShopContext) -> AsyncBookingClient:
    return ctx.request_context.lifespan_context.client


def with_reasons(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return the tool, or reader of a resource, with errors that an agent can read: the code, each reason, and whether
    to call again. A tool may raise ResourceError too."""

    @functools.wraps(function)
    async def readable(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except APIStatusError as error:
            raise ResourceError(_described(error)) from error
        except (APIError, ValueError) as error:
            raise ResourceError(str(error)) from error

    return readable


def _described(error: APIStatusError, alternatives: Sequence[Departure] = ()) -> str:
    lines = [f"{error.code or error.status_code}: {error.message}"]
    for detail in error.details:
        reason = f"{detail.field}, {detail.reason}" if detail.field else detail.reason
        lines.append(f"- {reason}" if detail.message in error.message else f"- {reason}: {detail.message}")
    if error.retryable:
        lines.append("Call it again in a moment.")
    if alternatives:
        lines.append("Other departures with enough seats:")
        lines += [
            f"- {departure.id} at {departure.starts_at.isoformat()}: {departure.seats_available} seats"
            for departure in alternatives
        ]
    return "\n".join(lines)


# Finding -------------------------------------------------------------------------------------------------------------


async def find_experiences(ctx: ShopContext, limit: Limit = 25) -> list[Experience]:
    """List the published experiences: their texts, price tiers, add-ons and durations."""
    return [*(await _client(ctx).experiences.list(published=True, limit=limit))]


async def find_departures(
    ctx: ShopContext,
    date_from: date,
    date_to: date | None = None,
    experience_id: str | None = None,
    seats: Annotated[int, Field(ge=1, description="The seats that the party needs.")] = 1,
    limit: Limit = 25,
) -> list[Departure]:
    """List open departures with enough seats, the earliest first, with their prices. Both days are included; the last
    day is 30 days after the first by default."""
    departures = _client(ctx).availability.iterate(date_from=date_from, date_to=date_to, experience_id=experience_id)
    return [departure async for departure in _fitting(departures, seats, limit)]


async def _fitting(departures: AsyncIterator[Departure], seats: int, limit: int) -> AsyncIterator[Departure]:
    async for departure in departures:
        if departure.status == "open" and departure.seats_available >= seats:
            yield departure
            limit -= 1
        if not limit:
            return


async def _alternatives(ctx: ShopContext, departure_id: str, seats: int) -> list[Departure]:
    """Return the nearest other departures of the experience with enough seats, the nearest first.

    There are none for a key that may not read them: the refusal is then shown without them.
    """
    client = _client(ctx)
    try:
        refused = await client.departures.get(departure_id)
        first = (refused.starts_at - ALTERNATIVES_WITHIN).date()
        last = first + 2 * ALTERNATIVES_WITHIN
        departures = client.availability.iterate(date_from=first, date_to=last, experience_id=refused.experience_id)
        fitting = [departure async for departure in _fitting(departures, seats, 1_000) if departure.id != refused.id]
    except (NotFoundError, PermissionDeniedError):
        return []
    return sorted(fitting, key=lambda departure: abs(departure.starts_at - refused.starts_at))[:ALTERNATIVES]


async def quote(
    ctx: ShopContext, departure_id: str, guests: Guests, add_ons: AddOns = None, hold_id: str | None = None
) -> QuoteWithAlternatives:
    """Return the price of a party on a departure, and each reason to refuse it. Nothing is booked or held."""
    answer = await _client(ctx).bookings.quote(
        departure_id=departure_id, guests=guests, add_ons=add_ons, hold_id=hold_id
    )
    is_full_or_closed = any(refusal.code in _OF_DEPARTURES for refusal in answer.refusals)
    alternatives = await _alternatives(ctx, departure_id, max(1, answer.seats)) if is_full_or_closed else []
    return QuoteWithAlternatives(quote=answer, alternatives=alternatives)


async def find_bookings(
    ctx: ShopContext,
    email: str | None = None,
    booking_number: int | None = None,
    external_reference: str | None = None,
    departure_id: str | None = None,
    status: BookingStatusParam | None = None,
    limit: Limit = 25,
) -> list[Booking]:
    """Find bookings by the guest's address, their number, your reference, or their departure; the newest first."""
    page = await _client(ctx).bookings.list(
        email=email,
        booking_number=booking_number,
        external_reference=external_reference,
        departure_id=departure_id,
        status=status,
        limit=limit,
    )
    return [*page]


async def get_booking(ctx: ShopContext, booking_id: str) -> Booking:
    """Return a booking, with the refund that a cancellation would give now."""
    return await _client(ctx).bookings.get(booking_id)


async def list_events(
    ctx: ShopContext, types: Sequence[str] = (), after: str | None = None, limit: Limit = 25
) -> Events:
    """List changes in their order. Call it again with `next_cursor` as `after` to follow them.

    `types` are event types such as `booking.created`, or prefixes such as `booking.*`.
    """
    page = await _client(ctx).events.list(types=[*types], order="asc", starting_after=after, limit=limit)
    return Events(events=[*page], next_cursor=page.resume_cursor or after)


# Booking -------------------------------------------------------------------------------------------------------------


async def hold_seats(
    ctx: ShopContext,
    departure_id: str,
    seats: Annotated[int, Field(ge=1)],
    minutes: Annotated[int, Field(ge=1, le=30, description="The duration of the hold.")] = 10,
) -> Hold:
    """Keep seats of a departure for some minutes: nobody else can book them. `quote` tells how many a party needs."""
    try:
        return await _client(ctx).holds.create(departure_id=departure_id, seats=seats, expires_in_seconds=minutes * 60)
    except APIStatusError as error:
        others = await _alternatives(ctx, departure_id, seats) if error.status_code == 409 else []
        raise ToolError(_described(error, others)) from error


async def release_hold(ctx: ShopContext, hold_id: str) -> str:
    """Give the seats of a hold back."""
    await _client(ctx).holds.delete(hold_id)
    return "The seats are free again."


@with_reasons
async def confirm_booking(
    ctx: ShopContext, hold_id: str, guests: Guests, add_ons: AddOns = None
) -> Confirmation | Elicit[Confirmation]:
    hold = await _client(ctx).holds.get(hold_id)
    if hold.booking_id is not None:
        return Confirmation(confirmed=True)
    answer = await _client(ctx).bookings.quote(
        departure_id=hold.departure_id, guests=guests, add_ons=add_ons, hold_id=hold_id
    )
    if not answer.allowed or answer.totals is None:
        return Confirmation(confirmed=True)  # it is refused with its reason
    about = f"{answer.seats} seats of {answer.experience.title} on {answer.departure.starts_at:%d %B %Y at %H:%M}"
    return _asked(ctx, f"Book {about} for {_text(answer.totals.total)}?", answer.totals.total)


async def book(
    ctx: ShopContext,
    hold_id: str,
    guests: Guests,
    customer: GuestInput,
    payment: Annotated[PaymentParam, Field(description="How the guest pays; `external_paid`: it was paid elsewhere.")],
    confirmation: Annotated[ElicitationResult[Confirmation], Resolve(confirm_booking)],
    add_ons: AddOns = None,
    note: str | None = None,
    locale: str | None = None,
    external_reference: str | None = None,
) -> Booking:
    """Book the seats of a hold. The booking is confirmed at once; a repeated call returns the same booking.

    Give all guests of the party; the service computes the price. `note` is for the staff, `locale` is the guest's
    language, such as `de`, and `external_reference` is the booking's name in your system.
    """
    _require(confirmation)
    hold = await _client(ctx).holds.get(hold_id)
    order: dict[str, Any] = {
        "guests": guests,
        "customer": customer,
        "payment": payment,
        "add_ons": add_ons,
        "note": note,
        "locale": locale,
        "external_reference": external_reference,
    }
    key = idempotency_key(hold.id, to_json(order).decode(), namespace="mcp-hold")  # an id may be in upper case
    return await _client(ctx).bookings.create(
        departure_id=hold.departure_id, hold_id=hold.id, idempotency_key=key, **order
    )


# Changing ------------------------------------------------------------------------------------------------------------


async def move_booking(ctx: ShopContext, booking_id: str, departure_id: str) -> BookingChange:
    """Move a booking to another departure of the same experience. The price stays."""
    client = _client(ctx)
    try:
        return await client.bookings.reschedule(booking_id, departure_id=departure_id)
    except APIStatusError as error:
        others: list[Departure] = []
        if error.status_code == 409:
            seats = (await client.bookings.preview_reschedule(booking_id, departure_id=departure_id)).seats
            others = await _alternatives(ctx, departure_id, seats)
        raise ToolError(_described(error, others)) from error


@with_reasons
async def confirm_party(
    ctx: ShopContext, booking_id: str, guests: Guests, add_ons: AddOns = None, refund: RefundParam = "auto"
) -> Confirmation | Elicit[Confirmation]:
    preview = await _client(ctx).bookings.preview_party(booking_id, guests=guests, add_ons=add_ons, refund=refund)
    if not preview.allowed or preview.money is None:
        return Confirmation(confirmed=True)  # it is refused with its reason
    difference, number = preview.money.price_difference, preview.booking.booking_number
    return _asked(ctx, f"Change the price of booking {number} by {_text(difference)}?", difference)


async def change_party(
    ctx: ShopContext,
    booking_id: str,
    guests: Guests,
    confirmation: Annotated[ElicitationResult[Confirmation], Resolve(confirm_party)],
    add_ons: AddOns = None,
    refund: RefundParam = "auto",
) -> BookingChange:
    """Change the guests or add-ons of a booking. Give the whole party. Guests who stay keep their price.

    `refund`: `auto` refunds guests who leave by the terms of a cancellation, `none` refunds nothing.
    """
    _require(confirmation)
    return await _client(ctx).bookings.change_party(booking_id, guests=guests, add_ons=add_ons, refund=refund)


async def change_guest(
    ctx: ShopContext,
    booking_id: str,
    name: str | None = None,
    email: str | None = None,
    phone: str | None = None,
    note: str | None = None,
) -> Booking:
    """Correct the guest's name, address or phone, or the note for the staff. Omitted fields stay as they are.

    A new address gets the confirmation. An empty phone or note removes it.
    """
    return await _client(ctx).bookings.change_guest(booking_id, name=name, email=email, phone=phone, note=note)


@with_reasons
async def confirm_cancellation(
    ctx: ShopContext, booking_id: str, refund: RefundParam = "auto"
) -> Confirmation | Elicit[Confirmation]:
    booking = await _client(ctx).bookings.get(booking_id)
    terms = booking.cancellation
    if booking.status == "cancelled" or terms is None:
        return Confirmation(confirmed=True)
    amount = Money(amount_minor=0, currency=terms.refundable_amount.currency)
    amount = (amount if refund == "none" else terms.refundable_amount) + terms.gift_card_amount
    return _asked(ctx, f"Cancel booking {booking.booking_number} and return {_text(amount)}?", booking.totals.total)


async def cancel_booking(
    ctx: ShopContext,
    booking_id: str,
    confirmation: Annotated[ElicitationResult[Confirmation], Resolve(confirm_cancellation)],
    refund: RefundParam = "auto",
    reason: str | None = None,
) -> Booking:
    """Cancel a booking and release its seats. A booking that is cancelled already is returned unchanged.

    `refund`: `auto` refunds by the operator's policy, `none` refunds nothing. `reason` is for the staff.
    """
    _require(confirmation)
    return await _client(ctx).bookings.cancel(booking_id, refund=refund, reason=reason)


def _asked(ctx: ShopContext, question: str, amount: Money) -> Confirmation | Elicit[Confirmation]:
    """Return the question to the person, where money moves and the server was started to ask."""
    if not (ctx.request_context.lifespan_context.confirms and amount.amount_minor):
        return Confirmation(confirmed=True)
    if ctx.client_capabilities is None or ctx.client_capabilities.elicitation is None:
        raise ToolError(CANNOT_ASK)
    return Elicit(question, Confirmation)


def _require(confirmation: ElicitationResult[Confirmation]) -> None:
    if not (isinstance(confirmation, AcceptedElicitation) and confirmation.data.confirmed):
        raise ToolError(UNCONFIRMED)


def _text(money: Money) -> str:
    return formatted(money.amount_minor, money.currency)


# The server ----------------------------------------------------------------------------------------------------------

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(destructive_hint=False, open_world_hint=False)
_ADDS_ONCE = ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_CHANGES = ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_SELLS, _LOOKS = (Scope.BOOKINGS_WRITE,), (Scope.BOOKINGS_READ,)
TOOLS: Sequence[tuple[Callable[..., Awaitable[Any]], ToolAnnotations, Sequence[Scope]]] = (
    (find_experiences, _READS, (Scope.EXPERIENCES_READ,)),
    (find_departures, _READS, (Scope.AVAILABILITY_READ,)),
    (find_bookings, _READS, _LOOKS),
    (get_booking, _READS, _LOOKS),
    (list_events, _READS, _LOOKS),
    (quote, _READS, _SELLS),
    (hold_seats, _ADDS, _SELLS),
    (release_hold, _CHANGES, _SELLS),
    (book, _ADDS_ONCE, _SELLS),
    (move_booking, _CHANGES, _SELLS),
    (change_party, _CHANGES, _SELLS),
    (change_guest, _CHANGES, _SELLS),
    (cancel_booking, _CHANGES, (*_SELLS, *_LOOKS)),
)
"""Each tool, its hints for clients, and the scopes that it needs."""


def tools_of(me: Me, *, read_only: bool) -> list[tuple[Callable[..., Awaitable[Any]], ToolAnnotations]]:
    """Return the tools that a key may use, without those that change something if `read_only`."""
    return [
        (function, annotations)
        for function, annotations, scopes in TOOLS
        if all(me.key.has(scope) for scope in scopes) and (annotations is _READS or not read_only)
    ]


def make_server(client: AsyncBookingClient, me: Me, *, read_only: bool, confirms: bool) -> MCPServer[Shop]:
    """Return a server with the tools that the key may use.

    Args:
        read_only: leaves out the tools that change something.
        confirms: asks a person before a call that moves money.
    """

    @asynccontextmanager
    async def lifespan(_: MCPServer[Shop]) -> AsyncIterator[Shop]:
        yield Shop(client, confirms)

    organization = me.organization
    instructions = INSTRUCTIONS.format(organization=organization.name, timezone=organization.timezone)
    title = f"Bookings of {organization.name}"
    server: MCPServer[Shop] = MCPServer(
        "booking", title=title, version=__version__, instructions=instructions, lifespan=lifespan, log_level="WARNING"
    )
    for function, annotations in tools_of(me, read_only=read_only):
        server.add_tool(with_reasons(function), annotations=annotations)
    _add_resources(server, client, me)
    return server


def _add_resources(server: MCPServer[Shop], client: AsyncBookingClient, me: Me) -> None:
    async def catalogue() -> str:
        """Return the published experiences with their price tiers and add-ons, one JSON object a line."""
        return "\n".join([item.model_dump_json() async for item in client.experiences.iterate(published=True)])

    async def cancellation_terms(booking_id: str) -> str:
        """Return the terms of a booking's cancellation, and its refund now."""
        terms = (await client.bookings.get(booking_id)).cancellation
        return "null" if terms is None else terms.model_dump_json()

    if me.key.has(Scope.EXPERIENCES_READ):
        server.resource("booking://catalogue", mime_type="application/jsonl")(with_reasons(catalogue))
    if me.key.has(Scope.BOOKINGS_READ):
        uri = "booking://bookings/{booking_id}/cancellation"
        server.resource(uri, mime_type="application/json")(with_reasons(cancellation_terms))


def run(base_url: str, api_key: str, me: Me, *, port: int | None, read_only: bool, confirms: bool) -> None:
    """Serve on stdin and stdout, or on a port of this machine, until the client leaves or the process is interrupted.

    Args:
        me: the key and its organization.
    """

    async def serve() -> None:
        async with AsyncBookingClient(api_key, base_url=base_url, user_agent_suffix="booking-mcp") as client:
            server = make_server(client, me, read_only=read_only, confirms=confirms)
            if port is None:
                await server.run_stdio_async()
            else:
                await _serve_on(server, port)

    anyio.run(serve)


async def _serve_on(server: MCPServer[Shop], port: int) -> None:
    """Serve on a port as the package does, but end calls that still run some seconds after an interruption."""
    app = server.streamable_http_app(host=_HOST)
    config = uvicorn.Config(app, host=_HOST, port=port, log_level="warning", timeout_graceful_shutdown=STOP_WITHIN_S)
    await uvicorn.Server(config).serve()
