"""A program as an integrator writes it: sells seats, reads, mirrors and receives. Checked strictly, then run."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from booking_sdk import (
    APIConnectionError,
    APIError,
    AsyncBookingClient,
    Booking,
    BookingCancelled,
    BookingClient,
    BookingEvent,
    BookingStatus,
    Event,
    GiftCardRedeemed,
    Hooks,
    InsufficientCapacityError,
    Money,
    RequestOptions,
    ResponseMeta,
    Sending,
    Timeout,
    UnknownEvent,
    WebhookVerificationError,
    idempotency_key,
    meta,
    parse_event_unverified,
    unwrap,
)
from booking_sdk.testing import FakeBookingAPI, make_event


def answered(sending: Sending, response: ResponseMeta) -> None:
    print(sending.method, sending.path, response.status_code, response.rate_limit)


def sell(client: BookingClient, order: int, departure: str) -> Booking | None:
    try:
        booking = client.bookings.create(
            departure_id=departure,
            guests=[{"tier_id": "adult", "count": 2}],
            customer={"name": "Ada", "email": "ada@example.com"},
            payment="external_paid",
            idempotency_key=idempotency_key("order", order),
        )
    except InsufficientCapacityError as error:
        seats: int = error.seats_available
        print(seats)
        return None
    except APIConnectionError as error:
        print(error.idempotency_key, error.maybe_executed, error.attempts, error.retryable)
        raise
    except APIError:
        raise
    total: Money = booking.totals.total + booking.totals.discount
    print(total, booking.created_at.astimezone(UTC), meta(booking).idempotent_replayed)
    if booking.status == BookingStatus.CONFIRMED or booking.status == "waitlisted":
        return booking
    return None


def read(client: BookingClient) -> None:
    page = client.bookings.list(status="confirmed", departure_from=date(2026, 6, 1), limit=10)
    for booking in page:
        print(booking.id, booking.guests[0].unit_price.to_decimal())
    following = page.next_page()
    if following is not None:
        print(len(following), following.data[0].note)
    today = datetime.now(UTC).date()
    for departure in client.availability.iterate(date_from=today, date_to=today + timedelta(days=300)):
        print(departure.seats_available, departure.price)
    for customer in client.customers.iterate(max_items=3).take(2):
        print(customer.email)
    options: RequestOptions = {"timeout": 3.0, "headers": {"X-Trace": "1"}}
    raw = client.with_raw_response(client.bookings.get, "id", options=options)
    print(raw.parse().status, raw.headers["x-request-id"])
    described = client.request("GET", "/api/v1/openapi.json", cast_to=dict[str, object])
    print(described)
    quick = client.with_options(timeout=Timeout(2, connect=1), hooks=Hooks(on_response=answered))
    print(quick.me().key.has("bookings:read"))


def handle(event: Event) -> None:
    match event:
        case BookingCancelled():
            print(event.data.reason, event.data.object.id)
        case BookingEvent():
            print(event.data.object.status)
        case GiftCardRedeemed():
            print(event.data.redeemed_amount)
        case UnknownEvent():
            print(event.type, event.data)
        case _:
            pass


def receive(client: BookingClient, body: bytes, headers: Mapping[str, str]) -> int:
    try:
        handle(client.webhooks.unwrap(body, headers))
        handle(unwrap(body, headers, "whsec_x"))
        handle(parse_event_unverified(body))
    except WebhookVerificationError as error:
        print(error.reason)
        return error.http_status
    return 200


def mirror(client: BookingClient, saved: str | None) -> None:
    feed = client.events.follow(after=saved, types=["booking.*"], since=datetime.now(UTC), on_checkpoint=print)
    for event in feed:
        handle(event)
        print(feed.checkpoint)


async def everything(client: AsyncBookingClient) -> None:
    async with client:
        print((await client.me()).organization.name)
        page = await client.bookings.list()
        for booking in page:
            print(booking.id)
        following = await page.next_page()
        print(following)
        async for event in client.events.follow(poll=None):
            handle(event)
        async for customer in client.customers.iterate():
            print(customer.name)
        raw = await client.with_raw_response(client.gift_cards.get, "id", include_code=True)
        print(raw.parse().code)
        endpoint = await client.webhooks.create(url="https://x.example.com", event_types=["booking.created"])
        print(endpoint.secret)
        await client.webhooks.update(endpoint.id, description=None, status="disabled")


def main() -> None:
    """Run a sale whose response is lost, handle an event, and read with the async client."""
    api = FakeBookingAPI()
    departure = api.add_departure(seats=4)
    api.drop_connection_after_commit()
    sell(api.client(), 17, departure.id)
    handle(make_event("booking.cancelled", reason="customer"))
    asyncio.run(run(api))


async def run(api: FakeBookingAPI) -> None:
    client = api.async_client(["bookings:read"], max_retries=0)
    print(await client.me())


if __name__ == "__main__":
    main()
