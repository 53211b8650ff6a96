"""A rush on gift cards: a hundred guests at once spend one card, some of them cancel, and no øre is made or lost.

BOOKING_TEST_GIFT_CARDS makes it larger than a run of every day has time for.
"""

import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.serving.servers import new_world
from support.world.operations import Operations, with_retries
from support.world.world import World

from booking_core.base.errors import Unprocessable
from booking_core.db import tables

CARDS = int(os.environ.get("BOOKING_TEST_GIFT_CARDS", "2"))
GUESTS = 100
PRICE = 89_000
PAYS_FOR = 60
FACE = PAYS_FOR * PRICE + 1
"""The last guest who is served at all gets one øre."""
_AT_ONCE = 8
"""As many as there are connections that write."""


@pytest.fixture
def world(fresh_database_url: str) -> Iterator[World]:
    with new_world(fresh_database_url) as made:
        yield made


class Rush(Operations):
    """Guests who pay with the same few cards."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.departure_id = world.departure(world.experience(), seats=100_000)
        self.refused: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    def buy(self, code: str, number: int) -> dict[str, Any] | None:
        """Return the booking; None for a guest for whom the card was empty. Every fifth guest cancels at once."""
        try:
            email = f"guest-{number}@example.com"
            booking = with_retries(self.check_out, self.departure_id, email=email, gift_card_code=code)
        except Unprocessable as refused:
            with self._lock:
                self.refused[refused.details[0].reason] += 1
            return None
        for _ in range(2 if number % 5 == 0 else 0):
            with_retries(self.cancel, booking["id"])
        return dict(booking)


@pytest.mark.exhaustive(but="postgresql")
def test_what_many_guests_take_from_a_card_is_what_it_loses(world: World) -> None:
    rush = Rush(world)
    cards = [rush.issue(FACE) for _ in range(CARDS)]
    wanted = [(code, number) for number in range(GUESTS) for _, code in cards]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        bought = list(pool.map(lambda each: rush.buy(*each), wanted))
    # An amount that was returned after all others had been refused is spent by one guest after the other.
    for (gift_card_id, code), number in itertools.product(cards, range(GUESTS, 2 * GUESTS)):
        if number % 5 and world.row(tables.gift_cards, gift_card_id)["balance_minor"] >= PRICE:
            wanted.append((code, number))
            bought.append(rush.buy(code, number))
    entries = world.rows(tables.gift_card_entries)
    rows = {row["id"]: row for row in world.rows(tables.gift_cards)}
    bookings = {row["id"]: row for row in world.rows(tables.bookings)}
    assert set(rush.refused) <= {"gift_card_empty"}
    assert len(bookings) == sum(each is not None for each in bought) == len(wanted) - rush.refused.total()
    for gift_card_id, _ in cards:
        of_card = [entry for entry in entries if entry["gift_card_id"] == gift_card_id and entry["booking_id"]]
        redeemed = -sum(entry["amount_minor"] for entry in of_card if entry["kind"] == "redeem")
        restored = sum(entry["amount_minor"] for entry in of_card if entry["kind"] == "restore")
        balance = rows[gift_card_id]["balance_minor"]
        assert balance + redeemed - restored == FACE
        assert 0 <= balance <= FACE
        live = [entry for entry in of_card if bookings[entry["booking_id"]]["status"] != "cancelled"]
        assert sum(-entry["amount_minor"] for entry in live) == redeemed - restored
        # No guest was refused for good while the card held a full price.
        assert len(live) >= PAYS_FOR
    published = [row for row in world.rows(tables.events) if row["type"] == "gift_card.redeemed"]
    assert len(published) == sum(entry["kind"] == "redeem" for entry in entries)
    cancelled = {each["id"] for each, (_, number) in zip(bought, wanted, strict=True) if each and number % 5 == 0}
    assert {entry["booking_id"] for entry in entries if entry["kind"] == "restore"} == cancelled
    assert world.examine() == []
    print(f"{CARDS} cards, {len(bookings)} bookings, {len(entries)} entries, refused {dict(rush.refused)}")
