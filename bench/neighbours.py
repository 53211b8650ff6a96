"""Measures an organization while another one misbehaves: the table of tests/isolation at full size.

`python -m bench --only neighbours` measures all of it, which takes half an hour. `python -m bench.neighbours
--misbehaviour rush --operation book --database postgresql` measures a part. The table and the rules of a cell belong to
the tests, which check the same cells at a reduced size.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench import kinds, postgres, report
from bench.kinds import Matrix, Ratio, Row, Takes
from bench.processes import ROOT
from bench.stage import Stage

if TYPE_CHECKING:
    from isolation.measuring import Misbehaviour, Verdict

OPERATIONS = ("me", "list", "availability", "book", "cancel", "delivery", "mail", "expiry")
LIMITS = {"postgresql": 3.0, "sqlite": 5.0}
TAKES = 2
"""A cell above its limit is measured again."""
ROUNDS, BUDGET_S, PATIENCE_S, PAUSE_S = 60, 12.0, 15.0, 0.02


def build(stage: Stage, stack: ExitStack) -> Takes | None:
    """Return the whole table on both databases; at the reduced sizes for a quick run."""
    return chosen(stage, stack, (), (), tuple(LIMITS)) if stage.with_service else None


def chosen(
    stage: Stage, stack: ExitStack, names: Sequence[str], operations: Sequence[str], databases: Sequence[str]
) -> Takes:
    """Return a part of the table; without names, all of them."""
    sys.path.append(str(ROOT / "tests"))
    from isolation.cells import BY_NAME, MISBEHAVIOURS

    if unknown := [name for name in names if name not in BY_NAME]:
        raise SystemExit(f"no misbehaviour is called {unknown[0]}; there are: {', '.join(BY_NAME)}")
    wanted = {each.name: _only(each, operations) for each in MISBEHAVIOURS if not names or each.name in names}
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-neighbours-")))
    new_database = _databases(stage, folder)

    def take(side: str, name: str) -> Row:
        return _row(wanted[name], side, new_database(side, name), folder, is_quick=stage.quick)

    return Takes({side: [name for name, each in wanted.items() if each.measured_on(side)] for side in databases}, take)


def _only(misbehaviour: "Misbehaviour", operations: Sequence[str]) -> "Misbehaviour":
    """Return the misbehaviour with these operations; a delivery and a mail need the booking that causes them."""
    if not operations:
        return misbehaviour
    from isolation.operations import Operation

    wanted = {Operation(name) for name in operations}
    if wanted & {Operation.DELIVERY, Operation.MAIL}:
        wanted.add(Operation.BOOK)
    kept = tuple(each for each in Operation if each in wanted)
    on_sqlite = misbehaviour.on_sqlite
    return replace(
        misbehaviour,
        operations=kept,
        on_sqlite=None if on_sqlite is None else tuple(each for each in kept if each in on_sqlite),
    )


def _databases(stage: Stage, folder: Path) -> Callable[[str, str], str]:
    """Return the function that creates an empty database of a side and returns its URL."""
    from booking_core.db import migrate

    def make(side: str, name: str) -> str:
        name = f"neighbours_{name.replace('-', '_')}"
        url = f"sqlite:///{folder / name}.db" if side == "sqlite" else stage.postgres.create_database(name)
        migrate.upgrade(url)
        return url

    return make


def _row(misbehaviour: "Misbehaviour", side: str, url: str, folder: Path, *, is_quick: bool) -> Row:
    from isolation.measuring import QUICK, Trial
    from isolation.operations import Effort
    from isolation.world import Scene

    effort = QUICK if is_quick else Effort(ROUNDS, BUDGET_S, PATIENCE_S, PAUSE_S)
    settings = misbehaviour.settings
    with Scene(url, folder, is_full=not is_quick, cancellations=ROUNDS * 2, settings=settings) as scene:
        verdict = Trial(scene, misbehaviour, side, effort).run(takes=TAKES, is_thorough=not is_quick)
    return _read(misbehaviour.name, verdict)


def _read(name: str, verdict: "Verdict") -> Row:
    cells = {
        str(cell.operation): Ratio(cell.ratio, cell.quiet_s * 1e3, cell.reference_s * 1e3, cell.disturbed_s * 1e3)
        for cell in verdict.cells
    }
    return Row(name, cells, tuple(dict.fromkeys(verdict.failures)))


ENTRIES = (Matrix("neighbours", "a neighbour's p99 beside a misbehaviour", OPERATIONS, LIMITS, build),)


# A part of the table ---------------------------------------------------------------------------------------------


def main() -> None:
    """Measure the part that the options name, and print it."""
    options = _options()
    console = Console(stderr=True)
    (entry,) = ENTRIES
    parts = options.misbehaviour, options.operation, options.database or tuple(LIMITS)
    entry = replace(entry, build=lambda stage, stack: chosen(stage, stack, *parts))
    with postgres.running() as database, console.status("starting") as status:
        stage = Stage(database, with_service=True, quick=options.quick)
        outcome = kinds.measured(entry, stage, 1, kinds.Timing(0, 0), status.update)
    assert isinstance(outcome, kinds.Mapped)
    report.show([outcome])
    sys.exit(not all(outcome.is_met(side, row) for side, rows in outcome.sides.items() for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--misbehaviour", action="append", default=[], metavar="NAME", help="a row; may be repeated")
    parser.add_argument("--operation", action="append", default=[], choices=OPERATIONS, help="a column")
    parser.add_argument("--database", action="append", default=[], choices=tuple(LIMITS))
    parser.add_argument("--quick", action="store_true", help="the reduced sizes of the tests")
    return parser.parse_args()


if __name__ == "__main__":
    main()
