"""Parties change

A change of party takes what was paid for guests who no longer come out of the payment of their booking.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("payments", sa.Column("released_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
