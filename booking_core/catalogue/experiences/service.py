"""Public functions of experiences. Ids are canonical UUIDs in lower case; the interfaces normalize them."""

from typing import Any

from sqlalchemy import BigInteger, Boolean, bindparam, select

from booking_core.base.context import Caller, Organization
from booking_core.base.errors import NotFound
from booking_core.catalogue.experiences import rules
from booking_core.catalogue.experiences.rules import ExperienceRow
from booking_core.db.engine import Tx
from booking_core.db.paging import JsonPage, KeysetList, PageRequest
from booking_core.db.statements import OWNER, ROW_ID, Row, Statement, columns_of
from booking_core.db.tables import experiences

_EXPERIENCES = select(*columns_of(ExperienceRow._fields, experiences)).where(experiences.c.organization_id == OWNER)

_UPDATED_SINCE = experiences.c.updated_at >= bindparam("updated_since", type_=BigInteger)

LIST = KeysetList(
    "experiences",
    experiences,
    _EXPERIENCES,
    {
        "published": experiences.c.is_published == bindparam("published", type_=Boolean),
        "updated_since": _UPDATED_SINCE,
    },
    scattered={
        "updated_since": _EXPERIENCES.with_only_columns(experiences.c.organization_id, experiences.c.id)
        .where(_UPDATED_SINCE)
        .order_by(experiences.c.updated_at)
    },
)

_GET = Statement(_EXPERIENCES.where(experiences.c.id == ROW_ID))


def find(
    tx: Tx, caller: Caller, page: PageRequest, *, published: bool | None = None, updated_since: int | None = None
) -> JsonPage:
    """Return a page of experiences, published and unpublished by default.

    Args:
        updated_since: an instant, inclusive.
    """
    organization = caller.organization
    return LIST.find(
        tx,
        caller,
        page,
        lambda row: _present(organization, row),
        published=published,
        updated_since=updated_since,
    )


def get(tx: Tx, caller: Caller, experience_id: str) -> dict[str, Any]:
    """Return an experience.

    Raises:
        NotFound: the organization has no such experience.
    """
    row = tx.first(_GET, organization_id=caller.organization.id, id=experience_id)
    if row is None:
        raise NotFound
    return _present(caller.organization, row)


_UNIT_TYPES = Statement(
    select(experiences.c.id, experiences.c.price_tiers).where(
        experiences.c.organization_id == OWNER,
        experiences.c.price_tiers.contains(rules.UNIT_TYPE),
    )
)


def unit_types(tx: Tx, caller: Caller) -> dict[str, dict[str, str]]:
    """Return the OCTO types of the price tiers that have one, by the ids of experience and tier."""
    return {row[0]: rules.unit_types(row[1]) for row in tx.all(_UNIT_TYPES, organization_id=caller.organization.id)}


def _present(organization: Organization, row: Row) -> dict[str, Any]:
    return rules.present(ExperienceRow._make(row), organization.zone, has_add_ons=organization.add_ons_app)
