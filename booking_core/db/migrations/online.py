"""Operations of revisions that run beside a service."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import context, op


def create_index(
    name: str, table: str, columns: Sequence[str], *, where: str | None = None, is_unique: bool = False
) -> None:
    """Create an index on an existing table without blocking its writers: on PostgreSQL concurrently, outside a
    transaction. It is the only operation of its revision, which is run again from its beginning when it is interrupted.
    """
    condition = None if where is None else sa.text(where)
    migration = op.get_context()
    if migration.dialect.name != "postgresql":
        op.create_index(name, table, list(columns), unique=is_unique, sqlite_where=condition)
        return
    with migration.autocommit_block():
        # An interrupted attempt leaves an index that is not valid.
        op.drop_index(name, table, if_exists=True, postgresql_concurrently=True)
        op.create_index(
            name, table, list(columns), unique=is_unique, postgresql_where=condition, postgresql_concurrently=True
        )


def finish_backfill(revision: str) -> None:
    """Fill the rows that the worker has left of the back-fill of an earlier revision, so that the next operations may
    rely on it. On PostgreSQL each batch is a transaction. The revision that calls it names the other in `completes`.

    The worker leaves none when both releases were in use. It has left all where an installation skips a release, or
    restores an old backup.
    """
    backfill = context.script.get_revision(revision).module.backfill
    migration = op.get_context()
    if migration.dialect.name != "postgresql":
        backfill.finish(op.get_bind())
        return
    with migration.autocommit_block():
        backfill.finish(op.get_bind())
