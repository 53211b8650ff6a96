"""Staff hears of payments

The mails to staff about a payment at Stripe are remembered with its intent, so that each is written once however often
Stripe says the same. In a sandbox the intent also keeps the test card that has paid for it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("payment_intents", sa.Column("staff_notices", sa.Text(), nullable=True))
    op.add_column("payment_intents", sa.Column("test_card", sa.Text(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
