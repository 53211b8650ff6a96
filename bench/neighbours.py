"""Measures an organization while another one misbehaves: the table of tests/isolation at full size.

`python -m bench.neighbours` measures all of it, which takes half an hour. `python -m bench.neighbours --misbehaviour
rush --operation book --database postgresql` measures a part. The table and the rules of a cell belong to the tests,
which check the same cells at a reduced size.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench import postgres, report
from bench.postgres import Postgres
from bench.processes import ROOT
from booking_core.db import migrate

if TYPE_CHECKING:
    from isolation.measuring import Misbehaviour, Verdict

OPERATIONS = ("me", "list", "availability", "book", "cancel", "delivery", "mail", "expiry")
LIMITS = {"postgresql": 3.0, "sqlite": 5.0}
TAKES = 2
"""A cell above its limit is measured again."""
ROUNDS, BUDGET_S, PATIENCE_S, PAUSE_S = 60, 12.0, 15.0, 0.02


def main() -> None:
    """Measure the part of the table that the options name, print it and write it; exit 1 if a cell is not met."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the scenes stop their processes
    sys.path.append(str(ROOT / "tests"))
    from isolation.cells import BY_NAME, MISBEHAVIOURS

    if unknown := [name for name in options.misbehaviour if name not in BY_NAME]:
        raise SystemExit(f"no misbehaviour is called {unknown[0]}; there are: {', '.join(BY_NAME)}")
    chosen = [BY_NAME[name] for name in options.misbehaviour] or MISBEHAVIOURS
    rows = [_only(each, options.operation) for each in chosen]
    databases = options.database or tuple(LIMITS)
    with postgres.running() as server:
        about = report.environment(server)
        found = {name: _measured(rows, name, server, is_quick=options.quick) for name in databases}
    for name, verdicts in found.items():
        _show(name, verdicts)
    where = report.RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-neighbours.json"
    tables = {name: {row: asdict(verdict) for row, verdict in verdicts.items()} for name, verdicts in found.items()}
    report.write(about | {"neighbours": tables}, where)
    print(f"every cell: {where}", file=sys.stderr)
    sys.exit(any(verdict.complaints for verdicts in found.values() for verdict in verdicts.values()))


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


def _measured(
    misbehaviours: Sequence["Misbehaviour"], side: str, server: Postgres, *, is_quick: bool
) -> dict[str, "Verdict"]:
    """Return the verdict on each misbehaviour. If one cannot be measured, its verdict has the reason as a failure."""
    from isolation.measuring import Verdict

    rows = [each for each in misbehaviours if each.measured_on(side)]
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-neighbours-") as folder, Console(stderr=True).status("") as status:
        for number, misbehaviour in enumerate(rows, 1):
            status.update(f"{side}, {number} of {len(rows)}: {misbehaviour.name}")
            try:
                verdict = _verdict(misbehaviour, side, server, Path(folder), is_quick=is_quick)
            except Exception as error:
                verdict = Verdict((), (f"not measured: {type(error).__name__}: {error!s:.200}",))
            found[misbehaviour.name] = verdict
    return found


def _verdict(misbehaviour: "Misbehaviour", side: str, server: Postgres, folder: Path, *, is_quick: bool) -> "Verdict":
    from isolation.measuring import QUICK, Trial
    from isolation.operations import Effort
    from isolation.world import Scene

    name = f"neighbours_{misbehaviour.name.replace('-', '_')}"
    url = f"sqlite:///{folder / name}.db" if side == "sqlite" else server.create_database(name)
    migrate.upgrade(url)
    effort = QUICK if is_quick else Effort(ROUNDS, BUDGET_S, PATIENCE_S, PAUSE_S)
    settings = misbehaviour.settings
    with Scene(url, folder, is_full=not is_quick, cancellations=ROUNDS * 2, settings=settings) as scene:
        return Trial(scene, misbehaviour, side, effort).run(takes=TAKES, is_thorough=not is_quick)


def _show(side: str, verdicts: Mapping[str, "Verdict"]) -> None:
    title = f"A neighbour's p99 beside a misbehaviour on {side}, at most {LIMITS[side]:g} ×"
    table = report.new_table(title, "row", *OPERATIONS, "wrong")
    for name, verdict in verdicts.items():
        cells = {cell.operation: report.coloured(f"{cell.ratio:,.1f}", is_met=cell.is_met) for cell in verdict.cells}
        row = report.coloured(name, is_met=not verdict.complaints)
        table.add_row(row, *(cells.get(column, "") for column in OPERATIONS), "; ".join(verdict.failures)[:60])
    report.wide_console().print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--misbehaviour", action="append", default=[], metavar="NAME", help="a row; may be repeated")
    parser.add_argument("--operation", action="append", default=[], choices=OPERATIONS, help="a column")
    parser.add_argument("--database", action="append", default=[], choices=tuple(LIMITS))
    parser.add_argument("--quick", action="store_true", help="the reduced sizes of the tests")
    return parser.parse_args()


if __name__ == "__main__":
    main()
