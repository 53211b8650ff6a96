"""What the worker leaves behind is found when it is old

Mails, effects and holds are forgotten like the log of deliveries. So a mail says when it came to its end, and a key
that staff was warned of it, since the effect that said so goes. When a mail had failed nobody wrote down: it counts
from its beginning.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ENDED = sa.text("completed_at IS NOT NULL")
_UNMAILED = sa.text("completed_at IS NOT NULL AND last_error IS NOT NULL")


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("warned_at", sa.BigInteger()))
    op.execute(
        "UPDATE api_keys SET warned_at = (SELECT x.created_at FROM effects x"
        " WHERE x.organization_id = api_keys.organization_id AND x.key = 'staff_key_expiring_mail:' || api_keys.id)"
    )
    op.add_column("mails", sa.Column("completed_at", sa.BigInteger()))
    op.execute("UPDATE mails SET completed_at = coalesce(sent_at, created_at) WHERE status <> 'queued'")
    op.create_index("ix_mails_ended", "mails", ["status", "completed_at"], postgresql_where=_ENDED, sqlite_where=_ENDED)
    op.create_index(
        "ix_effects_unmailed",
        "effects",
        ["status", "completed_at"],
        postgresql_where=_UNMAILED,
        sqlite_where=_UNMAILED,
    )
    op.create_index(op.f("ix_holds_created_at"), "holds", ["created_at"])


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
