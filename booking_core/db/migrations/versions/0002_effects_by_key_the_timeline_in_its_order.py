"""Effects by key, the timeline in its order

The primary keys change, which neither database does in place on both: what is kept is set aside, the table is made
anew, and filled again. No mail was ever written by the release before, so that table is only made anew.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ID = sa.String(length=36).with_variant(sa.UUID(as_uuid=False), "postgresql")
_QUEUED = sa.text("status = 'queued'")
_EFFECTS = (
    "organization_id, key, kind, subject_id, payload, status, attempt_count, due_at, lease_token, lease_until,"
    " last_error, created_at, completed_at"
)
_TIMELINE = "organization_id, customer_id, created_at, id, booking_id, kind, data"


def upgrade() -> None:
    op.execute("CREATE TABLE effects_kept AS SELECT * FROM effects")
    op.drop_table("effects")
    op.create_table(
        "effects",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject_id", _ID, nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempt_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("lease_token", sa.Text()),
        sa.Column("lease_until", sa.BigInteger()),
        sa.Column("last_error", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("completed_at", sa.BigInteger()),
        sa.CheckConstraint("status IN ('queued', 'done', 'failed')", name=op.f("ck_effects_status")),
        sa.PrimaryKeyConstraint("organization_id", "key", name=op.f("pk_effects")),
    )
    op.create_index("ix_effects_due", "effects", ["due_at"], postgresql_where=_QUEUED, sqlite_where=_QUEUED)
    op.execute(f"INSERT INTO effects ({_EFFECTS}) SELECT {_EFFECTS} FROM effects_kept")  # noqa: S608
    op.drop_table("effects_kept")

    op.drop_table("mails")
    op.create_table(
        "mails",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("effect_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("booking_id", _ID),
        sa.Column("recipient", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempt_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_attempt_at", sa.BigInteger()),
        sa.Column("lease_token", sa.Text()),
        sa.Column("lease_until", sa.BigInteger()),
        sa.Column("last_error", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger()),
        sa.CheckConstraint("status IN ('queued', 'sent', 'failed')", name=op.f("ck_mails_status")),
        sa.PrimaryKeyConstraint("organization_id", "id", name=op.f("pk_mails")),
        sa.UniqueConstraint("organization_id", "effect_key", name=op.f("uq_mails_organization_id_effect_key")),
        sa.UniqueConstraint("organization_id", "message_id", name=op.f("uq_mails_organization_id_message_id")),
    )
    op.create_index("ix_mails_due", "mails", ["next_attempt_at"], postgresql_where=_QUEUED, sqlite_where=_QUEUED)

    op.execute("CREATE TABLE timeline_kept AS SELECT * FROM timeline")
    op.drop_table("timeline")
    op.create_table(
        "timeline",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("customer_id", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("booking_id", _ID),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "customer_id", "created_at", "id", name=op.f("pk_timeline")),
    )
    op.execute(
        f"INSERT INTO timeline ({_TIMELINE}) SELECT {_TIMELINE} FROM timeline_kept WHERE customer_id IS NOT NULL"  # noqa: S608
    )
    op.drop_table("timeline_kept")

    op.add_column("departures", sa.Column("cancelling", sa.Text()))
    op.add_column("departures", sa.Column("minimum_checked_at", sa.BigInteger()))
    unfinished = sa.text("cancelling IS NOT NULL")
    op.create_index(
        "ix_departures_cancelling", "departures", ["starts_at"], postgresql_where=unfinished, sqlite_where=unfinished
    )

    deleted = sa.text("deleted_at IS NOT NULL")
    op.create_index(
        "ix_webhook_endpoints_deleted",
        "webhook_endpoints",
        ["deleted_at"],
        postgresql_where=deleted,
        sqlite_where=deleted,
    )

    ended = sa.text("completed_at IS NOT NULL")
    op.create_index(
        "ix_deliveries_ended",
        "deliveries",
        ["organization_id", "endpoint_id", "status", "created_at", "id"],
        postgresql_where=ended,
        sqlite_where=ended,
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
