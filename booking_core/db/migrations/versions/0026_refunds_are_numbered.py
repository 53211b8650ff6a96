"""Refunds are numbered

The refund of the cancellation of a booking has the number 0, those of changes of its party 1 and so on. The
constraint that a booking has one refund goes; a later revision has an index of booking and number instead.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("refunds") as refunds:
        refunds.add_column(sa.Column("number", sa.Integer(), server_default=sa.text("0"), nullable=False))
        refunds.drop_constraint(op.f("uq_refunds_organization_id_booking_id"), type_="unique")


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
