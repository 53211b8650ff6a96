"""Payments that staff recorded for a booking, and their JSON."""

from typing import Any, NamedTuple

from sqlalchemy import bindparam, select

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, ROW_ID, Statement, columns_of
from booking_core.db.tables import payment_records
from booking_core.models.money import money_json


class Record(NamedTuple):
    """A payment that staff recorded."""

    id: str
    booking_id: str
    amount_minor: int
    currency: str
    method: str | None
    note: str | None
    received_at: int
    voided_at: int | None
    voided_note: str | None
    created_at: int


_RECORD = columns_of(Record._fields, payment_records)
_RECORDS = Statement(
    select(*_RECORD)
    .where(payment_records.c.organization_id == OWNER, payment_records.c.booking_id == bindparam("booking_id"))
    .order_by(payment_records.c.created_at, payment_records.c.id)
)
_RECORD_BY_ID = Statement(
    select(*_RECORD).where(payment_records.c.organization_id == OWNER, payment_records.c.id == ROW_ID)
)


def find_records(tx: Tx, organization: Organization, booking_id: str) -> list[Record]:
    """Return the payments that staff recorded for a booking, the oldest first, voided ones too."""
    return [Record._make(row) for row in tx.all(_RECORDS, organization_id=organization.id, booking_id=booking_id)]


def get_record(tx: Tx, organization_id: str, record_id: str) -> Record | None:
    """Return one recorded payment of the organization; none when it has no such record."""
    return tx.first_as(Record._make, _RECORD_BY_ID, organization_id=organization_id, id=record_id)


def organization_of_record(tx: Tx, record_id: str) -> Organization:
    """Return the organization of a recorded payment.

    Raises:
        NotFound: there is no such record.
    """
    return organizations.owner(tx, payment_records, record_id, "recorded payment")


def present_record(record: Record, organization: Organization) -> dict[str, Any]:
    """Return the recorded payment, ready for JSON."""
    return {
        "id": record.id,
        "booking_id": record.booking_id,
        "amount": money_json(record.amount_minor, record.currency),
        "method": record.method,
        "note": record.note,
        "received_at": organization.zone.iso_or_none(record.received_at),
        "voided_at": organization.zone.iso_or_none(record.voided_at),
        "voided_note": record.voided_note,
        "created_at": organization.zone.iso_or_none(record.created_at),
    }
