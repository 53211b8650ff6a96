"""Organizations move between cells

What a move needs in the cell that an organization leaves (its state, the rows that changed since they were copied, and
where its keys and links lead now) and in the cell where it arrives (the rows that make it live there).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
is_additive = True
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.create_table(
        "cell_moves",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("to_cell", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("switched_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('copying', 'moved')", name=op.f("ck_cell_moves_state")),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_cell_moves")),
    )
    op.create_table(
        "cell_changes",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "id", name=op.f("pk_cell_changes")),
    )
    op.create_table(
        "cell_arrivals",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "id", name=op.f("pk_cell_arrivals")),
    )
    op.create_table(
        "cell_forwards",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("cell", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "subject", name=op.f("pk_cell_forwards")),
        sa.UniqueConstraint("subject", name=op.f("uq_cell_forwards_subject")),
    )
