"""Gift card entries are numbered

What a cancellation returns to a gift card has the number 0, what changes of the party return 1 and so on. The
constraint that a booking has one entry of each kind goes; a later revision has an index of booking, kind and number
instead.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("gift_card_entries") as entries:
        entries.add_column(sa.Column("number", sa.Integer(), server_default=sa.text("0"), nullable=False))
        entries.drop_constraint(op.f("uq_gift_card_entries_organization_id_booking_id_kind"), type_="unique")


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
