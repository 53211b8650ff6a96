"""A shop repeats an order from its first step, however far it came before the service was killed."""

import asyncio
from typing import Any

import httpx
from support.api.api import booking_body
from support.serving.servers import Service, lines, new_world

STEPS = ("hold", "quote", "book")


def place(service: Service, key: str, departure: str, *, kill_after: str | None = None) -> dict[str, Any] | None:
    """Hold, quote and book with the keys of one order; None if the service is killed after a step."""

    async def chain() -> dict[str, Any] | None:
        async with lines(service.ports, key, 1) as (line,):
            hold = await line.try_post("/holds", {"departure_id": departure, "seats": 2}, "order-1017-hold")
            assert hold is not None
            assert hold.status == 201, hold.body
            if kill_after == "hold":
                return None
            body = booking_body(departure, count=2, hold_id=hold.json()["id"])
            quote = await line.try_post("/bookings/quote", body, "order-1017")
            assert quote is not None
            assert quote.json()["allowed"], quote.body
            if kill_after == "quote":
                return None
            booked = await line.try_post("/bookings", body, "order-1017")
            assert booked is not None
            assert booked.status == 201, booked.body
            found: dict[str, Any] = booked.json()
            assert quote.json()["booking_id"] in (None, found["id"])
            return None if kill_after == "book" else found

    return asyncio.run(chain())


def test_an_order_is_booked_once_whatever_step_it_was_killed_behind(mortal_service: Service) -> None:
    with new_world(mortal_service.url) as world:
        key, departure = world.key(), world.departure(world.experience(), seats=2)
    for step in STEPS:
        assert place(mortal_service.start(), key, departure, kill_after=step) is None
        mortal_service.kill()
    first = place(mortal_service.start(), key, departure)
    second = place(mortal_service, key, departure)
    response = httpx.get(
        f"http://127.0.0.1:{mortal_service.ports[0]}/api/v1/bookings", headers={"Authorization": f"Bearer {key}"}
    )
    mortal_service.stop()
    assert first == second
    assert response.json()["data"] == [first]
