"""Bookings are checked in

The instant at which the guests of a booking were checked in, or at which staff recorded that they did not come. At most
one of both is set.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("bookings", sa.Column("checked_in_at", sa.BigInteger(), nullable=True))
    op.add_column("bookings", sa.Column("no_show_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
