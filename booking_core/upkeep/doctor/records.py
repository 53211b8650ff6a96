"""Checks of API keys, stored responses, customers, the outbox (table `effects`), mails and the timeline."""

from typing import Any

import orjson
from pydantic import ValidationError

from booking_core.db import sql_files
from booking_core.models.base import email_key
from booking_core.models.experiences import ExperienceTexts
from booking_core.models.limits import ACTIVE_API_KEYS_PER_ORGANIZATION
from booking_core.models.scopes import Scope
from booking_core.upkeep.doctor.checks import Check, RowScan

SQL = sql_files.load(__name__)


def validate_customer(row: list[Any]) -> str | None:
    """Compare a customer's key with the normalised e-mail address."""
    email, key = row
    return None if email_key(email) == key else "its key is not that of its e-mail address"


def validate_scopes(row: list[Any]) -> str | None:
    """Look for scopes of a key that do not exist."""
    (stored,) = row
    try:
        scopes = orjson.loads(stored)
        unknown = sorted(set(scopes) - set(Scope)) if isinstance(scopes, list) else None
    except (ValueError, TypeError):
        unknown = None
    if unknown is None:
        return "its scopes cannot be read"
    return f"no such scope: {', '.join(unknown)}" if unknown else None


def validate_translations(row: list[Any]) -> str | None:
    """Read the translated texts of an experience, which every answer and mail about it needs."""
    (stored,) = row
    try:
        found: dict[str, Any] = orjson.loads(stored)
        unread = [tag for tag, texts in found.items() if not _are_texts(texts)]
    except (ValueError, AttributeError):
        return "its translations cannot be read"
    return f"its translations cannot be read: {', '.join(unread)}" if unread else None


def _are_texts(texts: object) -> bool:
    try:
        ExperienceTexts.model_validate(texts)
    except ValidationError:
        return False
    return True


CHECKS = (
    Check(f"an organization has at most {ACTIVE_API_KEYS_PER_ORGANIZATION} active keys", SQL.text("active_keys")),
    RowScan(
        "the scopes of an API key exist",
        SQL.text("scopes"),
        "a.id",
        validate_scopes,
        remedy="booking keys revoke {subject}, and create a key with the scopes that it needs",
    ),
    Check(
        "the keys of a sandbox are test keys, those of a live organization are not",
        SQL.text("mixed_keys"),
        remedy="revoke the key, which is refused; remove the Stripe account",
    ),
    Check("every API booking has the stored response of its idempotency key", SQL.text("missing_responses")),
    Check("an idempotency key has one stored response", SQL.text("repeated_responses")),
    Check("an e-mail address belongs to one customer", SQL.text("repeated_addresses")),
    RowScan("a customer's key is the normalised e-mail address", SQL.text("customer_keys"), "u.id", validate_customer),
    RowScan(
        "the translations of an experience can be read",
        SQL.text("translations"),
        "x.id",
        validate_translations,
        remedy="import the experience again, with its translations",
    ),
    Check("no row refers to a missing row of its organization", SQL.text("missing_references")),
    Check("an outbox row exists once, and its status agrees with its timestamps", SQL.text("outbox_statuses")),
    Check("an outbox row that is done has its mail, or the reason why there is none", SQL.text("outbox_without_mail")),
    Check(
        "a mail is written once, under one Message-ID, and its status agrees with its timestamps",
        SQL.text("mail_statuses"),
    ),
    Check(
        "a booking has outbox rows for the mails to its guest, unless they were suppressed",
        SQL.text("missing_guest_mails"),
    ),
    Check("a booking has outbox rows for the mails to staff where these are enabled", SQL.text("missing_staff_mails")),
    Check("no secret is stored in plain text", SQL.text("plain_secrets")),
    Check(
        "outbox rows and mails are processed when they are due",
        SQL.text("overdue_mails"),
        remedy="check that a worker is running, and BOOKING_SMTP_URL or BOOKING_MAIL_DIR set",
        needs_worker=True,
    ),
    Check(
        "the database's clock agrees with the retention clock",
        SQL.text("clocks"),
        remedy="correct the clock. After a pause of the service, wait: the retention clock catches up eight"
        " hours in one, and until then nothing more is purged",
        needs_worker=True,
    ),
)
