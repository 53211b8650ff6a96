"""Bookings have a language

It is given with the booking; a booking without one has the language of its organization.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("bookings", sa.Column("locale", sa.Text()))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
