"""Functions of organizations. They are for the operator; permissions are not checked here."""

from collections.abc import Mapping
from typing import Any

from booking_core.base import tokens
from booking_core.base.context import Organization
from booking_core.base.errors import Conflict, NotFound
from booking_core.db.engine import Tx
from booking_core.organizations import rules, store


def create(
    tx: Tx, *, slug: str, name: str, timezone: str, currency: str, now: int, is_sandbox: bool = False
) -> Organization:
    """Create an organization with its counters and the default settings of the schema.

    Args:
        is_sandbox: it is a sandbox, and stays one: no function changes that.

    Raises:
        Malformed: with each invalid field.
        Conflict: `slug_taken`.
    """
    new = rules.parsed(rules.NEW, {"slug": slug, "name": name, "timezone": timezone, "currency": currency})
    organization_id = tokens.new_id()
    if store.is_taken(tx, slug=new["slug"], organization_id=organization_id):
        raise Conflict("slug_taken", f"There is an organization {new['slug']} already.", "slug")
    store.insert(
        tx,
        id=organization_id,
        slug=new["slug"],
        name=new["name"],
        timezone=new["timezone"],
        default_currency=new["currency"],
        created_at=now,
        updated_at=now,
        clock_offset=0 if is_sandbox else None,
    )
    return get(tx, slug=new["slug"])


def get(tx: Tx, *, slug: str) -> Organization:
    """Return the organization of a slug.

    Raises:
        NotFound: there is none.
    """
    found = store.by_slug(tx, slug)
    if found is None:
        raise NotFound(f"There is no organization {slug!r}.")
    return found


def by_id(tx: Tx, organization_id: str) -> Organization:
    """Return the organization of an id.

    Raises:
        NotFound: there is none.
    """
    found = store.by_id(tx, organization_id)
    if found is None:
        raise NotFound(f"There is no organization {organization_id!r}.")
    return found


def find(tx: Tx) -> list[Organization]:
    """Return every organization that lives in this cell, ordered by slug."""
    return store.every(tx)


def is_taken(tx: Tx, *, slug: str, organization_id: str) -> bool:
    """Return whether an organization has this slug or id, also one that is only on its way to this cell."""
    return store.is_taken(tx, slug=slug, organization_id=organization_id)


def set_settings(tx: Tx, organization: Organization, changes: Mapping[str, str], *, now: int) -> Organization:
    """Change settings, by the keys of `booking orgs set` with values as text, and return the organization.

    Raises:
        Malformed: with each key that is unknown or has an invalid value; then no setting is changed.
    """
    values = rules.parsed(rules.SETTINGS, changes)
    if values:
        store.update(tx, organization.id, values | {"updated_at": now})
    return get(tx, slug=organization.slug)


def present(organization: Organization) -> dict[str, Any]:
    """Return the API's Organization, ready for JSON."""
    return {
        "id": organization.id,
        "slug": organization.slug,
        "name": organization.name,
        "timezone": organization.timezone,
        "default_currency": organization.default_currency,
    }


def present_settings(organization: Organization) -> dict[str, Any]:
    """Return every setting by its `booking orgs set` key, ready for JSON."""
    return rules.settings_of(organization)
