"""A server of the Model Context Protocol: an agent finds, books and changes tours with the SDK.

A booking takes over a hold, which can be done once, and its idempotency key is derived from the hold and the order: a
repeated call returns the same booking.
A refusal names its reasons, and the nearest departures with enough seats.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import date, timedelta
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from booking_cli._version import __version__
from booking_core.models.bookings import (
    AddOnInput,
    BookingChange,
    BookingGuestChange,
    BookingQuote,
    BookingStatus,
    GuestInput,
    GuestLineInput,
    PaymentMode,
    RefundMode,
)
from booking_core.models.departures import Departure
from booking_core.models.experiences import Experience
from booking_core.models.holds import Hold
from booking_core.models.money import Money, formatted
from booking_core.models.organizations import Me
from booking_core.models.problems import describe
from booking_core.models.scopes import Scope
from booking_sdk import APIError, APIStatusError, AsyncBookingClient, ConflictError, idempotency_key
from booking_sdk.models import AnyEvent, Booking

INSTRUCTIONS = """Sell seats of {organization.name}. Find an experience, then a departure with enough seats, and
quote the party. Hold the seats while you ask the guest for the rest, then book with the hold: its seats are free
again when it expires. A refusal names its reason, and other departures with enough seats: offer those, and do not
repeat the call. Days and local times are in {organization.timezone}."""
ALTERNATIVES = 3
ALTERNATIVES_WITHIN = timedelta(days=14)
"""The time before and after a departure that is searched for others."""
_OF_DEPARTURES = frozenset({"insufficient_capacity", "conflict"})
"""The codes of refusals that another departure may not have."""
_HOST = "127.0.0.1"
STOP_WITHIN_S = 5
"""The time that calls have to end after an interruption of the server on a port."""
UNCONFIRMED = "Nobody confirmed it, so nothing was changed."
CANNOT_ASK = (
    "This call moves money, so a person has to confirm it, and this client cannot ask. Start `booking mcp` with"
    " --yes to let agents decide alone."
)


class BookingServer(MCPServer["BookingServer"]):
    """A server whose errors an agent can read, with the tools and the resources that a key may use.

    Args:
        read_only: leaves out the tools that change something.
        confirms: asks a person before a call that moves money.
    """

    def __init__(self, client: AsyncBookingClient, me: Me, *, read_only: bool, confirms: bool) -> None:
        super().__init__(
            "booking",
            title=f"Bookings of {me.organization.name}",
            version=__version__,
            instructions=INSTRUCTIONS.format(organization=me.organization),
            lifespan=lambda _: nullcontext(self),
            log_level="WARNING",
        )
        self.client, self.confirms = client, confirms
        for function, annotations in tools_of(me, read_only=read_only):
            self.add_tool(function, annotations=annotations)
        if me.key.has(Scope.EXPERIENCES_READ):
            self.resource("booking://catalogue", mime_type="application/jsonl")(self.catalogue)
        if me.key.has(Scope.BOOKINGS_READ):
            uri = "booking://bookings/{booking_id}/cancellation"
            self.resource(uri, mime_type="application/json")(self.cancellation_terms)

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if not (lines := _reasons(cause)):
                raise
            if isinstance(cause, ConflictError):
                with suppress(APIError):  # a key may be one that reads no departures
                    lines += await _alternatives_to_call(self.client, arguments)
            raise ToolError("\n".join(lines)) from cause

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        try:
            return await super().read_resource(uri, context)
        except ResourceError as error:
            if not (lines := _reasons(error.__cause__)):
                raise
            raise ResourceError("\n".join(lines)) from error.__cause__

    async def catalogue(self) -> str:
        """Return the published experiences with their price tiers and add-ons, one JSON object a line."""
        return "\n".join([item.model_dump_json() async for item in self.client.experiences.iterate(published=True)])

    async def cancellation_terms(self, booking_id: str) -> str:
        """Return the terms of a booking's cancellation, and its refund now."""
        terms = (await self.client.bookings.get(booking_id)).cancellation
        return "null" if terms is None else terms.model_dump_json()


ToolContext = Context[BookingServer, Any]


def _client(ctx: ToolContext) -> AsyncBookingClient:
    return ctx.request_context.lifespan_context.client


# Arguments and results -----------------------------------------------------------------------------------------------

