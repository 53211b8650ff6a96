"""Calls of a reseller that speaks OCTO."""

from typing import Any

import httpx

from support.api.api import Api, body_of
from support.world.operations import Operations
from support.world.world import DAY

JsonObject = dict[str, Any]
CONTACT = {"fullName": "Ada Lovelace", "emailAddress": "ada@example.com"}
ADULT = {"unitId": "adult"}
UNKNOWN = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
"""An id that nothing has."""


class Octo:
    """Calls of a reseller with a key of the organization, about one product with two departures."""

    def __init__(self, api: Api, seats: int = 5) -> None:
        self.api, self.world, self.ops = api, api.world, Operations(api.world)
        self.product = self.world.experience()
        starts = [self.world.clock() + days * DAY for days in (2, 3)]
        self.departures = [self.world.departure(self.product, seats=seats, starts_at=start) for start in starts]
        self.ids = [api.get(f"/departures/{one}").json()["starts_at"] for one in self.departures]

    def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.api.key}", "Octo-Capabilities": "octo/pricing"}
        answer: httpx.Response = self.api.client.request(method, f"/octo{path}", headers=headers, **arguments)
        return answer

    def result(self, method: str, path: str, **arguments: Any) -> Any:
        return body_of(self.call(method, path, **arguments))

    def order(self, count: int = 2, **over: Any) -> JsonObject:
        departure = {"productId": self.product, "optionId": "DEFAULT", "availabilityId": self.ids[0]}
        return {**departure, "unitItems": [ADULT] * count, **over}

    def reserved(self, count: int = 2, **over: Any) -> JsonObject:
        return dict(self.result("POST", "/bookings", json=self.order(count, **over)))

    def confirmed(self, count: int = 2, **over: Any) -> JsonObject:
        uuid = self.reserved(count)["uuid"]
        return dict(self.result("POST", f"/bookings/{uuid}/confirm", json={"contact": CONTACT, **over}))

    def vacancies(self, position: int = 0) -> int:
        return int(self.api.get(f"/departures/{self.departures[position]}").json()["seats_available"])


def refused(answer: httpx.Response) -> tuple[int, str]:
    """Check a refusal for the shape of the standard, and return its status and code."""
    assert set(answer.json()) >= {"error", "errorMessage"}
    return answer.status_code, answer.json()["error"]
