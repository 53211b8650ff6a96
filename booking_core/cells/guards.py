"""The triggers of an organization that leaves a cell: they note which of its rows change, and refuse changes for the
moment in which it leaves, and from then on.

They are made for one organization and dropped when it has left: no other one's rows reach their function, and without a
move there is none.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from sqlalchemy import Table, text

from booking_core.cells import rows
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_core.errors import Unavailable

_LOCK = 0x63656C6C
"""The class of the advisory locks: a writer holds that of its organization shared, the move alone for a moment."""
_LOCK_OF = f"{_LOCK}, hashtext(CAST({{}} AS text))"
LOCK_TIMEOUT_MS = 1_000
"""A trigger is made behind the writers of its table, and others queue behind it meanwhile."""
_ATTEMPTS = 20

Pause = Callable[[float], None]

_FUNCTION = f"""
CREATE OR REPLACE FUNCTION cell_move_guard() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    changed jsonb;
    owner uuid;
    name text;
    key jsonb := '{{}}';
BEGIN
    IF current_setting('booking.cell_move', true) = 'on' THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' THEN changed = to_jsonb(OLD); ELSE changed = to_jsonb(NEW); END IF;
    owner = changed ->> TG_ARGV[0];
    IF NOT pg_try_advisory_xact_lock_shared({_LOCK_OF.format("owner")})
       OR EXISTS (SELECT FROM cell_moves WHERE organization_id = owner AND state = 'moved') THEN
        RAISE EXCEPTION 'the organization moves to another cell' USING ERRCODE = 'lock_not_available';
    END IF;
    FOREACH name IN ARRAY TG_ARGV[1:] LOOP
        key = key || jsonb_build_object(name, changed -> name);
    END LOOP;
    INSERT INTO cell_changes (organization_id, id, table_name, key)
    VALUES (owner, gen_random_uuid(), TG_TABLE_NAME, CAST(key AS text));
    RETURN NULL;
END
$body$
"""  # noqa: S608 - built from constants only
_FUNCTION_STATEMENT = Statement(text(_FUNCTION))
_HAS_TRIGGER = Statement(
    text("SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass(CAST(:table AS text)) AND tgname = :name")
)
_ALONE = Statement(text(f"SELECT pg_advisory_xact_lock({_LOCK_OF.format(':o')})"))
_AS_MOVER = Statement(text("SELECT set_config('booking.cell_move', 'on', true)"))


def install(database: Database, organization_id: str, pause: Pause = time.sleep) -> None:
    """Make the triggers of all tables, a transaction for each; those that are there are kept.

    Raises:
        Unavailable: a table was in use each time.
    """
    database.write(lambda tx: tx.run(_FUNCTION_STATEMENT))
    for table in rows.moved_tables():
        _patiently(database, partial(_install, table=table, organization_id=organization_id), pause)


def _patiently(database: Database, change: Callable[[Tx], None], pause: Pause) -> None:
    """Change a table, again after a pause while others use it."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            database.write(change)
            return
        except Unavailable as error:
            if attempt == _ATTEMPTS or not error.is_locked:
                raise
            pause(random.uniform(0.5, 1.5))


def _install(tx: Tx, table: Table, organization_id: str) -> None:
    tx.limit_lock_waits(LOCK_TIMEOUT_MS)
    for name, events, row in _triggers(organization_id):
        if tx.first(_HAS_TRIGGER, table=table.name, name=name):
            continue
        owner = rows.owner_of(table)
        arguments = ", ".join(f"'{each}'" for each in (owner, *rows.key_of(table)))
        tx.run(
            Statement(
                text(
                    f'CREATE TRIGGER "{name}" AFTER {events} ON "{table.name}" FOR EACH ROW'
                    f" WHEN ({row}.\"{owner}\" = '{organization_id}') EXECUTE FUNCTION cell_move_guard({arguments})"
                )
            )
        )


def remove(database: Database, organization_id: str, pause: Pause = time.sleep) -> None:
    """Drop the triggers, a transaction for each table.

    Raises:
        Unavailable: as `install`.
    """
    for table in rows.moved_tables():
        _patiently(database, partial(_remove, table=table, organization_id=organization_id), pause)


def _remove(tx: Tx, table: Table, organization_id: str) -> None:
    tx.limit_lock_waits(LOCK_TIMEOUT_MS)
    for name, _, _ in _triggers(organization_id):
        if tx.first(_HAS_TRIGGER, table=table.name, name=name):
            tx.run(Statement(text(f'DROP TRIGGER "{name}" ON "{table.name}"')))


def _triggers(organization_id: str) -> Iterator[tuple[str, str, str]]:
    number = organization_id.replace("-", "")
    yield f"cell_move_{number}_write", "INSERT OR UPDATE", "NEW"
    yield f"cell_move_{number}_delete", "DELETE", "OLD"


def freeze(tx: Tx, organization_id: str) -> None:
    """Refuse changes of the organization until the transaction ends, once those that have begun are committed.

    Raises:
        Unavailable: `is_locked`: one of them went on for too long.
    """
    tx.run(_ALONE, o=organization_id)


def pass_as_mover(tx: Tx) -> None:
    """Let the transaction change the rows of an organization that is frozen or has left."""
    tx.run(_AS_MOVER)
