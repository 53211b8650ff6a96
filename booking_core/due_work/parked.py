"""Rows that a job of the worker could not process: kept beside the job, tried again later, and reported.

A parked row stays as it is in its own table; only the job passes over it until its next attempt. The delays grow: a row
that always fails costs next to nothing. The table is shared, so all workers pass over the same rows, also after a
restart. An organization as a whole is parked under its own id.
"""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import bindparam, delete, func, select

from booking_core.base.clock import HOUR, MINUTE
from booking_core.db.engine import Tx
from booking_core.db.statements import NOW, OWNER, Statement, as_ids, in_rows, purge_before
from booking_core.db.tables import parked_work

FIRST_DELAY = MINUTE
DELAY_MAX = HOUR

_OF_JOB = (parked_work.c.organization_id == OWNER, parked_work.c.job == bindparam("job"))


class ParkedRow(NamedTuple):
    """A parked row that a job may have found due."""

    subject_id: str
    failures: int
    is_waiting: bool
    """Its next attempt is in the future."""


_FIND = Statement(
    select(
        parked_work.c.subject_id,
        parked_work.c.failures,
        parked_work.c.retry_at > select(NOW).scalar_subquery(),
    ).where(*_OF_JOB, in_rows(parked_work.c.subject_id, "wanted", "id"))
)
_REMOVE = Statement(delete(parked_work).where(*_OF_JOB, in_rows(parked_work.c.subject_id, "wanted", "id")))


def find(tx: Tx, job: str, organization_id: str, subject_ids: Collection[str]) -> dict[str, ParkedRow]:
    """Return the parked rows among the subjects, by subject."""
    rows = tx.all(_FIND, organization_id=organization_id, job=job, wanted=as_ids(sorted(subject_ids)))
    return {row[0]: ParkedRow(row[0], row[1], bool(row[2])) for row in rows}


def park(tx: Tx, job: str, organization_id: str, subject_id: str, error: BaseException) -> bool:
    """Park a row after an attempt that failed, and return whether this was its first failure."""
    row = find(tx, job, organization_id, [subject_id]).get(subject_id)
    failures, at = (row.failures if row else 0) + 1, tx.now()
    (tx.update if row else tx.insert)(
        parked_work,
        organization_id=organization_id,
        job=job,
        subject_id=subject_id,
        failures=failures,
        error=type(error).__name__,  # its text may hold parts of the row
        failed_at=at,
        retry_at=at + retry_delay(failures),
    )
    return row is None


def retry_delay(failures: int) -> int:
    """Return the microseconds until the next attempt: a minute, then twice as long each time, at most an hour."""
    return int(min(DELAY_MAX, FIRST_DELAY * 2 ** min(failures - 1, 20)))


def remove(tx: Tx, job: str, organization_id: str, subject_ids: Collection[str]) -> None:
    """Remove rows that were processed since."""
    tx.run(_REMOVE, organization_id=organization_id, job=job, wanted=as_ids(sorted(subject_ids)))


_COUNT = Statement(select(parked_work.c.job, func.count()).group_by(parked_work.c.job).order_by(parked_work.c.job))


def count(tx: Tx) -> dict[str, int]:
    """Count the parked rows by job."""
    return {row[0]: int(row[1]) for row in tx.all(_COUNT)}


_PURGE = purge_before(parked_work, parked_work.c.retry_at)


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Delete rows whose next attempt was due before that instant and never came: they are no longer due to their job.

    Returns:
        The number of deleted rows.
    """
    return tx.run(_PURGE, before=before, limit=limit)
