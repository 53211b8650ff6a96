"""The schema, as one document to be read from top to bottom.

Four rules hold for every table:

- `organization_id` leads every primary key and every index that a request uses, and every foreign key carries it: no
  row can refer to another organization's, and the tables can be distributed by tenant without a rewrite. `link_keys`,
  `retention_clock` and `workers` belong to the installation.
- An instant is a BIGINT of microseconds since 1970 UTC, money a BIGINT of minor units, an id a UUID: the same values in
  both databases, with the same order, comparison and arithmetic.
- A list that is only ever read and replaced whole with its owner (tiers of an experience, lines of a booking) is a
  JSON text in the owner's row.
- A constraint refuses defects of the code above it: a seat sold twice, a number used twice, an event written twice, a
  card below zero.
"""

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import SchemaItem

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Personal(StrEnum):
    """The treatment of a column by an erasure. Each text column of a table with personal data has it in its `info`."""

    NONE = "none"
    """Nothing: it holds no personal data."""
    EMPTIED = "emptied"
    """It becomes null."""
    REPLACED = "replaced"
    """A constant replaces it."""
    REWRITTEN = "rewritten"
    """Its owner replaces a part of it: JSON, a sealed text, or a text that must be unique."""


Id = String(36).with_variant(postgresql.UUID(as_uuid=False), "postgresql")
At = BigInteger
Minor = BigInteger
JsonText = Text
LONG: dict[str, Any] = {"long": True}
"""The info of a column whose texts are long: they travel beside the JSON of their rows (`unit_of_work`)."""
PLAIN, EMPTIED, REPLACED, REWRITTEN = ({"personal": personal} for personal in Personal)
"""The info of a column in a table with personal data."""


def _table(name: str, *items: SchemaItem, **options: Any) -> Table:
    """Return a table whose rows belong to organizations: the organization's id leads its primary key."""
    return Table(name, metadata, Column("organization_id", Id, primary_key=True), *items, **options)


def _entity(name: str, *items: SchemaItem) -> Table:
    """Return a table whose rows belong to organizations and have an id."""
    return _table(name, Column("id", Id, primary_key=True), *items)


def _dates() -> tuple[Column[int], Column[int]]:
    """Return the columns with the instants of a row's creation and last change."""
    return Column("created_at", At, nullable=False), Column("updated_at", At, nullable=False)


def _lease() -> tuple[Column[str], Column[int]]:
    """Return the columns with the token and the end of the lease of the worker that works on a row."""
    return Column("lease_token", Text, info=PLAIN), Column("lease_until", At)


def _sealed(name: str, **options: Any) -> tuple[Column[str], CheckConstraint]:
    """Return the column of a sealed text, and its check: an emptied text opens with no key, like a lost one."""
    return Column(name, Text, **options), CheckConstraint(f"{name} <> ''", name=name)


def _of_organization() -> ForeignKeyConstraint:
    """Return a foreign key to the organization of the row."""
    return ForeignKeyConstraint(["organization_id"], ["organizations.id"])


def _own(table: str, *columns: str) -> ForeignKeyConstraint:
    """Return a foreign key to a row of the same organization."""
    return ForeignKeyConstraint(["organization_id", *columns], [f"{table}.organization_id", f"{table}.id"])


def _partial(name: str, columns: str, *, where: str) -> Index:
    """Return an index of the rows that meet a condition; its columns are written as in SQL."""
    return Index(name, *columns.split(", "), postgresql_where=text(where), sqlite_where=text(where))


# Organizations ---------------------------------------------------------------------------------------------------

organizations = Table(
    "organizations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("slug", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("timezone", Text, nullable=False),
    Column("default_currency", Text, nullable=False),
    Column("api_app", Boolean, nullable=False, server_default=text("true")),
    Column("plan_api", Boolean, nullable=False, server_default=text("true")),
    Column("add_ons_app", Boolean, nullable=False, server_default=text("true")),
    Column("hours_before_booking_closes", Integer, nullable=False, server_default=text("0")),
    Column("pending_minutes", Integer),  # null: the installation's default
    Column("refund_full_until_hours", Integer, nullable=False, server_default=text("24")),
    Column("refund_late_percent", Integer, nullable=False, server_default=text("0")),
    Column("notify_staff", Boolean, nullable=False, server_default=text("true")),
    Column("staff_email", Text),
    Column("on_site_fee_percent", Float, nullable=False, server_default=text("0")),
    Column("cancel_under_minimum", Boolean, nullable=False, server_default=text("false")),
    # Write departure.updated also while no endpoint subscribes to it, for followers of the feed.
    Column("availability_events", Boolean, nullable=False, server_default=text("false")),
    # Shown to guests in mails and on the page; null: not given.
    Column("language", Text),  # BCP 47; null: English
    Column("logo_url", Text),
    Column("brand_color", Text),  # #rrggbb
    Column("website", Text),
    Column("contact_email", Text),
    Column("contact_phone", Text),
    Column("reply_to_email", Text),
    # Hours before the start; null: guests cancel, or move, no booking on their page.
    Column("guest_cancel_until_hours", Integer, server_default=text("0")),
    Column("guest_move_until_hours", Integer),
    # How far the clock of a sandbox is ahead of the real clock, in microseconds; null: the organization is live, for
    # its whole life.
    Column("clock_offset", BigInteger),
    *_dates(),
    CheckConstraint("refund_late_percent BETWEEN 0 AND 100", name="refund_late_percent"),
    _partial("ix_organizations_sandboxes", "id, clock_offset", where="clock_offset IS NOT NULL"),
)

