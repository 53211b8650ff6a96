"""`/api/v1/openapi.json`: the words and the examples of the API's description, and the endpoint that serves it.

The description itself is built from the operations and the wire models in `booking_server.api.openapi`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from booking_core.errors import BookingError, Conflict, MethodNotAllowed, Unprocessable
from booking_core.idempotency import Answer
from booking_core.models.base import Resource
from booking_core.models.bookings import Booking
from booking_core.models.customers import Customer
from booking_core.models.departures import Departure
from booking_core.models.events import Event, EventType
from booking_core.models.experiences import Experience
from booking_core.models.gift_cards import GiftCard
from booking_core.models.limits import API_VERSION
from booking_core.models.organizations import Me
from booking_core.models.webhooks import Delivery, Recovered, WebhookEndpoint, WebhookEndpointWithSecret
from booking_server.api import changelog, errors
from booking_server.api.middleware import Receive, Scope, Send
from booking_server.api.operations import Operation
from booking_server.api.reply import Reply
from booking_server.execution.dispatch import Incoming, Service, refuse


class OpenApi(Resource):
    """An OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]


OPERATION = Operation(
    id="get_openapi",
    method="GET",
    path="/api/v1/openapi.json",
    tag="Description",
    summary="This description",
    description="Needs no key. Where it and prose elsewhere disagree, it is right.",
    answers={200: ("The description.", OpenApi)},
)


