"""Checks of the announcement of departures: none waits, and the last event shows the last state."""

from datetime import datetime
from typing import Any

import orjson

from booking_core.base import clock
from booking_core.base.clock import SECOND
from booking_core.db import sql_files
from booking_core.upkeep.doctor.checks import Check, RowScan

SQL = sql_files.load(__name__)


def validate_state(row: list[Any]) -> str | None:
    """Compare a departure with its last `departure.updated`."""
    starts_at, status, seats_total, seats_taken, held, body = row
    try:
        shown = orjson.loads(body)["data"]["object"]
        announced = {name: shown[name] for name in ("seats_total", "seats_available")}
        announced["starts_at"] = clock.from_datetime(datetime.fromisoformat(shown["starts_at"]))
        announced["is_cancelled"] = shown["status"] == "cancelled"
    except (ValueError, TypeError, KeyError) as error:
        return f"its event cannot be read: {type(error).__name__}"
    expected = {
        "seats_total": seats_total,
        "seats_available": announced["seats_available"] if held else max(0, seats_total - seats_taken),
        "starts_at": starts_at // SECOND * SECOND,
        "is_cancelled": status == "cancelled",
    }
    differing = [name for name, value in expected.items() if announced[name] != value]
    return f"its last event differs in {', '.join(differing)}" if differing else None


CHECKS = (
    Check(
        "a departure that changed is announced",
        SQL.text("overdue"),
        remedy="check that a worker is running",
        needs_worker=True,
    ),
    RowScan(
        "the last departure.updated shows the departure as it is",
        SQL.text("states"),
        "d.id",
        validate_state,
    ),
)
