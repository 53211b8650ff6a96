"""Every corruption of the rows is found, with no finding except those that it causes.

All checks look at each corruption on SQLite. On PostgreSQL only the check that has to find it does: the rows and the
queries are the same. `make test` has the first corruption of each check.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from support.world.world import SECRET

from booking_core.base.clock import END_OF_TIME
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.upkeep import doctor

EXACT = doctor.CheckOptions(skew_s=0, overdue_s=100 * 86_400, openers=doctor.openers(SecretKeys(SECRET)))
MISSING_ID = "'00000000-0000-4000-8000-000000000000'"
NAMES = {check.invariant: check.name for check in doctor.CHECKS}
"""The name of each check, by its invariant."""


@dataclass(frozen=True)
class Corruption:
    """A statement that corrupts rows, the check that finds it, and others that may find it too."""

    check: str
    sql: str
    also: frozenset[str] = frozenset()


def corruptions() -> Iterator[Corruption]:
    """Read the statements of `corruptions.sql`."""
    script = Path(__file__).with_name("corruptions.sql").read_text()
    booking_id = r"(SELECT id FROM bookings WHERE booking_number = \1)"
    script = re.sub(r"\[booking_(\d)\]", booking_id, script.replace("[missing_id]", MISSING_ID))
    script = script.replace("[in_2100]", "4102444800000000").replace("[end_of_time]", str(END_OF_TIME))
    for names, statements in re.findall(r"^-- ([\w, ]+)\n((?:(?!--).+\n)+)", script, re.MULTILINE):
        check, *also = names.split(", ")
        for sql in statements.strip().removesuffix(";").split(";\n"):
            yield Corruption(check, " ".join(sql.split()), frozenset(also))


CORRUPTIONS = tuple(corruptions())
FIRST = {corruption.check: corruption for corruption in reversed(CORRUPTIONS)}.values()
"""The first corruption of each check."""


def row(corruption: Corruption) -> Any:
    marks = () if corruption in FIRST else pytest.mark.exhaustive
    return pytest.param(corruption, id=corruption.sql[:90], marks=marks)


def found_after(history: Any, sql: str) -> list[doctor.Finding]:
    """Run a statement, return the findings of the doctor, and roll the statement back."""

    def work(tx: Tx) -> list[doctor.Finding]:
        assert tx.run(Statement(text(sql.replace(":", "\\:")))) > 0, "no row was changed"
        return doctor.examine(tx, options=EXACT)

    return history.world.database.dry_run(work)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def typed(unconstrained: Any) -> set[str]:
    """Return the texts of guests and staff in the history and in the corruptions, as they are compared."""
    rows = [row for table in (tables.customers, tables.bookings) for row in unconstrained.world.rows(table)]
    personal = ("email", "email_key", "name", "guest_email", "guest_name", "note")
    texts = {row[name] for row in rows for name in personal if name in row}
    return {text.casefold() for text in texts if text} | {"one@example.com", "another@example.com"}


@pytest.mark.parametrize("corruption", [row(corruption) for corruption in CORRUPTIONS])
def test_a_corruption_is_found_without_unrelated_findings_and_without_personal_data(
    unconstrained: Any, typed: set[str], corruption: Corruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unconstrained.world.database.is_sqlite:
        monkeypatch.setattr(doctor, "CHECKS", [check for check in doctor.CHECKS if check.name == corruption.check])
    findings = found_after(unconstrained, corruption.sql)
    found_by = {NAMES[finding.invariant] for finding in findings}
    assert corruption.check in found_by
    assert found_by <= {corruption.check} | corruption.also
    for finding in findings:
        report = f"{finding.subject} {finding.message} {finding.remedy}".casefold()
        assert not [text for text in typed if text in report], finding
        assert " minor " not in report


def test_personal_data_is_in_the_history_that_is_corrupted(typed: set[str]) -> None:
    assert len(typed) > 2


def test_every_check_has_a_corruption_that_it_finds() -> None:
    elsewhere = {"announcements", "announced_states"}  # HARMS of departures/test_announcing.py
    broken = {check.name for check in doctor.CHECKS if check.kind is doctor.FindingKind.BROKEN}
    assert {corruption.check for corruption in CORRUPTIONS} == broken - elsewhere


def test_no_corruption_is_left_in_the_history(unconstrained: Any) -> None:
    assert unconstrained.world.database.read(lambda tx: doctor.examine(tx, options=EXACT)) == []