class Description:
    """Serves bytes that are ready, to anyone, counted against the client's address."""

    def __init__(self, service: Service, body: bytes) -> None:
        self.service = service
        self.answer = Answer(200, body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != OPERATION.method:
            await refuse(MethodNotAllowed([OPERATION.method]), scope)(scope, receive, send)
            return
        incoming = Incoming(
            operation=OPERATION,
            headers=scope["headers"],
            query=scope["query_string"],
            path=scope["path"],
            ids={},
            body=b"",
            request_id=scope["booking.request_id"],
            address=scope["client"][0] if scope.get("client") else "",
        )
        await (await self._reply(incoming))(scope, receive, send)

    async def _reply(self, incoming: Incoming) -> Reply:
        answer, headers = self.answer, list[tuple[bytes, bytes]]()
        try:
            # In a thread, because a shared store of the limiter is asked over a socket.
            await asyncio.to_thread(self.service.limit_address, incoming)
        except BookingError as error:
            answer, headers = incoming.refuse(error), errors.headers(error)
        if incoming.reading:
            headers += incoming.reading.headers
        return Reply(answer, headers)


PROSE = f"""\
The HTTP API of Booking Service, for an operator of bookable experiences: the catalogue, departures with live seats,
bookings, customers, gift cards, an event feed and signed webhooks.

## Conventions

- A key belongs to one organization, and that organization is the only one it sees. What belongs to another is answered
  like what does not exist: 404 `not_found`.
- Requests and responses are JSON in UTF-8. A request body is at most 256 KiB, and a number that must be an integer is
  written as one (`1`, not `1.0` or `"1"`).
- Ids are UUIDs. Money is an integer of the currency's minor unit beside its ISO 4217 code.
- Timestamps are ISO 8601 to the second with the offset of the organization's time zone. Those you send may carry any
  offset; without one they are wall time of the organization. Dates are `YYYY-MM-DD`, days of the organization.
- Optional fields that are null count as absent. Unknown fields and query parameters are ignored.
- Control characters are refused everywhere; a `note` may hold TAB, LF and CR.
- Paths are exact: no trailing slash, no other case, no redirects. A path that is not listed here answers 404
  `not_found`, a method that a path does not list 405 `method_not_allowed` with `Allow`.
- Ignore fields, enum values and event types that you do not know: they are added without a new version.

## Authentication

Send `Authorization: Bearer <API_KEY>` with every request but the one for this document. A key is `svc_` and 40
characters. `GET /api/v1/me` needs no scope and tells whether a key works. An operation that needs a scope names it in
its description and as `x-required-scope`; a key without it is answered 403 `insufficient_scope`, with
`required_scope`.

## Idempotency

Where `Idempotency-Key` is listed, a retry with the same key and the same body gets the first answer again: the same
status and the same bytes, and the header `Idempotent-Replayed: true`. Nothing is done twice. Keys belong to the
organization and are kept for 30 days.

- What was decided is kept: success, 404, 409 `insufficient_capacity` and `conflict`, 422 `validation_failed`. After
  any other answer nothing was done, and the key may be used again.
- The same key with another path or body answers 422 `idempotency_key_reused`.
- While the first request runs, a second one answers 409 `idempotency_in_progress` with `Retry-After`.

## Lists

A list is a page: `data`, `has_more`, `next_cursor`. To walk it, pass `next_cursor` as `starting_after`, with the same
`order` and filters, until `has_more` is false; `limit` may change on the way. A cursor is opaque and signed: one that
was changed, or that belongs to another list, answers 400. Nothing is skipped or repeated while rows are added.

## Following the feed

`GET /api/v1/events` lists what happened, and every event has a `sequence`: dense within the organization, in the order
of commits. To follow it, walk with `order=asc`; on the last page keep `resume_cursor` and pass it as `starting_after`
the next time. Events are kept for 90 days, and an older cursor continues at the oldest event that is kept. Webhooks
push the same events; `GET /api/v1/events/{{id}}` takes the id in `Svc-Event-Id`.

Not everything has events: customers and gift cards that the operator imports with a catalogue file are history, which
emits none. The lists of customers and gift cards show them.

## Errors

Every answer that is not a success has the body `ErrorBody`. Branch on `code`, never on `error`, which is English text
for people. `details` names fields and conditions where it can, with a stable `reason`. Each operation lists its
statuses with their codes. 400 means that the request is wrong as such, 422 that it is understood and cannot be
fulfilled. 500 and 503 may be sent again, with the same `Idempotency-Key` where there is one. 503
`service_unavailable`, with `Retry-After`, means that the database is away, too busy, read-only or out of space.

A request is read as RFC 9112 says. What could be understood in two ways is answered 400 `validation_failed`, and the
connection is closed: no `Host` or two, `Content-Length` with `Transfer-Encoding`, line breaks that are not CRLF. The
request line and the headers may have 64 KiB and 100 headers (431 `headers_too_large`), a body 256 KiB (413
`payload_too_large`); both close the connection. The head has to arrive within 10 seconds, the body within 30; after
that the connection is closed without an answer.

Every answer carries `x-request-id`: yours, when you send one of at most 128 characters of `A-Z a-z 0-9 . _ -`, else a
new one. Quote it when you ask for help.

## Rate limit

600 requests in 60 seconds for each key, 60 in 60 seconds for each address (of IPv6: each /64) that sends no valid key,
unless the operator set it otherwise. An address that has spent these is refused without a look at the key that it
sends, unless that key was used with success before. `x-ratelimit-limit`, `x-ratelimit-remaining` and
`x-ratelimit-reset` (Unix seconds at which all of it is available again) tell where you stand; they are absent only when
the limit is off, or when an answer was given before it was asked. One request too many answers 429 `rate_limited` with
`Retry-After`, in seconds.

## Versioning

All paths stay under `/api/v1`. The version of the resource shapes is a date, {API_VERSION}: it is the version of this
document and `api_version` in every event. Additions do not change it. A breaking change does, and is announced in the
changelog at least 30 days before, while the API is in beta; a stable API gives 6 months.

### Changelog

{changelog.table()}

The same is in `info.x-changelog`, for programs.
"""

WEBHOOKS_PROSE = """\
Sent by HTTPS POST to every enabled endpoint that subscribes to the type. The body is the event as
`GET /api/v1/events/{id}` answers it, less `resource_type` and `resource_id`.

Any 2xx answer within 10 seconds is a success. Anything else, a redirect included, is tried again after 1 minute,
5 minutes, 30 minutes, 2 hours and 8 hours. Each wait is lengthened by up to 5 % of random jitter and never shortened:
together they are up to 11 hours and 8 minutes. First attempts about one resource keep their order; retries may come
late, and any event may come twice: deduplicate by `id`, order by `sequence`.

Verify before you parse: `v1` of `Svc-Signature` is the HMAC-SHA256 of `<t>.<raw body>`, with the endpoint's whole
secret (`whsec_` included) as the key, in lower-case hex. Compare in constant time, accept any of several `v1`, and
refuse a `t` more than 5 minutes away. The `webhook-*` headers say the same in the Standard Webhooks scheme."""

TAGS: Mapping[str, str] = {
    "Me": "Who is calling, and for whom.",
    "Experiences": "The catalogue. Read only.",
    "Availability": "Departures with the seats that are left now.",
    "Bookings": "Seats of a departure, sold to a guest.",
    "Customers": "People known to the organization, each by one e-mail address.",
    "Gift cards": "Prepaid amounts that pay for bookings. Read only.",
    "Events": "What happened, in order: to be read back or followed.",
    "Webhooks": "Endpoints that events are sent to, and the log of what was sent.",
    "Description": "The API in a form for machines.",
}
"""In the order in which they are shown."""

EVENTS: Mapping[EventType, str] = {
    EventType.BOOKING_CREATED: "A booking was created, from whatever source; once for each booking.",
    EventType.BOOKING_CONFIRMED: "A booking became confirmed, or was created so.",
    EventType.BOOKING_CANCELLED: "A booking was cancelled.",
    EventType.BOOKING_RESCHEDULED: "A booking was moved to another departure.",
    EventType.CUSTOMER_CREATED: "A customer record was created; not told when an existing one is used again.",
    EventType.CUSTOMER_UPDATED: "A customer's contact details changed.",
    EventType.GIFT_CARD_ISSUED: "A gift card was paid for and issued.",
    EventType.GIFT_CARD_REDEEMED: "A gift card paid for a booking; `object` is the card as it is afterwards.",
    EventType.WEBHOOK_AUTO_DISABLED: "An endpoint was switched off after 72 hours without a success.",
    EventType.WEBHOOK_ENABLED: "An endpoint was switched on again.",
    EventType.WEBHOOK_SECRET_ROTATED: "An endpoint got a new secret. The secret is not in the event.",
    EventType.WEBHOOK_DELIVERY_DEAD: "A delivery failed for the last time.",
    EventType.PING: "A test, sent to the one endpoint it was asked for. It cannot be subscribed to.",
}


def _nok(amount_minor: int) -> dict[str, object]:
    return {"amount_minor": amount_minor, "currency": "NOK"}


_EXPERIENCE = "431036b1-9c9b-4475-96fc-d94e7485ab11"
_DEPARTURE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
_ENDPOINT = "9c3b1d70-52f4-4a58-8d4c-64f0f3a7e1b2"
_EVENT = "5d0f6a0c-8f0e-4a83-9a52-0f6a3f1c7d21"

_BOOKING = {
    "id": "7a1c9e54-3b0d-4f6a-9d3e-1c5b8a2f4e60",
    "booking_number": 1042,
    "status": "confirmed",
    "source": "api",
    "created_at": "2026-11-21T13:00:00+01:00",
    "updated_at": "2026-11-21T13:00:00+01:00",
    "experience": {"id": _EXPERIENCE, "title": "Fjord kayak", "slug": "fjord-kayak"},
    "departure": {
        "id": _DEPARTURE,
        "starts_at": "2026-12-24T10:00:00+01:00",
        "ends_at": "2026-12-24T12:30:00+01:00",
    },
    "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"},
    "guests": [{"tier_id": "adult", "tier_label": "Adult", "count": 2, "unit_price": _nok(89000)}],
    "add_ons": [],
    "totals": {"subtotal": _nok(178000), "discount": _nok(0), "gift_card": _nok(0), "total": _nok(178000)},
    "payment": {"method": "pay_on_site", "source": "on_site", "status": "unpaid"},
    "note": None,
    "manage_url": "https://booking.example.com/manage/Zm9yIHRoZSBndWVzdCBhbG9uZQ",
}
_CUSTOMER = {
    "id": "c2f6d8b1-0e47-4c1b-8a3f-5d9e7b6a4c13",
    "name": "Ada Lovelace",
    "email": "ada@example.com",
    "phone": "+47 900 00 000",
    "tags": [],
    "email_subscription": False,
    "created_at": "2026-11-21T13:00:00+01:00",
}
_GIFT_CARD = {
    "id": "e8b4a1c6-7d25-4f39-b0a8-3c6f1e9d5b74",
    "code_last4": "7KQ2",
    "status": "active",
    "initial_amount": _nok(200000),
    "balance": _nok(150000),
    "currency": "NOK",
    "expires_at": "2027-11-21T13:00:00+01:00",
    "purchaser": {"name": "Charles Babbage", "email": "charles@example.com"},
    "recipient": {"name": "Ada Lovelace", "email": "ada@example.com"},
    "created_at": "2026-11-21T13:00:00+01:00",
}
_WEBHOOK_ENDPOINT = {
    "id": _ENDPOINT,
    "url": "https://hooks.example.com/booking",
    "description": "The calendar",
    "event_types": ["booking.cancelled", "booking.created"],
    "status": "enabled",
    "disabled_at": None,
    "disabled_reason": None,
    "consecutive_failures": 0,
    "last_success_at": "2026-11-21T13:00:01+01:00",
    "last_failure_at": None,
    "previous_secret_expires_at": None,
    "api_version": API_VERSION,
    "created_at": "2026-11-20T09:15:00+01:00",
    "updated_at": "2026-11-20T09:15:00+01:00",
}
_ATTEMPT = {
    "id": "3f8e2c9a-6b14-4d7f-a5c0-9e1d7b3f6a82",
    "number": 1,
    "trigger": "scheduled",
    "started_at": "2026-11-21T13:00:00+01:00",
    "duration_ms": 84,
    "response_status": 200,
    "response_excerpt": "ok",
    "error": None,
}
_DELIVERY = {
    "id": "b7d5f3e1-4a92-4c68-8e0b-2f6a9c1d3e57",
    "endpoint_id": _ENDPOINT,
    "event_id": _EVENT,
    "event_type": "booking.created",
    "status": "succeeded",
    "failure_reason": None,
    "trigger": "event",
    "attempt_count": 1,
    "max_attempts": 6,
    "next_attempt_at": None,
    "last_attempt_at": "2026-11-21T13:00:00+01:00",
    "completed_at": "2026-11-21T13:00:01+01:00",
    "last_response_status": 200,
    "last_error": None,
    "attempts": [_ATTEMPT],
    "created_at": "2026-11-21T13:00:00+01:00",
    "updated_at": "2026-11-21T13:00:01+01:00",
}
_BOOKING_IN_EVENT = _BOOKING | {"manage_url": None}

