"""A catalogue file with one departure, for tests that sell at a shell."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEPARTURE = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
ORG = ("--org", "fjord-tours")


def nok(amount_minor: int) -> dict[str, Any]:
    """Return an amount as the API writes it."""
    return {"amount_minor": amount_minor, "currency": "NOK"}


def import_kayaks(booking: Callable[..., Any], folder: Path, *, seats: int = 40) -> None:
    """Import an experience with a departure, an add-on and a gift card into fjord-tours."""
    kayak = {
        "slug": "fjord-kayak",
        "title": "Fjord kayak",
        "is_published": True,
        "duration_minutes": 150,
        "price_tiers": [{"id": "adult", "name": "Adult", "price": nok(89_000), "seats_per_unit": 1}],
        "add_ons": [{"id": "drysuit", "label": "Dry suit", "price": nok(15_000)}],
        "departures": [{"id": DEPARTURE, "starts_at": "2099-06-01T10:00:00", "seats_total": seats}],
    }
    card = {"code": "GIFT-ABCD-1234", "initial_amount": nok(100_000)}
    file = folder / "catalogue.json"
    file.write_text(json.dumps({"experiences": [kayak], "gift_cards": [card]}))
    assert booking("catalog", "import", *ORG, str(file)).code == 0
