"""Public functions of experiences. Ids are canonical UUIDs in lower case; the interfaces normalize them."""

from typing import Any

from booking_core.context import Caller
from booking_core.db.engine import Tx
from booking_core.db.paging import Page, PageRequest
from booking_core.errors import NotFound
from booking_core.experiences import rules, store
from booking_core.experiences.rules import ExperienceRow


def find(
    tx: Tx, caller: Caller, page: PageRequest, *, published: bool | None = None, updated_since: int | None = None
) -> Page:
    """Return a page of experiences, published and unpublished by default.

    Args:
        updated_since: an instant, inclusive.
    """
    zone = caller.organization.zone
    return store.LIST.find(
        tx,
        caller,
        page,
        lambda row: rules.present(ExperienceRow._make(row), zone),
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
    return rules.present(row, caller.organization.zone)