DATA: Mapping[EventType, Mapping[str, Any]] = {
    EventType.BOOKING_CREATED: {"object": _BOOKING_IN_EVENT},
    EventType.BOOKING_CONFIRMED: {"object": _BOOKING_IN_EVENT},
    EventType.BOOKING_CANCELLED: {"object": _BOOKING_IN_EVENT | {"status": "cancelled"}, "reason": "api"},
    EventType.BOOKING_RESCHEDULED: {
        "object": _BOOKING_IN_EVENT,
        "previous_departure": {
            "id": "9566f6c9-2fe2-43f7-9df7-3a5b4feee5d1",
            "starts_at": "2026-12-23T10:00:00+01:00",
        },
    },
    EventType.CUSTOMER_CREATED: {"object": _CUSTOMER},
    EventType.CUSTOMER_UPDATED: {"object": _CUSTOMER | {"phone": None}},
    EventType.GIFT_CARD_ISSUED: {"object": _GIFT_CARD | {"balance": _nok(200000)}},
    EventType.GIFT_CARD_REDEEMED: {
        "object": _GIFT_CARD,
        "redeemed_amount": _nok(50000),
        "booking_id": _BOOKING["id"],
    },
    EventType.WEBHOOK_AUTO_DISABLED: {
        "object": _WEBHOOK_ENDPOINT
        | {
            "status": "auto_disabled",
            "disabled_at": "2026-11-21T13:00:00+01:00",
            "disabled_reason": "delivery_failures",
            "consecutive_failures": 30,
            "last_success_at": "2026-11-18T12:58:00+01:00",
            "last_failure_at": "2026-11-21T13:00:00+01:00",
        }
    },
    EventType.WEBHOOK_ENABLED: {"object": _WEBHOOK_ENDPOINT},
    EventType.WEBHOOK_SECRET_ROTATED: {
        "object": _WEBHOOK_ENDPOINT | {"previous_secret_expires_at": "2026-11-22T13:00:00+01:00"}
    },
    EventType.WEBHOOK_DELIVERY_DEAD: {
        "object": _WEBHOOK_ENDPOINT | {"consecutive_failures": 6, "last_failure_at": "2026-11-21T23:36:00+01:00"},
        "delivery_id": _DELIVERY["id"],
        "event_id": _DELIVERY["event_id"],
        "event_type": _DELIVERY["event_type"],
    },
    EventType.PING: {"object": {"message": "This is a test.", "endpoint_id": _ENDPOINT}},
}
"""What `data` of an event looks like."""


