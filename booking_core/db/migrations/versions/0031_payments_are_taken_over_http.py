"""Payments are taken over HTTP

The organization's own account at Stripe, and for each checkout its payment intent with what Stripe said of it: errors,
refunds that somebody made at Stripe, disputes, and when Stripe is asked for its state.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0031"
down_revision = "0030"
is_additive = True
branch_labels = None
depends_on = None

_ID = sa.String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
_STATUSES = "'requested', 'open', 'succeeded', 'canceled', 'refused', 'needs_review', 'resolved'"


def upgrade() -> None:
    op.create_table(
        "stripe_accounts",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("credentials_sealed", sa.Text(), nullable=False),
        sa.Column("publishable_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_stripe_accounts")),
    )
    op.create_table(
        "payment_intents",
        sa.Column("organization_id", _ID, nullable=False),
        sa.Column("booking_id", _ID, nullable=False),
        sa.Column("intent_id", sa.Text(), nullable=True),
        sa.Column("client_secret_sealed", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("refunded_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("returned_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("dispute_id", sa.Text(), nullable=True),
        sa.Column("dispute_status", sa.Text(), nullable=True),
        sa.Column("dispute_reason", sa.Text(), nullable=True),
        sa.Column("disputed_minor", sa.BigInteger(), nullable=True),
        sa.Column("disputed_at", sa.BigInteger(), nullable=True),
        sa.Column("dispute_closed_at", sa.BigInteger(), nullable=True),
        sa.Column("check_at", sa.BigInteger(), nullable=True),
        sa.Column("check_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(f"status IN ({_STATUSES})", name=op.f("ck_payment_intents_status")),
        sa.CheckConstraint("refunded_minor >= 0 AND returned_minor >= 0", name=op.f("ck_payment_intents_refunds")),
        sa.CheckConstraint("(dispute_id IS NULL) = (dispute_status IS NULL)", name=op.f("ck_payment_intents_dispute")),
        sa.PrimaryKeyConstraint("organization_id", "booking_id", name=op.f("pk_payment_intents")),
        sa.UniqueConstraint("organization_id", "intent_id", name=op.f("uq_payment_intents_organization_id_intent_id")),
    )
    op.create_index(
        "ix_payment_intents_check",
        "payment_intents",
        ["organization_id", "check_at", "booking_id"],
        postgresql_where=sa.text("check_at IS NOT NULL"),
        sqlite_where=sa.text("check_at IS NOT NULL"),
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
