"""The SQL of customers."""

from collections.abc import Iterable

from sqlalchemy import bindparam, select

from booking_core.customers.rules import CustomerRow
from booking_core.db.engine import Tx
from booking_core.db.paging import KeysetList
from booking_core.db.statements import OWNER, ROW_ID, Statement, as_ids, columns_of, in_rows
from booking_core.db.tables import customers
from booking_core.models.base import email_key

_CUSTOMERS = select(*columns_of(CustomerRow._fields, customers)).where(customers.c.organization_id == OWNER)
_BY_EMAIL = customers.c.email_key == bindparam("email_key")

LIST = KeysetList("customers", customers, _CUSTOMERS, {"email_key": _BY_EMAIL})

_GET = Statement(_CUSTOMERS.where(customers.c.id == ROW_ID))
_LOCK = Statement(
    _CUSTOMERS.add_columns(customers.c.updated_at, customers.c.anonymized_at)
    .where(customers.c.id == ROW_ID)
    .with_for_update(key_share=True)
)
_LOCK_NAMED = Statement(
    _CUSTOMERS.add_columns(customers.c.updated_at)
    .where(customers.c.anonymized_at.is_(None), in_rows(customers.c.id, "wanted", "id"))
    .order_by(customers.c.id)
    .with_for_update()
)
_GET_BY_EMAIL = Statement(_CUSTOMERS.where(_BY_EMAIL))


def get(tx: Tx, organization_id: str, customer_id: str) -> CustomerRow | None:
    return tx.first_as(CustomerRow._make, _GET, organization_id=organization_id, id=customer_id)


def lock(tx: Tx, organization_id: str, customer_id: str) -> tuple[CustomerRow, int, int | None] | None:
    """Lock the customer until the transaction ends, and return it with its updated_at and its anonymized_at."""
    row = tx.first(_LOCK, organization_id=organization_id, id=customer_id)
    return (CustomerRow._make(row[:-2]), row[-2], row[-1]) if row else None


def lock_named(tx: Tx, organization_id: str, customer_ids: Iterable[str]) -> list[tuple[CustomerRow, int]]:
    """Lock the customers that are not anonymized, in the order of their ids; each with its updated_at."""
    rows = tx.all(_LOCK_NAMED, organization_id=organization_id, wanted=as_ids(customer_ids))
    return [(CustomerRow._make(row[:-1]), row[-1]) for row in rows]


def get_by_email(tx: Tx, organization_id: str, email: str) -> CustomerRow | None:
    return tx.first_as(CustomerRow._make, _GET_BY_EMAIL, organization_id=organization_id, email_key=email_key(email))


def insert(tx: Tx, organization_id: str, row: CustomerRow) -> None:
    tx.insert(
        customers,
        organization_id=organization_id,
        **row._asdict(),
        email_key=email_key(row.email),
        updated_at=row.created_at,
    )


def save(tx: Tx, organization_id: str, row: CustomerRow, at: int, *, anonymized_at: int | None = None) -> None:
    """Write a locked customer.

    Args:
        anonymized_at: the instant when its personal data was replaced.
    """
    columns = row._asdict() | {"email_key": email_key(row.email), "anonymized_at": anonymized_at, "updated_at": at}
    tx.update(customers, organization_id=organization_id, **columns)