def envelope(kind: EventType) -> dict[str, Any]:
    """An event of that type, as it is delivered."""
    return {
        "id": _EVENT,
        "type": str(kind),
        "created_at": "2026-11-21T13:00:00+01:00",
        "api_version": API_VERSION,
        "sequence": 5210,
        "data": DATA[kind],
    }


EXAMPLES: Mapping[type[Resource], Mapping[str, Any]] = {
    Me: {
        "organization": {
            "id": "2d7a4c81-9f3e-4b56-a0d2-8c1e5f7b9a34",
            "slug": "fjord-tours",
            "name": "Fjord Tours",
            "timezone": "Europe/Oslo",
            "default_currency": "NOK",
        },
        "key": {
            "id": "f1a9c7e5-2b83-4d60-9e4f-7a5c3d1b8e96",
            "name": "Partner portal",
            "prefix": "svc_3kPz9QwX",
            "scopes": ["availability:read", "bookings:read", "bookings:write", "experiences:read"],
            "created_at": "2026-09-01T08:30:00+02:00",
            "expires_at": None,
            "last_used_at": "2026-11-21T12:59:00+01:00",
        },
    },
    Experience: {
        "id": _EXPERIENCE,
        "slug": "fjord-kayak",
        "title": "Fjord kayak",
        "is_published": True,
        "excerpt": "Flat water and thousand-metre walls.",
        "duration_minutes": 150,
        "duration": "2 h 30 min",
        "difficulty": "easy",
        "address": "Simadalsvegen 9, 5783 Eidfjord",
        "latitude": 60.4677,
        "longitude": 7.0706,
        "image_url": "https://images.example.com/fjord-kayak.jpg",
        "languages": ["nb", "en"],
        "tags": ["water", "kayak"],
        "price_from": _nok(89000),
        "price_tiers": [{"id": "adult", "name": "Adult", "price": _nok(89000), "seats_per_unit": 1}],
        "min_participants": 2,
        "hours_before_booking_closes": None,
        "created_at": "2026-09-01T08:30:00+02:00",
        "updated_at": "2026-10-12T16:05:00+02:00",
    },
    Departure: {
        "id": _DEPARTURE,
        "experience_id": _EXPERIENCE,
        "starts_at": "2026-12-24T10:00:00+01:00",
        "ends_at": "2026-12-24T12:30:00+01:00",
        "seats_total": 12,
        "seats_available": 10,
        "price": _nok(89000),
        "booking_closes_at": "2026-12-24T08:00:00+01:00",
        "status": "open",
    },
    Booking: _BOOKING,
    Customer: _CUSTOMER,
    GiftCard: _GIFT_CARD,
    Event: envelope(EventType.BOOKING_CREATED) | {"resource_type": "booking", "resource_id": _BOOKING["id"]},
    WebhookEndpoint: _WEBHOOK_ENDPOINT,
    WebhookEndpointWithSecret: _WEBHOOK_ENDPOINT
    | {"last_success_at": None, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="},
    Delivery: _DELIVERY,
    Recovered: {"matched": 17},
    OpenApi: {"openapi": "3.1.0", "info": {"title": "Booking Service", "version": API_VERSION}, "paths": {}},
}
"""Each resource once, and all of them of one story."""

CURSOR = "AQYtOT0mFgAAehyeVDsNT2qdPhxbii9OYJ1kT3p1Z0hK9mQ2b3JyZWN0"

REQUEST_ID = "req_3f9c1e7a5b2d4c6e8f0a1b2c"

_TOO_WIDE = "The window is wider than 92 days."
_NOT_PUBLIC = "Webhooks go to public addresses."
UNPROCESSABLE: Mapping[str, BookingError] = {
    "list_availability": Unprocessable.at("to", _TOO_WIDE, "window_too_wide"),
    "list_bookings": Unprocessable.at("departure_to", _TOO_WIDE, "window_too_wide"),
    "create_booking": Unprocessable.at("guests.0.tier_id", "The experience has no such price tier.", "unknown_tier"),
    "create_webhook": Unprocessable.at("url", _NOT_PUBLIC, "address_not_public"),
    "change_webhook": Unprocessable.at("url", _NOT_PUBLIC, "address_not_public"),
    "recover_webhook": Unprocessable.at("until", "The time ends before it begins.", "window_reversed"),
}
CONFLICT: Mapping[str, BookingError] = {
    "create_booking": Conflict("departure_started", "The departure has started."),
    "create_webhook": Conflict("endpoint_limit_reached", "The organization has 10 webhook endpoints."),
    "recover_webhook": Conflict("endpoint_not_enabled", "The endpoint is not enabled."),
    "retry_delivery": Conflict("delivery_not_dead", "Only a dead delivery can be tried again."),
}
"""What the two refusals that depend on the operation look like, by its id."""
