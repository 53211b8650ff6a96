"""Endpoints have headers

The headers that a client adds to the deliveries of an endpoint: their names, and all of them sealed.
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhook_endpoints", sa.Column("header_names", sa.Text(), nullable=True))
    op.add_column("webhook_endpoints", sa.Column("headers_sealed", sa.Text(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
