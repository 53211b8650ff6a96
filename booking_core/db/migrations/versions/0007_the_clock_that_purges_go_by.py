"""The clock that purges go by

One row for the installation. It is made by the first purge, which knows what the newest event says of the time.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "retention_clock",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("moved_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_retention_clock_one")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retention_clock")),
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
