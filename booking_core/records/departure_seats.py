"""The number of a departure's seats, which staff and imports set."""

from collections.abc import Mapping

from sqlalchemy import BigInteger, Integer, case, update
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, rows_parameter
from booking_core.db.tables import Id, departures


def _resize(dialect: Dialect) -> dml.Update:
    """Set totals and ceilings in the database, which has the current number of sold seats (`tables.departures`)."""
    wanted = rows_parameter(
        dialect, "wanted", {"organization_id": Id, "id": Id, "seats_total": Integer, "at": BigInteger}
    ).c
    taken = departures.c.seats_taken
    return (
        update(departures)
        .where(departures.c.organization_id == wanted.organization_id, departures.c.id == wanted.id)
        .values(
            seats_total=wanted.seats_total,
            seats_ceiling=case((taken > wanted.seats_total, taken), else_=wanted.seats_total),
            updated_at=wanted.at,
        )
    )


_RESIZE = Statement(_resize)


def resize(tx: Tx, organization_id: str, totals: Mapping[str, int], *, at: int) -> None:
    """Set the total of seats by departure, in the order of ids in which every transaction locks."""
    wanted = [
        {"organization_id": organization_id, "id": each, "seats_total": totals[each], "at": at}
        for each in sorted(totals)
    ]
    if wanted:
        tx.run(_RESIZE, wanted=as_json(wanted))