Limit = Annotated[int, Field(ge=1, le=100, description="The largest number of results.")]
Seats = Annotated[int, Field(ge=1, description="The seats that the party needs.")]
Minutes = Annotated[int, Field(ge=1, le=30, description="The duration of the hold.")]


class BookingSearch(BaseModel, use_attribute_docstrings=True):
    """Filters of bookings: all that are set have to match."""

    email: str | None = None
    """The guest's address."""
    booking_number: int | None = None
    external_reference: str | None = None
    """The name of the booking in your system."""
    departure_id: str | None = None
    status: BookingStatus | None = None


class PartyInput(BaseModel, use_attribute_docstrings=True):
    """The whole party of a booking. The service computes its price."""

    guests: list[GuestLineInput]
    """The number of guests for each price tier of the departure."""
    add_ons: list[AddOnInput] | None = None
    """The number of each add-on."""


class OrderInput(PartyInput, use_attribute_docstrings=True):
    """The party of a booking, the guest who answers for it, and its payment."""

    customer: GuestInput
    """Gets the confirmation."""
    payment: PaymentMode
    """pay_on_site: the guest pays on arrival; invoice: staff sends an invoice; external_paid: it was paid elsewhere."""
    note: str | None = None
    """For the staff."""
    locale: str | None = None
    """The guest's language, such as `de`."""
    external_reference: str | None = None
    """The name of the booking in your system."""


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


Decision = ElicitationResult[Confirmation]
Consent = Confirmation | Elicit[Confirmation]
"""A confirmation, or the question to the person."""


# Errors --------------------------------------------------------------------------------------------------------------


def _reasons(error: BaseException | None) -> list[str]:
    """Return an error in lines for an agent: the code, each reason, and whether to call again. A crash has none."""
    if isinstance(error, ValidationError):
        return [
            f"validation_failed: {'.'.join(map(str, problem['loc']))}: {describe(problem)}"
            for problem in error.errors()
        ]
    if isinstance(error, APIStatusError):
        return _refusal(error)
    return [str(error)] if isinstance(error, APIError | ValueError | ToolError) else []


def _refusal(error: APIStatusError) -> list[str]:
    lines = [f"{error.code or error.status_code}: {error.message}"]
    for detail in error.details:
        reason = f"{detail.field}, {detail.reason}" if detail.field else detail.reason
        lines.append(f"- {reason}" if detail.message in error.message else f"- {reason}: {detail.message}")
    if error.retryable:
        lines.append("Call it again in a moment.")
    return lines


async def _alternatives_to_call(client: AsyncBookingClient, arguments: dict[str, Any]) -> list[str]:
    """Return lines with other departures for a refused hold of seats, or a refused move of a booking."""
    match arguments:
        case {"departure_id": departure_id, "seats": argument}:
            seats = TypeAdapter(Seats).validate_python(argument)
        case {"departure_id": departure_id, "booking_id": booking_id}:
            seats = (await client.bookings.preview_reschedule(booking_id, departure_id=departure_id)).seats
        case _:
            return []
    departures = await _alternatives(client, departure_id, seats)
    lines = [f"- {other.id} at {other.starts_at.isoformat()}: {other.seats_available} seats" for other in departures]
    return ["Other departures with enough seats:", *lines] if lines else []


async def _alternatives(client: AsyncBookingClient, departure_id: str, seats: int) -> list[Departure]:
    """Return the nearest other departures of the experience with enough seats, the nearest first."""
    refused = await client.departures.get(departure_id)
    first = (refused.starts_at - ALTERNATIVES_WITHIN).date()
    last = first + 2 * ALTERNATIVES_WITHIN
    departures = client.availability.iterate(date_from=first, date_to=last, experience_id=refused.experience_id)
    others = [other async for other in departures if other.id != refused.id and _has_seats(other, seats)]
    return sorted(others, key=lambda other: abs(other.starts_at - refused.starts_at))[:ALTERNATIVES]


def _has_seats(departure: Departure, seats: int) -> bool:
    return departure.status == "open" and departure.seats_available >= seats


# Finding -------------------------------------------------------------------------------------------------------------


async def find_experiences(ctx: ToolContext, limit: Limit = 25) -> list[Experience]:
    """List the published experiences: their texts, price tiers, add-ons and durations."""
    return [*(await _client(ctx).experiences.list(published=True, limit=limit))]


