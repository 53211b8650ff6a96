"""Endpoints pause

The end of the pause after the last deliveries to an endpoint with a limit.
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhook_cursors", sa.Column("next_send_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
