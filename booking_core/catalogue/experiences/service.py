"""Public functions of experiences. Ids are canonical UUIDs in lower case; the interfaces normalize them."""

from typing import Any

from booking_core.base.context import Caller, Organization
from booking_core.base.errors import NotFound
from booking_core.catalogue.experiences import rules, store
from booking_core.catalogue.experiences.rules import ExperienceRow
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, PageRequest


def find(
    tx: Tx, caller: Caller, page: PageRequest, *, published: bool | None = None, updated_since: int | None = None
) -> Page:
    """Return a page of experiences, published and unpublished by default.

    Args:
        updated_since: an instant, inclusive.
    """
    organization = caller.organization
    return store.LIST.find(
        tx,
        caller,
        page,
        lambda row: _present(organization, ExperienceRow._make(row)),
        published=published,
        updated_since=updated_since,
    )


def get(tx: Tx, caller: Caller, experience_id: str) -> dict[str, Any]:
    """Return an experience.

    Raises:
        NotFound: the organization has no such experience.
    """
    row = store.get(tx, caller.organization.id, experience_id)
    if row is None:
        raise NotFound
    return _present(caller.organization, row)


def _present(organization: Organization, row: ExperienceRow) -> dict[str, Any]:
    return rules.present(row, organization.zone, has_add_ons=organization.add_ons_app)
