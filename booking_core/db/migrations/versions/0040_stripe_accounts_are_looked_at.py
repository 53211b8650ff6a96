"""Stripe accounts are looked at

The instant at which the worker next asks Stripe for the refunds and disputes of an account, and the instant up to which
its refunds are known: a webhook that was lost is made up for.
"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    zero = sa.text("0")
    op.add_column("stripe_accounts", sa.Column("look_at", sa.BigInteger(), server_default=zero, nullable=False))
    op.add_column("stripe_accounts", sa.Column("seen_until", sa.BigInteger(), server_default=zero, nullable=False))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
