"""Requests of one organization that are answered with each status."""

import uuid
from collections.abc import Callable

import httpx

from booking_core.db import tables
from booking_core.models.limits import REQUEST_BODY_BYTES_MAX
from support.api.api import Api, booking_body


def _app_off(api: Api) -> httpx.Response:
    api.world.change(tables.organizations, api.world.org, api_app=False)
    return api.get("/me")


ANSWERS: dict[str, tuple[int, Callable[[Api, str], httpx.Response]]] = {
    "read": (200, lambda api, departure: api.get("/me")),
    "description": (200, lambda api, departure: api.client.get("/api/v1/openapi.json")),
    "list": (200, lambda api, departure: api.get("/availability", **{"from": "2026-11-20"})),
    "created": (201, lambda api, departure: api.book(departure)),
    "cancelled": (200, lambda api, departure: api.cancel(api.book(departure).json()["id"])),
    "malformed-query": (400, lambda api, departure: api.get("/bookings", limit=0)),
    "malformed-body": (400, lambda api, departure: api.post("/bookings", {})),
    "no-idempotency-key": (400, lambda api, departure: api.call("POST", "/bookings", json=booking_body(departure))),
    "no-key": (401, lambda api, departure: api.client.get("/api/v1/me")),
    "revoked": (401, lambda api, departure: Api(api.client, api.world, api.world.key(revoked_at=0)).get("/me")),
    "no-scope": (403, lambda api, departure: api.with_scopes("customers:read").get("/bookings")),
    "app-off": (403, lambda api, departure: _app_off(api)),
    "not-found": (404, lambda api, departure: api.get(f"/bookings/{uuid.uuid4()}")),
    "no-path": (404, lambda api, departure: api.get("/nothing")),
    "no-method": (405, lambda api, departure: api.call("DELETE", "/me")),
    "no-capacity": (409, lambda api, departure: api.book(departure, count=99)),
    "too-large": (413, lambda api, departure: api.post("/bookings", {"note": "x" * REQUEST_BODY_BYTES_MAX})),
    "no-json": (415, lambda api, departure: api.call("POST", "/customers", content=b"x")),
    "unfulfilled": (422, lambda api, departure: api.book(departure, guests=[{"tier_id": "x", "count": 1}])),
}
"""The status of each answer, and the request for it, with a departure of twelve seats."""
