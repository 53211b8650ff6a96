"""Every kind of value that a secret key seals, and the row that each value is bound to."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Table, bindparam, literal_column, or_
from sqlalchemy.types import BigInteger

from booking_core.base import gift_codes
from booking_core.bookings import checkouts
from booking_core.db import tables
from booking_core.notifications import SEALED_FOR as SEALED_FOR_MAIL
from booking_core.payments import stripe_accounts
from booking_core.records import idempotency
from booking_core.webhooks import HEADERS_PURPOSE, SECRET_PURPOSE

LINK_KEY_PURPOSE = "link_key"


@dataclass(frozen=True, slots=True)
class Kind:
    """A sealed column."""

    name: str
    plural: str
    """As messages call its values."""
    table: Table
    column: str
    purpose: str
    row: tuple[str, ...]
    """The columns that say which row a value is sealed for."""
    in_use: ColumnElement[bool] | None = None
    """The SQL condition of the values that may be opened again; by default all of them."""
    indexed: tuple[str, ...] = ()
    """The columns of an index that leads to the first and to the last value; by default `row`."""

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key."""
        return tuple(str(column.name) for column in self.table.primary_key)

    @property
    def sealed(self) -> ColumnElement[str]:
        return self.table.c[self.column]


_ROW = ("organization_id", "id")
_IS_LIVE = or_(
    tables.webhook_secrets.c.expires_at.is_(None),
    tables.webhook_secrets.c.expires_at > bindparam("at", type_=BigInteger),
)
_HAS_HEADERS = tables.webhook_endpoints.c.headers_sealed.is_not(None)
_IS_QUEUED = tables.mails.c.status == literal_column("'queued'")
"""In the words of its index: a queued mail is still to be sent."""
_SECRET_ROW, _ANSWER_ROW = ("organization_id", "endpoint_id", "id"), ("organization_id", "key")
_ACCOUNT_ROW, _PAYMENT_ROW = ("organization_id",), ("organization_id", "booking_id")
_stripe, _intents = tables.stripe_accounts, tables.payment_intents

KINDS = (
    Kind(
        "webhook_secret",
        "webhook secrets",
        tables.webhook_secrets,
        "secret_sealed",
        SECRET_PURPOSE,
        _SECRET_ROW,
        _IS_LIVE,
        _ROW,
    ),
    Kind(
        "webhook_headers",
        "webhook headers",
        tables.webhook_endpoints,
        "headers_sealed",
        HEADERS_PURPOSE,
        _ROW,
        _HAS_HEADERS,
    ),
    Kind("gift_card_code", "gift card codes", tables.gift_cards, "code_sealed", gift_codes.SEALED_FOR, _ROW),
    Kind(
        "stored_answer",
        "stored answers",
        tables.idempotency,
        "body_sealed",
        idempotency.SEALED_FOR,
        _ANSWER_ROW,
        None,
        ("created_at",),
    ),
    Kind("mail", "mails", tables.mails, "message", SEALED_FOR_MAIL, _ROW, _IS_QUEUED, ("next_attempt_at",)),
    Kind("stripe_account", "Stripe accounts", _stripe, "credentials_sealed", stripe_accounts.SEALED_FOR, _ACCOUNT_ROW),
    Kind(
        "client_secret",
        "client secrets of payments",
        _intents,
        "client_secret_sealed",
        checkouts.SEALED_FOR,
        _PAYMENT_ROW,
    ),
    Kind("link_key", "link keys", tables.link_keys, "key_sealed", LINK_KEY_PURPOSE, ("key_id",)),
)
GUEST_LINK = "guest_link"
