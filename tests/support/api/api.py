"""The service as a client sees it, with the calls that most tests make."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
from starlette.testclient import TestClient

from booking_core.models.scopes import Scope
from support.world.world import World

PAGES_MAX = 20_000
"""More pages than any list of a test has: a list that goes in circles fails, and does not continue without end."""
_keys = itertools.count()


def fresh_key() -> str:
    """Return a unique Idempotency-Key."""
    return f"test-key-{next(_keys):08}"


class Api:
    """Calls with one key of one organization."""

    def __init__(self, client: TestClient, world: World, key: str | None = None) -> None:
        self.client = client
        self.world = world
        self.key = key or world.key()

    def with_scopes(self, *scopes: Scope, **columns: Any) -> "Api":
        """Return a client of the same service with a key of only these scopes."""
        return Api(self.client, self.world, self.world.key(*scopes, **columns))

    def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send a request with the key; `headers` are added."""
        headers = {"Authorization": f"Bearer {self.key}", **arguments.pop("headers", {})}
        response: httpx.Response = self.client.request(
            method, f"/api/v1{path}", headers=headers, follow_redirects=False, **arguments
        )
        return response

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.call("GET", path, params=params or None)

    def pages(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield page after page of a list, until there is no more."""
        for _ in range(PAGES_MAX):
            page = body_of(self.get(path, **params))
            assert page["has_more"] == (page["next_cursor"] is not None)
            yield page
            if not page["has_more"]:
                return
            params["starting_after"] = page["next_cursor"]
        raise AssertionError("the walk does not end")

    def post(self, path: str, body: Any = None, *, key: str | None = None, **arguments: Any) -> httpx.Response:
        """Send a POST with an Idempotency-Key, by default a new one."""
        headers = {"Idempotency-Key": key or fresh_key(), **arguments.pop("headers", {})}
        return self.call("POST", path, json=body, headers=headers, **arguments)

    def book(self, departure_id: str, *, count: int = 1, key: str | None = None, **over: Any) -> httpx.Response:
        """Book that number of adults."""
        return self.post("/bookings", booking_body(departure_id, count=count, **over), key=key)

    def cancel(self, booking_id: str, *, key: str | None = None, **body: Any) -> httpx.Response:
        return self.post(f"/bookings/{booking_id}/cancel", body, key=key)

    def event_types(self) -> list[str]:
        """Return the type of every event of the organization, oldest first."""
        page = self.get("/events", order="asc", limit=100).json()
        return [event["type"] for event in page["data"]]


def booking_body(departure_id: str, *, count: int = 1, **over: Any) -> dict[str, Any]:
    """Return a request body that books adults."""
    return {
        "experience_date_id": departure_id,
        "guests": [{"tier_id": "adult", "count": count}],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+47 900 00 000"},
        "payment": "pay_on_site",
        **over,
    }


def body_of(response: httpx.Response, status: int = 200) -> Any:
    """Check the status of a response, and return its body."""
    assert response.status_code == status, response.text
    return response.json()


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of an error response."""
    return response.status_code, response.json()["code"]
