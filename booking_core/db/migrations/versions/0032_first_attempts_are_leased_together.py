"""First attempts are leased together

The events that a worker claims for an endpoint are one row while their first attempts are in flight, and become rows of
deliveries and attempts with their results (decisions/0059). Deliveries that are leased already stay rows.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0032"
down_revision = "0031"
is_additive = True
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.create_table(
        "webhook_leases",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("endpoint_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("lost_leases", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("first_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "endpoint_id", "id", name=op.f("pk_webhook_leases")),
    )
    op.create_index(op.f("ix_webhook_leases_lease_until"), "webhook_leases", ["lease_until"])
    # Rows live for a second. A table that a vacuum has cut to nothing would be read whole, by plans that are kept.
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "ALTER TABLE webhook_leases SET (vacuum_truncate = off,"
            " autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"
        )
