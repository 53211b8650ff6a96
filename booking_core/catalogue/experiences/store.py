"""SQL statements of experiences."""

from sqlalchemy import BigInteger, Boolean, bindparam, select

from booking_core.catalogue.experiences.rules import ExperienceRow
from booking_core.db.engine import Tx
from booking_core.db.paging import KeysetList
from booking_core.db.statements import Statement
from booking_core.db.tables import Id, experiences

_SHOWN = select(*(experiences.c[name] for name in ExperienceRow._fields)).where(
    experiences.c.organization_id == bindparam("organization_id", type_=Id)
)

_UPDATED_SINCE = experiences.c.updated_at >= bindparam("updated_since", type_=BigInteger)

LIST = KeysetList(
    "experiences",
    experiences,
    _SHOWN,
    {
        "published": experiences.c.is_published == bindparam("published", type_=Boolean),
        "updated_since": _UPDATED_SINCE,
    },
    scattered={
        "updated_since": _SHOWN.with_only_columns(experiences.c.organization_id, experiences.c.id)
        .where(_UPDATED_SINCE)
        .order_by(experiences.c.updated_at)
    },
)

_GET = Statement(_SHOWN.where(experiences.c.id == bindparam("id", type_=Id)))


def get(tx: Tx, organization_id: str, experience_id: str) -> ExperienceRow | None:
    row = tx.first(_GET, organization_id=organization_id, id=experience_id)
    return ExperienceRow._make(row) if row else None
