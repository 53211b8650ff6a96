"""Deliveries follow the log

An event is no longer a queued delivery for each endpoint from the beginning: an endpoint remembers how far it was
served, and a delivery becomes a row with its first attempt (decisions/0031). Deliveries that are queued already stay
rows, so every endpoint counts as served up to the present.
"""

import sqlalchemy as sa
from alembic import op

from booking_core.db.tables import Id

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_LEASED = sa.text("lease_until IS NOT NULL")
_WAITING = sa.text("status = 'queued' AND lease_until IS NULL")
_UNDELIVERED = sa.text("has_undelivered")
_RECOVERING = sa.text("recovering_at IS NOT NULL")
_LAST = "(SELECT k.last_event_sequence FROM counters k WHERE k.organization_id = {0}.organization_id)"


def _key(name: str) -> "sa.Column[str]":
    return sa.Column(name, Id, nullable=False)


# ruff: noqa: S608 - the texts of SQL are made of nothing but constants


def upgrade() -> None:
    _counters()
    _cursors()
    _subscriptions()
    _ranges()
    _deliveries()


def _counters() -> None:
    for name in ("has_webhooks", "has_undelivered"):
        op.add_column("counters", sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.execute(
        "UPDATE counters SET has_webhooks = EXISTS (SELECT 1 FROM webhook_endpoints e"
        " WHERE e.organization_id = counters.organization_id AND e.status = 'enabled' AND e.deleted_at IS NULL)"
    )
    op.create_index(
        "ix_counters_undelivered",
        "counters",
        ["organization_id"],
        postgresql_where=_UNDELIVERED,
        sqlite_where=_UNDELIVERED,
    )


def _cursors() -> None:
    op.create_table(
        "webhook_cursors",
        _key("organization_id"),
        _key("endpoint_id"),
        sa.Column("served_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_claimed_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("organization_id", "endpoint_id", name="pk_webhook_cursors"),
    )
    op.execute(
        "INSERT INTO webhook_cursors (organization_id, endpoint_id, served_sequence, last_claimed_at)"
        f" SELECT e.organization_id, e.id, coalesce({_LAST.format('e')}, 0), e.last_claimed_at"
        " FROM webhook_endpoints e WHERE e.deleted_at IS NULL"
    )
    op.add_column(
        "webhook_endpoints", sa.Column("generation", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )
    op.add_column("webhook_endpoints", sa.Column("given_up_at", sa.BigInteger()))
    op.drop_column("webhook_endpoints", "last_claimed_at")


def _subscriptions() -> None:
    op.rename_table("webhook_subscriptions", "former_subscriptions")
    if op.get_bind().dialect.name == "postgresql":  # names of constraints are unique in a schema
        for kind, rest in (("pk", ""), ("fk", "_organization_id_endpoint_id")):
            name = f"{kind}_webhook_subscriptions{rest}"
            op.execute(f"ALTER TABLE former_subscriptions DROP CONSTRAINT {name}")
    op.create_table(
        "webhook_subscriptions",
        _key("organization_id"),
        _key("endpoint_id"),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("from_sequence", sa.BigInteger(), nullable=False),
        sa.Column("until_sequence", sa.BigInteger()),
        sa.PrimaryKeyConstraint(
            "organization_id", "endpoint_id", "event_type", "from_sequence", name="pk_webhook_subscriptions"
        ),
        sa.ForeignKeyConstraint(
            ["organization_id", "endpoint_id"],
            ["webhook_endpoints.organization_id", "webhook_endpoints.id"],
            name="fk_webhook_subscriptions_organization_id_endpoint_id",
        ),
    )
    op.execute(
        "INSERT INTO webhook_subscriptions (organization_id, endpoint_id, event_type, from_sequence)"
        f" SELECT s.organization_id, s.endpoint_id, s.event_type, coalesce({_LAST.format('s')}, 0)"
        " FROM former_subscriptions s"
    )
    op.drop_table("former_subscriptions")


def _ranges() -> None:
    """Create the tables of missed events, with a range for each type of an endpoint that is disabled now."""
    op.create_table(
        "webhook_ranges",
        _key("organization_id"),
        _key("endpoint_id"),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("from_sequence", sa.BigInteger(), nullable=False),
        sa.Column("until_sequence", sa.BigInteger()),
        sa.Column("missed_at", sa.BigInteger(), nullable=False),
        sa.Column("recovering_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint(
            "organization_id", "endpoint_id", "event_type", "from_sequence", name="pk_webhook_ranges"
        ),
    )
    op.create_index(
        "ix_webhook_ranges_recovering",
        "webhook_ranges",
        ["organization_id", "endpoint_id"],
        postgresql_where=_RECOVERING,
        sqlite_where=_RECOVERING,
    )
    op.execute(
        "INSERT INTO webhook_ranges (organization_id, endpoint_id, event_type, from_sequence, missed_at)"
        " SELECT s.organization_id, s.endpoint_id, s.event_type, s.from_sequence, coalesce(e.disabled_at, e.updated_at)"
        " FROM webhook_subscriptions s JOIN webhook_endpoints e"
        " ON e.organization_id = s.organization_id AND e.id = s.endpoint_id"
        " WHERE e.status <> 'enabled' AND e.deleted_at IS NULL"
    )
    op.create_table(
        "webhook_recoveries",
        _key("organization_id"),
        _key("id"),
        _key("endpoint_id"),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "id", name="pk_webhook_recoveries"),
    )


def _deliveries() -> None:
    for name in ("ix_deliveries_organization_id_endpoint_id_created_at_id", "ix_deliveries_due", "ix_deliveries_ended"):
        op.drop_index(name, "deliveries")
    with op.batch_alter_table("deliveries") as deliveries:
        deliveries.add_column(sa.Column("generation", sa.Integer(), nullable=False, server_default=sa.text("0")))
        deliveries.drop_constraint("uq_deliveries_organization_id_endpoint_id_event_id", type_="unique")
        deliveries.create_unique_constraint(
            "uq_deliveries_event", ["organization_id", "endpoint_id", "event_type", "event_sequence"]
        )
    op.create_index(
        "ix_deliveries_status",
        "deliveries",
        ["organization_id", "endpoint_id", "status", "generation", "event_type", "event_sequence"],
    )
    op.create_index(
        "ix_deliveries_due",
        "deliveries",
        ["organization_id", "endpoint_id", "generation", "next_attempt_at"],
        postgresql_where=_WAITING,
        sqlite_where=_WAITING,
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup instead: going back would lose what was written since")
