"""The audit trail: changes by the operator's commands, and by API keys to the objects they manage.

An entry is written in the transaction of its change: neither exists without the other. It has ids and names of
settings, and no entered value: no secret, no address, no text of a guest.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Text, bindparam, or_, select

from booking_core.base import tokens
from booking_core.base.clock import to_datetime
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import LIMIT, OWNER, Statement
from booking_core.db.tables import audit
from booking_core.due_work.rows import NIL_ID

log = logging.getLogger("booking.audit")

OPERATOR, API_KEY = "operator", "api_key"
OBJECTS_MAX = 20
"""Ids of one kind in an entry; the number of all is beside them."""

Objects = Mapping[str, str | Sequence[str]]
"""Ids, or names of settings, by kind."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change.

    Args:
        actor: the user and the machine of a command, or the public prefix of an API key.
        action: the package and the verb, such as `keys.revoke`.
        organization_id: None for a change of the installation.
    """

    actor_kind: str
    actor: str
    action: str
    organization_id: str | None
    objects: Objects = field(default_factory=dict)

    def log(self) -> None:
        """Write the line of the entry, after its transaction."""
        fields = {
            "actor_kind": self.actor_kind,
            "actor": self.actor,
            "action": self.action,
            "organization_id": self.organization_id,
            "objects": _bounded(self.objects),
        }
        log.info("%s by %s, organization %s", self.action, self.actor, self.organization_id, extra=fields)


def record(tx: Tx, entry: AuditEntry, *, at: int) -> None:
    """Write the entry in the transaction of its change."""
    tx.insert(
        tables.audit,
        organization_id=entry.organization_id or NIL_ID,
        id=tokens.new_id(),
        at=at,
        actor_kind=entry.actor_kind,
        actor=entry.actor,
        action=entry.action,
        objects=orjson.dumps(_bounded(entry.objects)).decode(),
    )


def _bounded(objects: Objects) -> dict[str, Any]:
    """Return the ids as lists; of a long one the first, and its length."""
    lists = {name: [ids] if isinstance(ids, str) else list(ids) for name, ids in objects.items()}
    lengths = {f"{name}_total": len(ids) for name, ids in lists.items() if len(ids) > OBJECTS_MAX}
    return {name: ids[:OBJECTS_MAX] for name, ids in lists.items()} | lengths


# Reading -------------------------------------------------------------------------------------------------------------

_SINCE = audit.c.at >= bindparam("since")
_ACTION = or_(
    bindparam("action", type_=Text) == "",
    audit.c.action == bindparam("action"),
    audit.c.action.like(bindparam("prefix")),
)
_ENTRIES = (
    select(audit, tables.organizations.c.slug)
    .outerjoin(tables.organizations, tables.organizations.c.id == audit.c.organization_id)
    .where(_SINCE, _ACTION)
    .order_by(audit.c.at.desc(), audit.c.id.desc())
    .limit(LIMIT)
)
_FIND = Statement(_ENTRIES)
_FIND_OF_ORGANIZATION = Statement(_ENTRIES.where(audit.c.organization_id == OWNER))


def find(
    tx: Tx, *, organization_id: str | None = None, since: int = 0, action: str = "", limit: int
) -> list[dict[str, Any]]:
    """Return entries as JSON, newest first.

    Args:
        organization_id: None for all organizations and the installation.
        since: the first instant.
        action: an action such as `keys.revoke`, or its first word; all of them if it is empty.
    """
    parameters = {"since": since, "action": action, "prefix": f"{action}.%", "limit": limit}
    if organization_id is None:
        rows = tx.all(_FIND, **parameters)
    else:
        rows = tx.all(_FIND_OF_ORGANIZATION, **parameters, organization_id=organization_id)
    return [_present(*row) for row in rows]


def _present(
    organization_id: str, entry_id: str, at: int, actor_kind: str, actor: str, action: str, objects: str, slug: str
) -> dict[str, Any]:
    is_of_installation = str(organization_id) == NIL_ID
    object_ids = orjson.loads(objects)
    return {
        "id": str(entry_id),
        "at": to_datetime(at).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "actor_kind": actor_kind,
        "actor": actor,
        "action": action,
        "organization_id": None if is_of_installation else str(organization_id),
        "organization": slug,
        "objects": object_ids,
        "summary": " ".join(f"{name}={_listed(ids)}" for name, ids in object_ids.items()),
    }


def _listed(ids: Any) -> str:
    return ",".join(ids) if isinstance(ids, list) else str(ids)
