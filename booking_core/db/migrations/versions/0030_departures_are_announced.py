"""Departures are announced

The organizations whose log of bookings is followed for `departure.updated`, and the departures that are to be
announced.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0030"
down_revision = "0029"
is_additive = True
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")


def upgrade() -> None:
    op.create_table(
        "departure_followers",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("followed_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_departure_followers")),
    )
    op.create_table(
        "departure_touches",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("departure_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "departure_id", "id", name=op.f("pk_departure_touches")),
    )
    op.create_index("ix_departure_touches_due", "departure_touches", ["organization_id", "due_at", "departure_id"])


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
