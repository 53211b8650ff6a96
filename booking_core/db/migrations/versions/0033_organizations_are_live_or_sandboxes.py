"""Organizations are live or sandboxes

The offset of a sandbox's clock. Every organization that exists is live, and has none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
is_additive = True
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("organizations", sa.Column("clock_offset", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