async def find_departures(
    ctx: ToolContext,
    date_from: date,
    date_to: date | None = None,
    experience_id: str | None = None,
    seats: Seats = 1,
    limit: Limit = 25,
) -> list[Departure]:
    """List open departures with enough seats, the earliest first, with their prices. Both days are included; the last
    day is 30 days after the first by default."""
    departures = _client(ctx).availability.iterate(date_from=date_from, date_to=date_to, experience_id=experience_id)
    return [departure async for departure in departures if _has_seats(departure, seats)][:limit]


async def quote(
    ctx: ToolContext, departure_id: str, party: PartyInput, hold_id: str | None = None
) -> QuoteWithAlternatives:
    """Return the price of a party on a departure, and each reason to refuse it. Nothing is booked or held."""
    answer = await _client(ctx).bookings.quote(departure_id=departure_id, hold_id=hold_id, **dict(party))
    alternatives: list[Departure] = []
    if any(refusal.code in _OF_DEPARTURES for refusal in answer.refusals):
        with suppress(APIError):
            alternatives = await _alternatives(_client(ctx), departure_id, max(1, answer.seats))
    return QuoteWithAlternatives(quote=answer, alternatives=alternatives)


async def find_bookings(ctx: ToolContext, filters: BookingSearch | None = None, limit: Limit = 25) -> list[Booking]:
    """Find bookings by the guest's address, their number, your reference, or their departure; the newest first."""
    return [*(await _client(ctx).bookings.list(**dict(filters or ()), limit=limit))]


async def get_booking(ctx: ToolContext, booking_id: str) -> Booking:
    """Return a booking, with the refund that a cancellation would give now."""
    return await _client(ctx).bookings.get(booking_id)


async def list_events(
    ctx: ToolContext, types: Sequence[str] = (), after: str | None = None, limit: Limit = 25
) -> Events:
    """List changes in their order. Call it again with `next_cursor` as `after` to follow them.

    `types` are event types such as `booking.created`, or prefixes such as `booking.*`.
    """
    page = await _client(ctx).events.list(types=[*types], order="asc", starting_after=after, limit=limit)
    return Events(events=[*page], next_cursor=page.resume_cursor or after)


# Booking -------------------------------------------------------------------------------------------------------------


async def hold_seats(ctx: ToolContext, departure_id: str, seats: Seats, minutes: Minutes = 10) -> Hold:
    """Keep seats of a departure for some minutes: nobody else can book them. `quote` tells how many a party needs."""
    return await _client(ctx).holds.create(departure_id=departure_id, seats=seats, expires_in_seconds=minutes * 60)


async def release_hold(ctx: ToolContext, hold_id: str) -> str:
    """Give the seats of a hold back."""
    await _client(ctx).holds.delete(hold_id)
    return "The seats are free again."


async def confirm_booking(ctx: ToolContext, hold_id: str, order: OrderInput) -> Consent:
    hold = await _client(ctx).holds.get(hold_id)
    if hold.booking_id is not None:
        return Confirmation(confirmed=True)
    answer = await _client(ctx).bookings.quote(
        departure_id=hold.departure_id, guests=order.guests, add_ons=order.add_ons, hold_id=hold_id
    )
    if not answer.allowed or answer.totals is None:
        return Confirmation(confirmed=True)  # it is refused with its reason
    about = f"{answer.seats} seats of {answer.experience.title} on {answer.departure.starts_at:%d %B %Y at %H:%M}"
    return _ask(ctx, f"Book {about} for {_text(answer.totals.total)}?", answer.totals.total)


async def book(
    ctx: ToolContext, hold_id: str, order: OrderInput, confirmation: Annotated[Decision, Resolve(confirm_booking)]
) -> Booking:
    """Book the seats of a hold. The booking is confirmed at once; a repeated call returns the same booking."""
    _require(confirmation)
    hold = await _client(ctx).holds.get(hold_id)
    key = idempotency_key(hold.id, order.model_dump_json(), namespace="mcp-hold")  # an id may be in upper case
    return await _client(ctx).bookings.create(
        departure_id=hold.departure_id, hold_id=hold.id, idempotency_key=key, **dict(order)
    )


# Changing ------------------------------------------------------------------------------------------------------------