# Locked last by every transaction that numbers a booking or publishes an event, for one statement and the commit: so
# numbers are dense and their order is the order of commits.
counters = _table(
    "counters",
    _of_organization(),
    Column("last_booking_number", BigInteger, nullable=False, server_default=text("0")),
    Column("last_event_sequence", BigInteger, nullable=False, server_default=text("0")),
)

# A key is looked up before its organization is known: the one unique index that the organization does not lead.
api_keys = _entity(
    "api_keys",
    _of_organization(),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("key_hash", Text, nullable=False, unique=True),
    Column("scopes", JsonText, nullable=False),
    Column("created_at", At, nullable=False),
    Column("expires_at", At),
    Column("revoked_at", At),
    Column("last_used_at", At),
    Column("warned_at", At),  # staff was mailed that it expires, which it is once
    _partial(
        "ix_api_keys_unwarned",
        "organization_id, expires_at, id",
        where="expires_at IS NOT NULL AND revoked_at IS NULL AND warned_at IS NULL",
    ),
)

# Catalogue -------------------------------------------------------------------------------------------------------

experiences = _entity(
    "experiences",
    _of_organization(),
    Column("slug", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("is_published", Boolean, nullable=False),
    Column("excerpt", Text),
    Column("duration_minutes", Integer),
    Column("difficulty", Text),
    Column("address", Text),
    Column("latitude", Float),
    Column("longitude", Float),
    Column("image_url", Text),
    Column("languages", JsonText, nullable=False),
    Column("tags", JsonText, nullable=False),
    Column("currency", Text, nullable=False),
    Column("price_from_minor", Minor),
    Column("price_tiers", JsonText, nullable=False),  # [{id, name, price: {amount_minor, currency}, seats_per_unit}]
    Column("add_ons", JsonText, nullable=False),  # [{id, label, price: {amount_minor, currency}}]
    Column("min_participants", Integer),
    Column("hours_before_booking_closes", Integer),  # null: the organization's default
    Column("meeting_point", Text),
    Column("what_to_bring", JsonText),  # [text]
    Column("terms", Text),
    Column("translations", JsonText),  # {language tag: {title, terms, price_tiers: {id: name}, ...}}; null: none
    *_dates(),
    UniqueConstraint("organization_id", "slug"),
    CheckConstraint("duration_minutes > 0", name="duration"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "organization_id", "is_published", "created_at", "id"),
    Index(None, "organization_id", "updated_at"),
)

# seats_taken counts pending and confirmed bookings; holds count by their expiry and are never added here.
# seats_ceiling is seats_total, except where staff lowered the total below the seats sold: then it is the number sold,
# and the guard below still refuses every further seat.
departures = _entity(
    "departures",
    Column("experience_id", Id, nullable=False),
    Column("starts_at", At, nullable=False),
    Column("ends_at", At),  # null: starts_at and the experience's duration
    Column("status", Text, nullable=False, server_default=text("'open'")),  # as staff set it
    Column("seats_total", Integer, nullable=False),
    Column("seats_ceiling", Integer, nullable=False),
    Column("seats_taken", Integer, nullable=False, server_default=text("0")),
    # Without tiers: the departure's price, null: price_from. With tiers: {tier id: minor}, null: the price of the tier.
    Column("price_minor", Minor),
    Column("prices", JsonText),
    *_dates(),
    Column("cancelling", Text),  # why, while bookings of a cancelled departure are still to be cancelled
    Column("minimum_checked_at", At),  # its participants were counted when booking closed
    Column("announce_at", At),  # it may look different than in its last event; null: it does not, or nobody subscribes
    _own("experiences", "experience_id"),
    UniqueConstraint("organization_id", "experience_id", "starts_at"),
    CheckConstraint("status IN ('open', 'closed', 'cancelled')", name="status"),
    CheckConstraint("seats_total >= 0", name="seats_total"),
    CheckConstraint("seats_taken BETWEEN 0 AND seats_ceiling", name="seats_taken"),
    CheckConstraint("ends_at >= starts_at", name="ends_after_start"),
    Index(None, "organization_id", "starts_at", "id"),
    _partial("ix_departures_cancelling", "organization_id, starts_at, id", where="cancelling IS NOT NULL"),
    _partial("ix_departures_announce_at", "organization_id, announce_at, id", where="announce_at IS NOT NULL"),
)

# Seats held in another checkout. A hold is live while ended_at is null and expires_at is in the future; no job ends it.
holds = _entity(
    "holds",
    Column("departure_id", Id, nullable=False),
    Column("seats", Integer, nullable=False),
    Column("guests", JsonText),  # as in bookings, at the prices of its beginning; null: it was made for seats
    Column("expires_at", At, nullable=False),
    Column("ended_at", At),  # released, or turned into a booking
    Column("booking_id", Id),  # the booking that took its seats over; null: none, or one of an earlier release
    Column("created_at", At, nullable=False),
    _own("departures", "departure_id"),
    CheckConstraint("seats > 0", name="seats"),
    Index(None, "organization_id", "departure_id", "expires_at"),
    # Old ones are found by when they were made: an index of expires_at alone would pass for one of live holds.
    Index(None, "organization_id", "created_at"),
)

# Customers -------------------------------------------------------------------------------------------------------

customers = _entity(
    "customers",
    _of_organization(),
    Column("email", Text, nullable=False, info=REWRITTEN),
    Column("email_key", Text, nullable=False, info=REWRITTEN),  # NFC and casefolded: the identity
    Column("name", Text, nullable=False, info=REWRITTEN),
    Column("phone", Text, info=REWRITTEN),
    Column("tags", JsonText, nullable=False, info=REWRITTEN),
    Column("email_subscription", Boolean, nullable=False),
    *_dates(),
    Column("anonymized_at", At),  # the columns above have no personal data since
    UniqueConstraint("organization_id", "email_key"),
    Index(None, "organization_id", "created_at", "id"),
)

bookings = _entity(
    "bookings",
    Column("booking_number", BigInteger),  # null: a legacy row
    Column("status", Text, nullable=False, info=PLAIN),
    Column("source", Text, info=PLAIN),
    Column("departure_id", Id, nullable=False),
    Column("experience_id", Id, nullable=False),
    Column("customer_id", Id),  # null: a legacy row
    Column("guest_name", Text, info=REPLACED),
    Column("guest_email", Text, info=EMPTIED),
    Column("guest_phone", Text, info=EMPTIED),
    # How often guest_email was changed: each change ends the guest's links of before.
    Column("email_changes", Integer, nullable=False, server_default=text("0")),
    Column("guests", JsonText, nullable=False, info=PLAIN),  # [{tier_id, tier_label, count, unit_price}]
    Column("add_ons", JsonText, nullable=False, info=PLAIN),  # [{id, label, count, unit_price}]
    Column("seats", Integer, nullable=False),
    Column("currency", Text, nullable=False, info=PLAIN),
    Column("subtotal_minor", Minor, nullable=False),
    Column("discount_minor", Minor, nullable=False, server_default=text("0")),
    Column("gift_card_minor", Minor, nullable=False, server_default=text("0")),
    Column("total_minor", Minor, nullable=False),
    Column("payment_method", Text, nullable=False, info=PLAIN),
    Column("payment_source", Text, nullable=False, info=PLAIN),
    Column("payment_status", Text, nullable=False, info=PLAIN),
    Column("invoice_due", Boolean, nullable=False, server_default=text("false")),
    Column("on_site_fee_minor", Minor, nullable=False, server_default=text("0")),
    Column("recorded_minor", Minor, nullable=False, server_default=text("0")),  # received by hand, as staff recorded it
    Column("note", Text, info=EMPTIED),
    Column("locale", Text, info=PLAIN),  # the guest's language, BCP 47; null: the organization's
    Column("send_confirmation_email", Boolean, nullable=False),
    Column("notify_staff", Boolean, nullable=False),
    Column("manage_key_id", Text, info=EMPTIED),  # the secret key that makes the guest's link; null: there is none
    Column("manage_expires_at", At, info=EMPTIED),
    Column("expires_at", At),  # of a pending booking: then it is abandoned
    Column("confirmed_at", At),
    Column("cancelled_at", At),
    Column("cancel_reason", Text, info=PLAIN),
    Column("cancel_note", Text, info=EMPTIED),  # the caller's reason, for staff
    Column("checked_in_at", At),  # of this departure; never together with no_show_at
    Column("no_show_at", At),
    # The name of the booking in another system; unique where a request asked for it.
    Column("external_reference", Text, info=EMPTIED),
    Column("metadata", JsonText, info=EMPTIED),  # {name: text}; null: none
    *_dates(),
    _own("departures", "departure_id"),
    _own("customers", "customer_id"),
    UniqueConstraint("organization_id", "booking_number"),
    CheckConstraint("status IN ('pending', 'confirmed', 'cancelled')", name="status"),
    CheckConstraint("(status = 'cancelled') = (cancelled_at IS NOT NULL)", name="cancelled_at"),
    CheckConstraint("seats >= 0", name="seats"),
    CheckConstraint("total_minor = subtotal_minor - discount_minor - gift_card_minor", name="total"),
    CheckConstraint("total_minor >= 0 AND discount_minor >= 0 AND gift_card_minor >= 0", name="amounts"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "organization_id", "status", "created_at", "id"),
    Index(None, "organization_id", "experience_id", "created_at", "id"),
    Index(None, "organization_id", "departure_id"),
    Index(None, "organization_id", "updated_at"),
    _partial("ix_bookings_pending_expires_at", "organization_id, expires_at, id", where="status = 'pending'"),
    _partial(
        "ix_bookings_external_reference",
        "organization_id, external_reference, created_at, id",
        where="external_reference IS NOT NULL",
    ),
)

# Orders of resellers: a hold that is booked later, under the name that the reseller gave it (decisions/0040).
reservations = _entity(
    "reservations",
    Column("hold_id", Id, nullable=False),  # purged before the reservation, if it was booked
    Column("booking_id", Id),  # null: not booked
    Column("fingerprint", Text, nullable=False, info=PLAIN),  # of the request that made it
    Column("details", JsonText, info=EMPTIED),  # contact, unit items and references, as the reseller sent them
    Column("cancelled_at", At),  # before it was booked
    *_dates(),
    _own("bookings", "booking_id"),
    Index(None, "organization_id", "booking_id", unique=True),
    _partial("ix_reservations_unbooked", "organization_id, created_at, id", where="booking_id IS NULL"),
)

# Gift cards ------------------------------------------------------------------------------------------------------

gift_cards = _entity(
    "gift_cards",
    _of_organization(),
    Column("code_hash", Text, nullable=False, info=PLAIN),  # keyed, for look-up
    *_sealed("code_sealed", nullable=False, info=PLAIN),
    Column("code_last4", Text, info=PLAIN),
    Column("currency", Text, nullable=False, info=PLAIN),
    Column("initial_minor", Minor, nullable=False),
    Column("balance_minor", Minor, nullable=False),
    Column("valid_from", At),
    Column("expires_at", At),
    Column("deactivated_at", At),
    Column("purchaser_name", Text, info=EMPTIED),
    Column("purchaser_email", Text, info=EMPTIED),
    Column("recipient_name", Text, info=EMPTIED),
    Column("recipient_email", Text, info=EMPTIED),
    *_dates(),
    UniqueConstraint("organization_id", "code_hash"),
    CheckConstraint("balance_minor BETWEEN 0 AND initial_minor", name="balance"),
    Index(None, "organization_id", "created_at", "id"),
    Index(None, "organization_id", "updated_at"),
    # By status, which depends on the present instant: a card is in one or two of these.
    _partial("ix_gift_cards_inactive", "organization_id, created_at, id", where="deactivated_at IS NOT NULL"),
    _partial(
        "ix_gift_cards_expires_at", "organization_id, expires_at", where="deactivated_at IS NULL AND balance_minor > 0"
    ),
    _partial("ix_gift_cards_valid_from", "organization_id, valid_from", where="valid_from IS NOT NULL"),
    _partial("ix_gift_cards_used_up", "organization_id, id", where="deactivated_at IS NULL AND balance_minor = 0"),
)

# The ledger of a card, from its issue: its balance is the sum of the amounts. A booking redeems once. Its cancellation
# restores at most once, with number 0; each change of its party may restore a part before, with number 1 and so on.
gift_card_entries = _entity(
    "gift_card_entries",
    Column("gift_card_id", Id, nullable=False),
    Column("booking_id", Id),
    Column("kind", Text, nullable=False),  # issue, redeem, restore, adjust
    Column("amount_minor", Minor, nullable=False),  # negative: taken from the card
    Column("balance_minor", Minor, nullable=False),  # of the card, after it
    Column("created_at", At, nullable=False),
    _own("gift_cards", "gift_card_id"),
    Column("number", Integer, nullable=False, server_default=text("0")),
    _own("bookings", "booking_id"),
    Index(None, "organization_id", "booking_id", "kind", "number", unique=True),
    CheckConstraint("kind IN ('issue', 'redeem', 'restore', 'adjust')", name="kind"),
    CheckConstraint("balance_minor >= 0", name="balance"),
    Index(None, "organization_id", "gift_card_id"),
)

# Money -----------------------------------------------------------------------------------------------------------

# One for each booking that is paid by card, from the beginning, and for each booking with payments that staff recorded
# by hand: then its amount is the sum of those records. A change of party moves the payment for guests who no longer
# come from amount_minor to released_minor: amount_minor pays for the present booking.
payments = _entity(
    "payments",
    Column("booking_id", Id, nullable=False),
    Column("payment_intent", Text),
    Column("amount_minor", Minor, nullable=False),
    Column("refunded_minor", Minor, nullable=False, server_default=text("0")),
    Column("currency", Text, nullable=False),
    Column("status", Text, nullable=False),
    *_dates(),
    Column("released_minor", Minor, nullable=False, server_default=text("0")),
    _own("bookings", "booking_id"),
    UniqueConstraint("organization_id", "booking_id"),
    CheckConstraint("refunded_minor BETWEEN 0 AND amount_minor", name="refunded"),
    # Not unique: earlier releases took one intent for several bookings, and the doctor reports those.
    _partial("ix_payments_intent", "organization_id, payment_intent", where="payment_intent IS NOT NULL"),
)

# Payments that staff recorded, taken on site or for an invoice. A record is never changed; a mistaken one is voided,
# and no longer counts.
payment_records = _entity(
    "payment_records",
    Column("booking_id", Id, nullable=False),
    Column("payment_id", Id, nullable=False),
    Column("amount_minor", Minor, nullable=False),
    Column("currency", Text, nullable=False, info=PLAIN),
    Column("method", Text, info=PLAIN),  # how it was paid, as staff calls it: cash, bank transfer
    Column("note", Text, info=EMPTIED),
    Column("received_at", At, nullable=False),
    Column("voided_at", At),
    Column("voided_note", Text, info=EMPTIED),
    Column("created_at", At, nullable=False),
    _own("bookings", "booking_id"),
    _own("payments", "payment_id"),
    CheckConstraint("amount_minor > 0", name="amount"),
    Index(None, "organization_id", "booking_id"),
)

# One refund per cancellation, for life, with number 0, and one per change of party, with number 1 and so on. Its id is
# the gateway's idempotency key, and the row is never made again. Staff may reopen it, which gives it another key, or
# settle it by hand.
refunds = _entity(
    "refunds",
    Column("booking_id", Id, nullable=False),
    Column("payment_id", Id, nullable=False),
    Column("amount_minor", Minor, nullable=False),
    Column("currency", Text, nullable=False, info=PLAIN),
    Column("status", Text, nullable=False, info=PLAIN),  # requested, sending, succeeded, settled, failed, needs_review
    Column("provider_refund_id", Text, info=PLAIN),
    Column("first_sent_at", At),
    Column("attempt_count", Integer, nullable=False, server_default=text("0")),
    Column("next_attempt_at", At),
    *_lease(),
    Column("last_error", Text, info=PLAIN),
    *_dates(),
    Column("reopened_count", Integer, nullable=False, server_default=text("0")),
    Column("settled_minor", Minor),  # returned by hand; 0: closed without returning anything
    Column("settled_note", Text, info=REPLACED),
    Column("settled_at", At),
    Column("number", Integer, nullable=False, server_default=text("0")),
    _own("bookings", "booking_id"),
    _own("payments", "payment_id"),
    Index(None, "organization_id", "booking_id", "number", unique=True),
    CheckConstraint("amount_minor > 0", name="amount"),
    CheckConstraint(
        "status IN ('requested', 'sending', 'succeeded', 'settled', 'failed', 'needs_review')", name="status"
    ),
    CheckConstraint("(status = 'settled') = (settled_minor IS NOT NULL)", name="settled"),
    _partial("ix_refunds_due", "organization_id, next_attempt_at, id", where="status IN ('requested', 'sending')"),
)

# The organization's own account at Stripe. Its credentials are sealed as one JSON text: {api_key, webhook_secret}.
# Neither this table nor the next has a foreign key: making one locks the other table against writers.
stripe_accounts = _table(
    "stripe_accounts",
    *_sealed("credentials_sealed", nullable=False),
    Column("publishable_key", Text),
    *_dates(),
)

# The payment at Stripe of a booking by card, with Stripe's reports: one for each booking, for its whole life. Its
# status only moves forward: events of Stripe may come late, twice and in any order.
payment_intents = _table(
    "payment_intents",
    Column("booking_id", Id, primary_key=True),
    Column("intent_id", Text),  # Stripe's; null: Stripe has not answered yet
    *_sealed("client_secret_sealed"),
    Column("status", Text, nullable=False),
    Column("last_error", Text),  # Stripe's code, or the reason of a review
    Column("amount_minor", Minor, nullable=False),
    Column("currency", Text, nullable=False),
    Column("expires_at", At),  # of the booking, when the intent was made; null: the booking was paid without a checkout
    Column("refunded_minor", Minor, nullable=False, server_default=text("0")),  # all that Stripe has refunded
    Column("returned_minor", Minor, nullable=False, server_default=text("0")),  # of that, outside of the refund's row
    Column("dispute_id", Text),
    Column("dispute_status", Text),
    Column("dispute_reason", Text),
    Column("disputed_minor", Minor),
    Column("disputed_at", At),
    Column("dispute_closed_at", At),
    Column("check_at", At),  # then the state of the intent is looked up at Stripe
    Column("check_count", Integer, nullable=False, server_default=text("0")),
    *_dates(),
    Column("staff_notices", JsonText),  # the occurrences of mails to staff; null: there was none
    Column("test_card", Text),  # of a sandbox, when its guest has chosen one
    UniqueConstraint("organization_id", "intent_id"),
    CheckConstraint(
        "status IN ('requested', 'open', 'succeeded', 'canceled', 'refused', 'needs_review', 'resolved')",
        name="status",
    ),
    CheckConstraint("refunded_minor >= 0 AND returned_minor >= 0", name="refunds"),
    CheckConstraint("(dispute_id IS NULL) = (dispute_status IS NULL)", name="dispute"),
    _partial("ix_payment_intents_check", "organization_id, check_at, booking_id", where="check_at IS NOT NULL"),
)

# Events ----------------------------------------------------------------------------------------------------------

# body is the webhook envelope, rendered once. occurrence is 0 for a type that a resource sees once in its life
# (booking.created), else the sequence: one unique index guards the first and serves queries by resource.
events = _table(
    "events",
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Id, nullable=False),
    Column("type", Text, nullable=False, info=PLAIN),
    Column("resource_type", Text, nullable=False, info=PLAIN),
    Column("resource_id", Id),
    Column("occurrence", BigInteger, nullable=False),
    Column("body", Text, nullable=False, info=LONG | REWRITTEN),
    Column("created_at", At, nullable=False),
    # Of the request, where it was traced: the trace context that deliveries continue.
    Column("traceparent", Text, info=PLAIN),
    UniqueConstraint("organization_id", "id"),
    UniqueConstraint("organization_id", "resource_id", "type", "occurrence"),
    Index(None, "organization_id", "created_at"),
)
events_by_type = Index(None, events.c.organization_id, events.c.type, events.c.sequence)

