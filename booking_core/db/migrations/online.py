"""Operations of revisions that run beside a service."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op


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
