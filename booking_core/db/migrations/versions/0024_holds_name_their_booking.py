"""Holds name their booking

The booking that took over the seats of a hold.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
is_additive = True
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.add_column("holds", sa.Column("booking_id", _ID, nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