# Webhooks --------------------------------------------------------------------------------------------------------

webhook_endpoints = _entity(
    "webhook_endpoints",
    _of_organization(),
    Column("url", Text, nullable=False),
    Column("description", Text),
    Column("status", Text, nullable=False),
    Column("enabled_at", At, nullable=False),
    Column("disabled_at", At),
    Column("disabled_reason", Text),
    Column("deleted_at", At),  # kept while its deliveries are
    Column("consecutive_failures", Integer, nullable=False, server_default=text("0")),
    Column("last_success_at", At),
    Column("last_failure_at", At),
    Column("last_timed_out", Boolean, nullable=False, server_default=text("false")),  # then it goes by the slow lane
    Column("warned_hours", Integer, nullable=False, server_default=text("0")),  # staff was mailed at 24, then 48
    *_dates(),
    # Headers of the client's own: a JSON array of their names, and a JSON object of them all, sealed.
    Column("header_names", JsonText),
    *_sealed("headers_sealed"),
    Column("max_per_second", Integer),  # null: no limit
    CheckConstraint("status IN ('enabled', 'disabled', 'auto_disabled')", name="status"),
    _partial("ix_webhook_endpoints_disabled", "organization_id, id", where="status <> 'enabled'"),
    _partial("ix_webhook_endpoints_deleted", "deleted_at", where="deleted_at IS NOT NULL"),
)

