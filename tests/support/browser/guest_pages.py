"""The guest's pages as a browser without scripts sees them."""

import re
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import httpx

from booking_core import bookings
from booking_core.base.context import Actor
from booking_core.db import tables
from booking_core.db.engine import Tx
from support.api.api import Api
from support.world.operations import Operations

TEXT = re.compile(r"<style>.*?</style>|<[^>]*>", re.DOTALL)


class Guest:
    """A browser without scripts that has the link of one booking."""

    def __init__(self, api: Api, **over: Any) -> None:
        self.api = api
        departure = over.pop("departure_id", None) or api.world.departure(api.world.experience())
        self.booking: dict[str, Any] = api.book(departure, **over).json()
        self.path = urlsplit(self.booking["manage_url"]).path

    @property
    def row(self) -> dict[str, Any]:
        return self.api.world.row(tables.bookings, self.booking["id"])

    def call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        response: httpx.Response = self.api.client.request(method, path, follow_redirects=False, **arguments)
        return response

    def open(self, after: str = "") -> httpx.Response:
        return self.call("GET", self.path + after)

    def confirm(self, offer: object = "0", **arguments: Any) -> httpx.Response:
        """Send the form of the cancellation page."""
        return self.call("POST", f"{self.path}/cancel", data={"offer": str(offer)}, **arguments)

    def pay_by_card(self, amount_minor: int = 89000) -> None:
        world = self.api.world
        paid = {"payment_method": "card", "payment_source": "stripe", "payment_status": "paid"}
        world.change(tables.bookings, self.booking["id"], **paid)
        world.insert(
            tables.payments, booking_id=self.booking["id"], payment_intent="pi_1", amount_minor=amount_minor,
            currency="NOK", status="paid", created_at=world.clock(), updated_at=world.clock(),
        )  # fmt: skip

    def refund_at_gateway(self, amount_minor: int) -> None:
        """Refund a part of the payment at the gateway, outside of this service."""
        booking_id = self.booking["id"]

        def record(tx: Tx, actor: Actor) -> object:
            bookings.lock(tx, actor, booking_id)
            return bookings.record_elsewhere(tx, actor, booking_id, amount_minor, None)

        Operations(self.api.world).act(record)


def text_of(response: httpx.Response) -> str:
    """Return the visible text of a page."""
    return " ".join(unescape(TEXT.sub(" ", response.text)).split())
