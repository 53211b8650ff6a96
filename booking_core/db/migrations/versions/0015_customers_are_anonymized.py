"""Customers are anonymized

A customer's personal data is replaced in every table, in batches; a row of `erasures` says how far that is.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
is_additive = True
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.add_column("customers", sa.Column("anonymized_at", sa.BigInteger()))
    op.create_table(
        "erasures",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("customer_id", _ID, nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("addresses", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.Column("progressed_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("organization_id", "customer_id", name=op.f("pk_erasures")),
    )
    op.create_index(
        "ix_erasures_unfinished",
        "erasures",
        ["organization_id", "requested_at", "customer_id"],
        postgresql_where=sa.text("finished_at IS NULL"),
        sqlite_where=sa.text("finished_at IS NULL"),
    )
