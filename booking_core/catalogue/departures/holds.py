"""SQL expressions for the seats that holds keep. Availability and booking sum them here, so that they always agree."""

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select

from booking_core.db.tables import holds

SEATS_HELD = func.coalesce(func.sum(holds.c.seats), 0)
"""The seats of the selected holds, 0 without a hold."""


def is_live(at: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition for holds that keep their seats at an instant: neither ended nor expired."""
    return and_(holds.c.ended_at.is_(None), holds.c.expires_at > at)


def select_seats_held(
    organization_id: ColumnElement[Any], departure_id: ColumnElement[Any], at: ColumnElement[int]
) -> Select[Any]:
    """Select the seats that live holds keep on one departure."""
    return select(SEATS_HELD).where(
        holds.c.organization_id == organization_id, holds.c.departure_id == departure_id, is_live(at)
    )
