"""Bookings have a reference and metadata

The name of a booking in another system, and texts that this system keeps with it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("bookings", sa.Column("external_reference", sa.Text(), nullable=True))
    op.add_column("bookings", sa.Column("metadata", sa.Text(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
