"""The examples of the page about SQL run on both databases, in order and in one transaction."""

from typing import Any

from support import pages
from support.world import DAY, NOON, World

from booking_core.db import paging, statements, unit_of_work

PAGE = "design/sql.md"


def test_the_examples_of_the_sql_page_run_on_both_databases(world: World) -> None:
    experience = world.experience()
    names: dict[str, Any] = {
        "organization_id": world.org,
        "departure_ids": [world.departure(experience, starts_at=NOON + day * DAY) for day in (1, 2, 3)],
        "caller": world.caller(),
        "now": world.clock(),
    }
    with world.database.writing() as names["tx"]:
        for number, block in enumerate(pages.runnable(PAGE, "python"), 1):
            exec(compile(block, f"{PAGE}, block {number}", "exec"), names)
    assert {row[0] for row in names["to_come"]} == set(names["departure_ids"])


def test_the_page_shows_every_dialect_helper() -> None:
    shown = (pages.DOCS / PAGE).read_text(encoding="utf-8")
    helpers = {
        name
        for name, value in vars(statements).items()
        if not name.startswith("__")  # Python 3.14 gives every annotated module an `__annotate__`
        and getattr(value, "__module__", "") == statements.__name__
        and hasattr(value, "__name__")
    }
    helpers -= {"Compiled", "_SqliteCompiler", "_SqliteDialect"}
    helpers |= {each.__name__ for each in (unit_of_work.Update, unit_of_work.InsertFromSelect, paging.KeysetList)}
    assert {name for name in helpers if f"`{name}`" not in shown} == set()
