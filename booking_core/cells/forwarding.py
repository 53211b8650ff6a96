"""Forward an organization that has left a cell, by its id or by a key of it."""

from collections.abc import Iterable

from sqlalchemy import bindparam, delete, select

from booking_core import tokens
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, api_keys, cell_forwards

_GET = Statement(select(cell_forwards.c.cell).where(cell_forwards.c.subject == bindparam("subject")))
_HASHES = Statement(
    select(api_keys.c.key_hash).where(api_keys.c.organization_id == bindparam("organization_id", type_=Id))
)
_CLEAR = Statement(
    delete(cell_forwards).where(cell_forwards.c.organization_id == bindparam("organization_id", type_=Id))
)


def subject_of_key(key: str) -> str:
    """Return the subject of a key."""
    return tokens.hash_api_key(key)


def get(tx: Tx, subject: str) -> str | None:
    """Return the cell to which an organization or a key went; None if it was never here, or is."""
    row = tx.first(_GET, subject=subject)
    return str(row[0]) if row else None


def write(tx: Tx, organization_id: str, cell: str, *, now: int) -> None:
    """Forward the organization and its keys, which are still here, to a cell."""
    clear(tx, organization_id)
    hashes: Iterable[str] = (str(row[0]) for row in tx.all(_HASHES, organization_id=organization_id))
    for subject in (organization_id, *hashes):
        tx.insert(tables.cell_forwards, organization_id=organization_id, subject=subject, cell=cell, created_at=now)


def clear(tx: Tx, organization_id: str) -> None:
    """Forget where the organization went, since it is back."""
    tx.run(_CLEAR, organization_id=organization_id)
