"""The verbs of experiences. Ids are canonical UUIDs in lower case, as the border hands them on."""

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
    """A page of experiences, unpublished ones included unless asked otherwise; `updated_since` is an instant, and
    what changed at that very instant belongs to the answer."""
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
    """One experience.

    Raises:
        NotFound: the organization has no such experience.
    """
    row = store.get(tx, caller.organization.id, experience_id)
    if row is None:
        raise NotFound
    return rules.present(row, caller.organization.zone)
