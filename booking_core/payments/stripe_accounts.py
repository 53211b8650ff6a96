"""The organization's own account at Stripe: its keys, sealed, and the address of its webhooks."""

import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import delete, select

from booking_core.base.context import Actor, Installation
from booking_core.base.errors import Conflict, Malformed, NotFound
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import OWNER, Statement
from booking_core.db.tables import stripe_accounts

SEALED_FOR = "stripe_account"
WEBHOOK_PATH = "/stripe/webhooks/"

_API_KEY = re.compile(r"(sk|rk)_[A-Za-z0-9_]{8,300}", re.ASCII)
_WEBHOOK_SECRET = re.compile(r"whsec_[!-~]{8,300}", re.ASCII)
_PUBLISHABLE_KEY = re.compile(r"pk_[A-Za-z0-9_]{8,300}", re.ASCII)
_TOKEN = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-([a-z0-9]{2}))?", re.ASCII)
"""An organization, and the cell where the address was shown, if that was not the first one."""


@dataclass(frozen=True, slots=True)
class StripeAccount:
    """The opened account of an organization."""

    organization_id: str
    api_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    publishable_key: str | None


_GET = Statement(
    select(stripe_accounts.c.credentials_sealed, stripe_accounts.c.publishable_key).where(
        stripe_accounts.c.organization_id == OWNER
    )
)
_ANY = Statement(select(stripe_accounts.c.organization_id).limit(1))
_LOCK = Statement(
    select(stripe_accounts.c.created_at).where(stripe_accounts.c.organization_id == OWNER).with_for_update()
)
_REMOVE = Statement(delete(stripe_accounts).where(stripe_accounts.c.organization_id == OWNER))


def find(tx: Tx, keys: SecretKeys, organization_id: str) -> StripeAccount | None:
    """Return the account of an organization, or None if it has none, or no live key opens its credentials."""
    row = tx.first(_GET, organization_id=organization_id)
    opened = keys.open_or_none(SEALED_FOR, row[0], organization_id) if row else None
    if row is None or opened is None:
        return None
    credentials = orjson.loads(opened)
    return StripeAccount(organization_id, credentials["api_key"], credentials["webhook_secret"], row[1])


def exists(tx: Tx, organization_id: str) -> bool:
    """Return whether the organization has an account."""
    return tx.first(_GET, organization_id=organization_id) is not None


def has_any(tx: Tx) -> bool:
    """Return whether any organization has an account."""
    return tx.first(_ANY) is not None


def not_configured() -> Conflict:
    """Return the refusal of a payment by card."""
    message = "The organization takes no card payments: its Stripe account is not configured."
    return Conflict("card_payments_not_configured", message)


def configure(
    tx: Tx, actor: Actor, *, api_key: str, webhook_secret: str, publishable_key: str | None = None
) -> dict[str, Any]:
    """Store the account of the organization, replacing a former account, and return it without secrets.

    Raises:
        Conflict: `is_a_sandbox`, which never charges for real.
        Malformed: for the key that is not of its kind.
    """
    if actor.organization.is_sandbox:
        raise Conflict("is_a_sandbox", "A sandbox never charges for real: it has no Stripe account.")
    _check("api_key", _API_KEY, api_key, "must be a secret or restricted key: sk_... or rk_...")
    _check("webhook_secret", _WEBHOOK_SECRET, webhook_secret, "must be the signing secret of the endpoint: whsec_...")
    if publishable_key is not None:
        _check("publishable_key", _PUBLISHABLE_KEY, publishable_key, "must be a publishable key: pk_...")
    organization_id = actor.organization.id
    credentials = orjson.dumps({"api_key": api_key, "webhook_secret": webhook_secret})
    columns = {
        "organization_id": organization_id,
        "credentials_sealed": actor.secret_keys.seal(SEALED_FOR, credentials, organization_id),
        "publishable_key": publishable_key,
        "updated_at": actor.at,
    }
    if tx.first(_LOCK, organization_id=organization_id) is None:
        tx.insert(tables.stripe_accounts, **columns, created_at=actor.at)
    else:
        tx.update(stripe_accounts, **columns)
    account = StripeAccount(organization_id, api_key, webhook_secret, publishable_key)
    return present(account, actor)


def _check(name: str, pattern: re.Pattern[str], text: str, message: str) -> None:
    if not pattern.fullmatch(text):
        raise Malformed.at(name, message, "wrong_format")


def get(tx: Tx, actor: Actor) -> dict[str, Any]:
    """Return the account as it is shown.

    Raises:
        NotFound: the organization has none, or no live secret key opens it.
    """
    account = find(tx, actor.secret_keys, actor.organization.id)
    if account is None:
        raise NotFound("The organization has no Stripe account, or no live secret key opens it.")
    return present(account, actor)


def remove(tx: Tx, actor: Actor) -> dict[str, Any]:
    """Delete the account, and return it as it was shown. Payments that were made stay as they are.

    Raises:
        NotFound: the organization has none.
    """
    account = get(tx, actor)
    tx.run(_REMOVE, organization_id=actor.organization.id)
    return account


def present(account: StripeAccount, actor: Actor) -> dict[str, Any]:
    """Return the account as JSON-ready values, with no more of its secrets than their beginnings."""
    return {
        "id": account.organization_id,
        "organization": actor.organization.slug,
        "api_key": _masked(account.api_key),
        "webhook_secret": _masked(account.webhook_secret),
        "publishable_key": account.publishable_key,
        "webhook_url": webhook_url(actor.installation, actor.organization.id),
    }


def _masked(secret: str) -> str:
    """Return the kind and mode of a key, such as `sk_live_...`."""
    parts = secret.split("_")
    return "_".join(part for part in parts[:-1] if part in ("sk", "rk", "whsec", "live", "test")) + "_..."


def webhook_url(installation: Installation, organization_id: str) -> str:
    """Return the address for Stripe's events of the organization's account."""
    suffix = f"-{installation.cell}" if installation.cell else ""
    return f"{installation.public_url}{WEBHOOK_PATH}{organization_id}{suffix}"


def organization_and_cell(token: str) -> tuple[str, str] | None:
    """Return the organization and the cell that the end of a webhook's address names; the cell is empty for the first
    one."""
    match = _TOKEN.fullmatch(token)
    return (str(UUID(match[1])), match[2] or "") if match else None
