"""Steps of the SDK's tests against the service that are not requests."""

import asyncio
import json
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Any

import httpx
from starlette.testclient import TestClient
from support.world.world import World

from booking_core.base.clock import to_datetime
from booking_core.db import tables
from booking_sdk import AsyncBookingClient, BookingClient
from sdk_support.blocking import blocking

ADULT = {"id": "adult", "name": "Adult", "price": {"amount_minor": 89000, "currency": "NOK"}, "seats_per_unit": 1}
FAMILY = {"id": "family", "name": "Family", "price": {"amount_minor": 250000, "currency": "NOK"}, "seats_per_unit": 4}
DRYSUIT = {"id": "drysuit", "label": "Dry suit", "price": {"amount_minor": 15000, "currency": "NOK"}}


class Stage:
    """An empty organization in Oslo on one of the databases, at a time that only the test moves."""

    def __init__(self, app: TestClient, world: World, runner: asyncio.Runner | None) -> None:
        self.app = app
        self.world = world
        self.runner = runner
        self._keys: dict[str, str] = {}

    @property
    def now(self) -> datetime:
        return to_datetime(self.world.clock())

    def client(self, scopes: Collection[str] = (), *, key: str | None = None) -> Any:
        key = key or self.world.key(*scopes)
        if self.runner is None:
            return BookingClient(key, base_url="http://testserver", http_client=self.app)
        http_client = httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app.app))
        return blocking(AsyncBookingClient(key, base_url="http://testserver", http_client=http_client), self.runner)

    def experience(self, *, published: bool = True) -> str:
        return self.world.experience(is_published=published, price_tiers=json.dumps([ADULT, FAMILY]))

    def departure(self, experience: str | None = None, *, seats: int = 12, in_days: float = 2) -> str:
        starts_at = self.world.clock() + int(in_days * 86_400_000_000)
        return self.world.departure(experience or self.experience(), seats=seats, starts_at=starts_at)

    def gift_card(self, code: str, amount_minor: int = 50_000) -> str:
        return self.world.gift_card(code, amount_minor=amount_minor)

    def advance(self, seconds: float) -> None:
        self.world.clock.advance(int(seconds * 1_000_000))

    def become_sandbox(self) -> None:
        self.world.change(tables.organizations, self.world.org, clock_offset=0)
        self.world.organization = replace(self.world.organization, clock_offset=0)
