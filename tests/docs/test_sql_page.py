"""The examples of the page about SQL, and of the README of `booking_core/db`, run on both databases in order."""

import inspect
from inspect import signature
from typing import Any

from support import pages
from support.world.world import DAY, NOON, World

from booking_core.db import paging, statements, unit_of_work
from booking_core.db.engine import Database

PAGE = "design/sql.md"
README = "../booking_core/db/README.md"


def test_the_examples_of_the_sql_page_run_on_both_databases(world: World) -> None:
    experience = world.experience()
    names: dict[str, Any] = {
        "organization_id": world.org,
        "departure_ids": [world.departure(experience, starts_at=NOON + day * DAY) for day in (1, 2, 3)],
        "caller": world.caller(),
        "now": world.clock(),
    }
    with world.database.writing() as names["tx"]:
        run_examples(PAGE, names)
    assert {row[0] for row in names["to_come"]} == set(names["departure_ids"])


def run_examples(page: str, names: dict[str, Any]) -> None:
    for number, block in enumerate(pages.runnable(page, "python"), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_the_examples_of_the_readme_run_on_both_databases(world: World) -> None:
    departure_id = world.departure(world.experience(), seats=12)
    names = {"database": world.database, "organization_id": world.org, "departure_id": departure_id}
    run_examples(README, names)
    assert world.database.read(names["seats_taken"]) == 8


def test_the_readme_names_every_way_to_open_a_transaction() -> None:
    methods = inspect.getmembers(Database, inspect.isfunction)
    verbs = {name for name, method in methods if name[0] != "_" and {"fn", "fns"} & {*signature(method).parameters}}
    assert "write_once" in verbs
    text = (pages.DOCS / README).read_text(encoding="utf-8")
    assert {verb for verb in verbs if f"`database.{verb}(" not in text} == set()


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