async def move_booking(ctx: ToolContext, booking_id: str, departure_id: str) -> BookingChange:
    """Move a booking to another departure, also of another experience. The price stays as sold."""
    return await _client(ctx).bookings.reschedule(booking_id, departure_id=departure_id)


async def confirm_party(ctx: ToolContext, booking_id: str, party: PartyInput, refund: RefundMode) -> Consent:
    preview = await _client(ctx).bookings.preview_party(booking_id, refund=refund, **dict(party))
    if not preview.allowed or preview.money is None:
        return Confirmation(confirmed=True)  # it is refused with its reason
    difference, number = preview.money.price_difference, preview.booking.booking_number
    return _ask(ctx, f"Change the price of booking {number} by {_text(difference)}?", difference)


async def change_party(
    ctx: ToolContext,
    booking_id: str,
    party: PartyInput,
    confirmation: Annotated[Decision, Resolve(confirm_party)],
    refund: RefundMode = RefundMode.AUTO,
) -> BookingChange:
    """Change the guests or add-ons of a booking. Guests who stay keep their price.

    `refund`: `auto` refunds guests who leave by the terms of a cancellation, `none` refunds nothing.
    """
    _require(confirmation)
    return await _client(ctx).bookings.change_party(booking_id, refund=refund, **dict(party))


async def change_guest(ctx: ToolContext, booking_id: str, change: BookingGuestChange) -> Booking:
    """Correct the guest's name, address or phone, or the note for the staff. Omitted fields stay as they are.

    A new address gets the confirmation.
    """
    return await _client(ctx).bookings.change_guest(booking_id, **dict(change))


async def confirm_cancellation(ctx: ToolContext, booking_id: str, refund: RefundMode) -> Consent:
    booking = await _client(ctx).bookings.get(booking_id)
    terms = booking.cancellation
    if booking.status == "cancelled" or terms is None:
        return Confirmation(confirmed=True)
    amount = terms.gift_card_amount if refund == RefundMode.NONE else terms.refundable_amount + terms.gift_card_amount
    return _ask(ctx, f"Cancel booking {booking.booking_number} and return {_text(amount)}?", booking.totals.total)


async def cancel_booking(
    ctx: ToolContext,
    booking_id: str,
    confirmation: Annotated[Decision, Resolve(confirm_cancellation)],
    refund: RefundMode = RefundMode.AUTO,
    reason: str | None = None,
) -> Booking:
    """Cancel a booking and release its seats. A booking that is cancelled already is returned unchanged.

    `refund`: `auto` refunds by the operator's policy, `none` refunds nothing. `reason` is for the staff.
    """
    _require(confirmation)
    return await _client(ctx).bookings.cancel(booking_id, refund=refund, reason=reason)


def _ask(ctx: ToolContext, question: str, amount: Money) -> Consent:
    """Return the question to the person, where money moves and the server was started to ask."""
    if not (ctx.request_context.lifespan_context.confirms and amount.amount_minor):
        return Confirmation(confirmed=True)
    if ctx.client_capabilities is None or ctx.client_capabilities.elicitation is None:
        raise ToolError(CANNOT_ASK)
    return Elicit(question, Confirmation)


def _require(confirmation: Decision) -> None:
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


def run(base_url: str, api_key: str, me: Me, *, port: int | None, read_only: bool, confirms: bool) -> None:
    """Serve on stdin and stdout, or on a port of this machine, until the client leaves or the process is interrupted.

    Args:
        me: the key and its organization.
    """

    async def serve() -> None:
        async with AsyncBookingClient(api_key, base_url=base_url, user_agent_suffix="booking-mcp") as client:
            server = BookingServer(client, me, read_only=read_only, confirms=confirms)
            if port is None:
                await server.run_stdio_async()
            else:
                await _serve_on(server, port)

    anyio.run(serve)


async def _serve_on(server: BookingServer, port: int) -> None:
    """Serve on a port as the package does, but end calls that still run some seconds after an interruption."""
    app = server.streamable_http_app(host=_HOST)
    config = uvicorn.Config(app, host=_HOST, port=port, log_level="warning", timeout_graceful_shutdown=STOP_WITHIN_S)
    http_server = uvicorn.Server(config)
    # A call that is ended is no error to report.
    logging.getLogger("uvicorn.error").addFilter(lambda _: not http_server.should_exit)
    await http_server.serve()
