"""Resellers that repeat their requests while the service is killed again and again: each uuid is one booking.

BOOKING_TEST_OCTO_ORDERS and BOOKING_TEST_OCTO_KILLS make it larger than a run of every day has time for.
"""

import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any
from uuid import UUID

import httpx
import pytest
from support.serving.servers import Service, new_world
from support.world.world import DAY, World

from booking_core.db import tables

ORDERS = int(os.environ.get("BOOKING_TEST_OCTO_ORDERS", "42"))
KILLS = int(os.environ.get("BOOKING_TEST_OCTO_KILLS", "3"))
RESELLERS = 6
WITHIN_S = 60
REPEATED = 0.3
"""The share of the requests that a reseller sends again although they were answered."""
RETRIED = (409, 503)
"""The statuses that ask for another try."""

ADULT = {"unitId": "adult"}
CONTACT = {"fullName": "Ada Lovelace", "emailAddress": "ada@example.com"}
PLANS = ("confirm", "more confirm", "move confirm", "confirm more move", "cancel", "confirm cancel", "extend confirm")
JsonObject = dict[str, Any]


class Shop:
    """A service that is killed, and the orders of resellers, each with its plan."""

    def __init__(self, service: Service, world: World) -> None:
        self.service, self.world = service, world
        self.product, self.key, self.random = world.experience(), world.key(), random.Random(1)
        starts = [(world.clock() // DAY + days) * DAY for days in (2, 3)]
        self.departures = [world.departure(self.product, seats=3 * ORDERS, starts_at=start) for start in starts]
        self.ids = [world.organization.zone.iso(start) for start in starts]
        numbers = range(ORDERS)
        self.plans = dict(zip((str(UUID(int=number)) for number in numbers), islice(cycle(PLANS), ORDERS), strict=True))
        self._served, self._answered, self._answers = threading.Event(), threading.Condition(), 0

    def start(self) -> None:
        self.service.start()
        self._served.set()

    def kill_after_each(self, answers: Sequence[int]) -> None:
        """Kill every process when so many requests were answered, and start the service again."""
        for moment in answers:
            with self._answered:
                assert self._answered.wait_for(lambda enough=moment: self._answers >= enough, WITHIN_S)
            self._served.clear()
            self.service.kill()
            self.start()

    def place(self, uuid: str) -> JsonObject:
        """Carry an order out, and return the booking that its first request is answered with at the end."""
        with httpx.Client(headers={"Authorization": f"Bearer {self.key}"}, timeout=WITHIN_S) as client:
            self._send(client, "POST", "/bookings", self._order(uuid))
            for step in self.plans[uuid].split():
                method, path, body = self._step(step)
                self._send(client, method, f"/bookings/{uuid}{path}", body)
            return self._send(client, "POST", "/bookings", self._order(uuid))

    def _order(self, uuid: str) -> JsonObject:
        of = {"uuid": uuid, "productId": self.product, "optionId": "DEFAULT", "availabilityId": self.ids[0]}
        return {**of, "unitItems": [ADULT] * 2, "expirationMinutes": 30}

    def _step(self, name: str) -> tuple[str, str, JsonObject]:
        steps: dict[str, tuple[str, str, JsonObject]] = {
            "confirm": ("POST", "/confirm", {"contact": CONTACT}),
            "extend": ("POST", "/extend", {}),
            "cancel": ("POST", "/cancel", {"reason": "Ill"}),
            "more": ("PATCH", "", {"unitItems": [ADULT] * 3}),
            "move": ("PATCH", "", {"availabilityId": self.ids[1]}),
        }
        return steps[name]

    def _send(self, client: httpx.Client, method: str, path: str, body: JsonObject) -> JsonObject:
        """Send a request until it is answered, and now and then once more."""
        while True:
            assert self._served.wait(WITHIN_S)
            try:
                port = self.random.choice(self.service.ports)
                answer = client.request(method, f"http://127.0.0.1:{port}/octo{path}", json=body)
            except (httpx.TransportError, IndexError):
                continue  # it was killed
            if answer.status_code in RETRIED:
                continue
            assert answer.status_code == 200, answer.text
            with self._answered:
                self._answers += 1
                self._answered.notify_all()
            if self.random.random() >= REPEATED:
                return dict(answer.json())


@pytest.mark.exhaustive(but="sqlite")
def test_each_uuid_is_one_booking_though_the_service_dies_again_and_again(mortal_service: Service) -> None:
    with new_world(mortal_service.url) as world:
        shop = Shop(mortal_service, world)
        shop.start()
        moments = sorted(random.Random(2).sample(range(1, 3 * ORDERS), KILLS))
        with ThreadPoolExecutor(RESELLERS + 1) as pool:
            kills = pool.submit(shop.kill_after_each, moments)
            bookings = list(pool.map(shop.place, shop.plans))
            kills.result()
        mortal_service.stop()
        each_order_is_as_planned(shop, bookings)
        each_was_carried_out_once(shop)


def each_order_is_as_planned(shop: Shop, bookings: Sequence[JsonObject]) -> None:
    assert [booking["uuid"] for booking in bookings] == list(shop.plans)
    for booking, plan in zip(bookings, shop.plans.values(), strict=True):
        state = booking["status"], len(booking["unitItems"]), booking["availabilityId"]
        status = "CANCELLED" if "cancel" in plan else "CONFIRMED"
        assert state == (status, 3 if "more" in plan else 2, shop.ids["move" in plan])


def each_was_carried_out_once(shop: Shop) -> None:
    """Check one hold for each uuid, one booking and one event of each kind for each confirmation, and the seats."""
    world, plans = shop.world, shop.plans
    reservations = {row["id"]: row for row in world.rows(tables.reservations)}
    assert sorted(reservations) == sorted(plans)
    assert sorted(row["id"] for row in world.rows(tables.holds)) == sorted(
        row["hold_id"] for row in reservations.values()
    )
    assert all(row["ended_at"] for row in world.rows(tables.holds))
    booked = {reservations[uuid]["booking_id"]: plan for uuid, plan in plans.items() if "confirm" in plan}
    assert sorted(row["id"] for row in world.rows(tables.bookings)) == sorted(booked)
    events = Counter((row["resource_id"], row["type"]) for row in world.rows(tables.events))
    for booking_id, plan in booked.items():
        types = {
            "booking.created": 1,
            "booking.confirmed": 1,
            "booking.updated": plan == "confirm more move",
            "booking.rescheduled": plan == "confirm more move",
            "booking.cancelled": "cancel" in plan,
        }
        assert {name: events[booking_id, name] for name in types} == types
    seats = [0, 0]
    for plan in plans.values():
        seats["move" in plan] += 0 if "cancel" in plan else 3 if "more" in plan else 2
    assert [world.row(tables.departures, one)["seats_taken"] for one in shop.departures] == seats