# How far an endpoint follows the log: the active subscriptions of an enabled endpoint have no event up to this sequence
# without a row of deliveries. It is separate from the endpoint, since claims lock this row and results lock that one.
webhook_cursors = _table(
    "webhook_cursors",
    Column("endpoint_id", Id, primary_key=True),
    Column("served_sequence", BigInteger, nullable=False),
    Column("last_claimed_at", At),
    Column("next_send_at", At),  # of an endpoint with a limit: nothing is claimed for it before, by the real time
)

# A period of a subscription: the events of the type after from_sequence, up to until_sequence (null: it lasts). An
# active one is sent; one with missed_at began then, when the endpoint was disabled, and its events get no rows.
webhook_subscriptions = _table(
    "webhook_subscriptions",
    Column("endpoint_id", Id, primary_key=True),
    Column("event_type", Text, primary_key=True),
    Column("from_sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("until_sequence", BigInteger),
    Column("missed_at", At),
    _own("webhook_endpoints", "endpoint_id"),
    _partial(
        "ix_webhook_subscriptions_departures",
        "organization_id",
        where="event_type = 'departure.updated' AND until_sequence IS NULL",
    ),
)

# The rest of a recovery that found more deliveries than one transaction can queue.
webhook_recoveries = _entity(
    "webhook_recoveries",
    Column("endpoint_id", Id, nullable=False),
    Column("request", JsonText, nullable=False),
    Column("created_at", At, nullable=False),
)

# The live secrets of an endpoint: one without an end, and at most two that a rotation lets run out.
webhook_secrets = _entity(
    "webhook_secrets",
    Column("endpoint_id", Id, nullable=False),
    *_sealed("secret_sealed", nullable=False),
    Column("expires_at", At),
    Column("created_at", At, nullable=False),
    _own("webhook_endpoints", "endpoint_id"),
    Index(None, "organization_id", "endpoint_id"),
)

# Neither a delivery nor an attempt has a foreign key: decisions/0030.
deliveries = _entity(
    "deliveries",
    Column("endpoint_id", Id, nullable=False),
    Column("event_id", Id, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("event_sequence", BigInteger, nullable=False),
    Column("resource_id", Id),
    Column("status", Text, nullable=False),
    Column("failure_reason", Text),
    Column("trigger", Text, nullable=False),
    Column("attempt_count", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False),
    Column("next_attempt_at", At),
    Column("last_attempt_at", At),
    Column("completed_at", At),
    Column("last_response_status", Integer),
    Column("last_error", Text),
    *_lease(),
    Column("lost_leases", Integer, nullable=False, server_default=text("0")),
    *_dates(),
    Column("recovery_id", Id),  # the last recovery that queued it again
    # The log of an endpoint in its order, for each type: a list merges the types, and no filter skips rows.
    UniqueConstraint("organization_id", "endpoint_id", "event_type", "event_sequence", name="uq_deliveries_event"),
    CheckConstraint("status IN ('queued', 'succeeded', 'failed', 'dead')", name="status"),
    Index(
        "ix_deliveries_status",
        *("organization_id", "endpoint_id", "status", "event_type", "event_sequence"),
    ),
    _partial(
        "ix_deliveries_recovery",
        "organization_id, endpoint_id, recovery_id, event_type, event_sequence",
        where="recovery_id IS NOT NULL",
    ),
    _partial(
        "ix_deliveries_due",
        "organization_id, endpoint_id, next_attempt_at, event_sequence",
        where="status = 'queued' AND lease_until IS NULL",
    ),
    # A queued delivery is not completed. With this condition the query of this index cannot use the one above, which
    # a planner with old statistics prefers, and then searches every queued delivery.
    _partial(
        "ix_deliveries_first_attempts",
        "organization_id, endpoint_id, resource_id, event_sequence",
        where="completed_at IS NULL AND attempt_count = 0",
    ),
    _partial("ix_deliveries_leased", "lease_until", where="lease_until IS NOT NULL"),
    _partial("ix_deliveries_completed", "completed_at", where="completed_at IS NOT NULL"),
)

# The id of an attempt is the Svc-Delivery-Id header.
attempts = _entity(
    "attempts",
    Column("delivery_id", Id, nullable=False),
    Column("number", Integer, nullable=False),
    Column("trigger", Text, nullable=False, info=PLAIN),
    Column("started_at", At, nullable=False),
    Column("duration_ms", Integer),
    Column("response_status", Integer),
    Column("response_excerpt", Text, info=EMPTIED),
    Column("error", Text, info=PLAIN),
    Index(None, "organization_id", "delivery_id", "number"),
)

# Outbox, mails, idempotency --------------------------------------------------------------------------------------

# The transactional outbox: a row is written in the transaction of its cause and carried out by the worker. key makes it
# happen once and is its only identity, since every index costs every booking.
effects = _table(
    "effects",
    Column("key", Text, primary_key=True),  # such as booking_confirmation_mail:<booking id>
    Column("kind", Text, nullable=False),
    Column("subject_id", Id, nullable=False),
    Column("payload", JsonText, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempt_count", Integer, nullable=False, server_default=text("0")),
    Column("due_at", At, nullable=False),
    *_lease(),
    Column("last_error", Text),
    Column("created_at", At, nullable=False),
    Column("completed_at", At),
    CheckConstraint("status IN ('queued', 'done', 'failed')", name="status"),
    _partial("ix_effects_due", "organization_id, due_at, key", where="status = 'queued'"),
    # Rows without a mail: the others are purged with their mails.
    _partial(
        "ix_effects_unmailed",
        "status, organization_id, completed_at",
        where="completed_at IS NOT NULL AND last_error IS NOT NULL",
    ),
)

mails = _entity(
    "mails",
    Column("effect_key", Text, nullable=False, info=PLAIN),
    Column("kind", Text, nullable=False, info=PLAIN),
    Column("booking_id", Id),
    Column("recipient", Text, nullable=False, info=REWRITTEN),
    Column("message_id", Text, nullable=False, info=PLAIN),  # the same on every try
    # RFC 5322, sealed: it may hold the guest's link; empty once it is sent.
    Column("message", Text, nullable=False, info=REWRITTEN),
    Column("status", Text, nullable=False, info=PLAIN),
    Column("attempt_count", Integer, nullable=False, server_default=text("0")),
    Column("next_attempt_at", At),
    *_lease(),
    Column("last_error", Text, info=REWRITTEN),
    Column("created_at", At, nullable=False),
    Column("sent_at", At),
    Column("completed_at", At),  # sent, or given up
    UniqueConstraint("organization_id", "effect_key"),
    CheckConstraint("status <> 'queued' OR message <> ''", name="message"),
    UniqueConstraint("organization_id", "message_id"),
    CheckConstraint("status IN ('queued', 'sent', 'failed')", name="status"),
    _partial("ix_mails_due", "organization_id, next_attempt_at, id", where="status = 'queued'"),
    _partial("ix_mails_ended", "status, organization_id, completed_at", where="completed_at IS NOT NULL"),
)

# Rows that a job of the worker could not process, until it could. The job passes over them before retry_at.
parked_work = _table(
    "parked_work",
    Column("job", Text, primary_key=True),
    Column("subject_id", Text, primary_key=True),  # of the row in its own table; the organization's: all of its rows
    Column("failures", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("failed_at", At, nullable=False),
    Column("retry_at", At, nullable=False),
    CheckConstraint("failures > 0", name="failures"),
)

# The timeline of a customer for staff, and with booking_id the timeline of a booking. The primary key is its order.
timeline = _table(
    "timeline",
    Column("customer_id", Id, primary_key=True),
    Column("created_at", At, primary_key=True, autoincrement=False),
    Column("id", Id, primary_key=True),
    Column("booking_id", Id),
    Column("kind", Text, nullable=False, info=PLAIN),
    Column("data", JsonText, nullable=False, info=REWRITTEN),
)

# Changes by the operator's commands and by API keys, with ids only (booking_core.records.audit). It has no foreign key:
# changes of the installation, such as resealing, have the nil UUID as their organization.
audit = _entity(
    "audit",
    Column("at", At, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),  # the user and the machine, or the prefix of a key
    Column("action", Text, nullable=False),
    Column("objects", JsonText, nullable=False),  # ids by kind
    CheckConstraint("actor_kind IN ('operator', 'api_key')", name="actor_kind"),
    Index(None, "organization_id", "at", "id"),
    Index(None, "at", "id"),
)

# Customers whose personal data is replaced everywhere, step by step (booking_core.customers.erasures). The row stays
# when it is finished, without addresses: after a restoration it says which customers to anonymize again. It has no
# foreign key, which would lock the customers while the table is made.
erasures = _table(
    "erasures",
    Column("customer_id", Id, primary_key=True),
    Column("requested_at", At, nullable=False),
    # The guest's former e-mail addresses as keys; [] when it is finished.
    Column("addresses", JsonText, nullable=False, info=REWRITTEN),
    Column("step", Text, nullable=False, info=PLAIN),
    Column("position", JsonText, nullable=False, info=PLAIN),  # of the last row that the step has processed; []: none
    Column("progressed_at", At, nullable=False),
    Column("finished_at", At),
    _partial("ix_erasures_unfinished", "organization_id, requested_at, customer_id", where="finished_at IS NULL"),
)

# The keys of guests' links of former secret keys, sealed with the current one: links outlive their key
# (decisions/0018). It belongs to the installation, as the secret keys do, and to no organization.
link_keys = Table(
    "link_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    *_sealed("key_sealed", nullable=False),
    Column("created_at", At, nullable=False),
)

# The answers that a retry gets, committed with their work: a crash keeps both or neither. The body is sealed: the
# answer to a create holds the guest's secret link.
idempotency = _table(
    "idempotency",
    Column("key", Text, primary_key=True, info=PLAIN),
    Column("fingerprint", Text, nullable=False, info=PLAIN),
    Column("status", Integer, nullable=False),
    *_sealed("body_sealed", nullable=False, info=LONG | REWRITTEN),
    Column("created_at", At, nullable=False),
    Index(None, "organization_id", "created_at"),
)

# The present instant for purges, of the whole installation. It follows the clock in bounded steps: a clock that leaps
# forward deletes nothing (decision I7).
retention_clock = Table(
    "retention_clock",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", At, nullable=False),
    Column("moved_at", At, nullable=False),  # by the clock itself: a worker was there to look
    CheckConstraint("id = 1", name="one"),
)

# The workers that run, of the whole installation: each writes its row every few seconds, and deletes it when it stops.
workers = Table(
    "workers",
    metadata,
    Column("id", Id, primary_key=True),
    Column("started_at", At, nullable=False),
    Column("seen_at", At, nullable=False),
)

OF_INSTALLATION = frozenset({"alembic_version", audit.name, workers.name})
"""Tables that have rows in a database without organizations: for upgrades, operators and running workers."""

WITHOUT_PERSONAL_DATA = frozenset(
    {
        *("organizations", "counters", "api_keys", "experiences", "departures", "holds", "gift_card_entries"),
        *("payments", "stripe_accounts", "payment_intents"),
        *("webhook_endpoints", "webhook_cursors", "webhook_subscriptions", "webhook_recoveries"),
        *("webhook_secrets", "deliveries", "effects", "parked_work", "audit", "link_keys"),
        *("retention_clock", "workers"),
    }
)
"""Tables whose columns hold no personal data of guests."""
