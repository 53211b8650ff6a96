"""Organizations show who they are

Guests see their name, logo, colour and contact in mails and on the page, in a language.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("organizations", sa.Column("language", sa.Text()))
    op.add_column("organizations", sa.Column("logo_url", sa.Text()))
    op.add_column("organizations", sa.Column("brand_color", sa.Text()))
    op.add_column("organizations", sa.Column("website", sa.Text()))
    op.add_column("organizations", sa.Column("contact_email", sa.Text()))
    op.add_column("organizations", sa.Column("contact_phone", sa.Text()))
    op.add_column("organizations", sa.Column("reply_to_email", sa.Text()))
    op.add_column("organizations", sa.Column("guest_moves_until_hours", sa.Integer()))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
