"""Guests' links outlive the secret key that made them

A secret key can be dropped while links that it made are still in guests' mails: what makes those links is kept, sealed
with the secret key in use.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "link_keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("key_sealed", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_link_keys")),
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
