"""Payments are found by their payment intent

A payment intent pays for one booking: a second one is refused. The index is not unique, since earlier releases took one
intent for several bookings. The doctor reports those.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NAMED = sa.text("payment_intent IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        "ix_payments_intent",
        "payments",
        ["organization_id", "payment_intent"],
        postgresql_where=_NAMED,
        sqlite_where=_NAMED,
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
