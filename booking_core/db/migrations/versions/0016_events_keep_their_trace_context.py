"""Events keep their trace context

Deliveries continue the trace of the request that caused their event, in another process and hours later.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("events", sa.Column("traceparent", sa.Text(), nullable=True))
