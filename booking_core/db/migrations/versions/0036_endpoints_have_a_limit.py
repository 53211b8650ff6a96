"""Endpoints have a limit

The most deliveries that an endpoint is sent in a second.
"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhook_endpoints", sa.Column("max_per_second", sa.Integer(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
