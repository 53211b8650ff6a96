"""Statements in `.sql` files: each has its comment, is run by the module beside it, and parses on its databases."""

import importlib
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from booking_core.base import tokens
from booking_core.db import sql_files
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import POSTGRESQL, SQLITE, Statement
from booking_core.upkeep import doctor

ROOT = Path(__file__).parents[3]
PACKAGES = ("booking_core", "booking_server", "booking_cli", "bench")
FILES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.sql")
)
"""The modules with a file of statements."""
PLACEHOLDERS = ("bench.floor_sql",)
"""Files that are completed by their module: its own tests explain them."""
DOCTOR = "booking_core.upkeep.doctor."
"""The package whose files declare checks, and have no module beside them."""
_ALIAS = re.compile(r"\[(\w+)\]")


def content(module: str) -> str:
    return (ROOT / f"{module.replace('.', '/')}.sql").read_text(encoding="utf-8")


def statements(module: str) -> list[tuple[str, str | None]]:
    return list(sql_files.load(module).texts)


@pytest.mark.parametrize("module", FILES)
def test_each_sql_file_and_each_statement_begins_with_a_comment(module: str) -> None:
    lines = content(module).splitlines()
    name = module.rpartition(".")[2]
    assert lines[0].startswith("-- Checks of " if module.startswith(DOCTOR) else f"-- The statements of {name}.py")
    headers = [at for at, line in enumerate(lines) if line.startswith("-- name: ")]
    assert len(headers) == len(statements(module))
    for at in headers:
        assert re.match(r"-- [A-Z][a-z]+ ", lines[at + 1]), f"{module}: {lines[at]} has no sentence"
        assert lines[at - 1] == ""


@pytest.mark.parametrize("module", [module for module in FILES if not module.startswith(DOCTOR)])
def test_every_statement_is_named_by_the_module_beside_its_file(module: str) -> None:
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    importlib.import_module(module)
    assert "sql_files.load(__name__)" in source
    referenced, included = set(re.findall(r'"(\w+)"', source)), set(re.findall(r"-- include: (\w+)", content(module)))
    assert {name for name, _ in statements(module)} <= referenced | included


def test_every_statement_of_the_doctor_is_a_check_or_included_in_one() -> None:
    files = [module for module in FILES if module.startswith(DOCTOR)]
    assert {DOCTOR + name for name in doctor.FILES} == set(files)
    written = [name for module in files for name, _ in statements(module)]
    checks = [check.name for check in doctor.CHECKS if not isinstance(check, doctor.SealedValueScan)]
    included = {name for module in files for name in re.findall(r"-- include: (\w+)", content(module))}
    assert sorted(written) == sorted([*checks, *included])


@pytest.mark.parametrize("module", [module for module in FILES if module not in PLACEHOLDERS])
def test_every_statement_parses_on_its_database(database: Database, module: str) -> None:
    file = sql_files.load(module)
    for name, only in statements(module):
        if only in (None, database.dialect.name):
            written = _ALIAS.sub("true", file.text(name, database.dialect))
            database.read(partial(explain, written))


def explain(written: str, tx: Tx) -> None:
    explained = text("EXPLAIN " + written)
    values: dict[str, Any] = dict.fromkeys(explained.compile().params)
    values |= {"organization_id": tokens.new_id()} | dict(doctor.CheckOptions().parameters(tx.now()))
    assert tx.all(Statement(explained), **values)


def test_a_statement_has_a_form_for_each_database_where_they_differ() -> None:
    file = sql_files.parse(
        "-- name: claim (postgresql)\n-- Claim a row.\nSELECT 1 FOR UPDATE\n\n"
        "-- name: claim (sqlite)\n-- Claim a row.\nSELECT 1\n"
    )
    assert file.statement("claim").compiled(POSTGRESQL).text == "SELECT 1 FOR UPDATE"
    assert file.statement("claim").compiled(SQLITE).text == "SELECT 1"
    with pytest.raises(KeyError):
        file.text("claim")


def test_a_statement_includes_another_of_its_file() -> None:
    file = sql_files.parse(
        "-- name: due\n-- Select the due rows.\nSELECT id FROM rows\n\n"
        "-- name: count\n-- Count the due rows.\nSELECT count(*) FROM (-- include: due\n) d\n"
    )
    assert file.text("count") == "SELECT count(*) FROM (\nSELECT id FROM rows\n) d"


def test_the_header_of_a_statement_has_labelled_lines() -> None:
    header = "-- Count the rows.\n-- Cost: one pass.\n-- check: there are\n--   no rows\n-- remedy: delete them\n"
    file = sql_files.parse(f"-- name: count\n{header}SELECT 1\n")
    assert file.labels == {"count": {"check": "there are no rows", "remedy": "delete them"}}
    assert file.text("count") == "SELECT 1"


def test_two_statements_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="count is defined twice"):
        sql_files.parse("-- name: count\n-- Count.\nSELECT 1\n" * 2)
