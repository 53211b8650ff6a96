"""Measures an organization while another one misbehaves, at full size: the rows of tests/isolation.

`python -m bench.neighbours` measures all of them, `--misbehaviour rare-filter --database postgresql` a part. The tests
of these rows count turns; here are the latencies, which depend on the machine.
"""

import argparse
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench import postgres, report
from bench.postgres import Postgres
from booking_core.db import migrate

if TYPE_CHECKING:
    from isolation.misbehaviours import Misbehaviour
    from isolation.operations import Measured

DATABASES = ("postgresql", "sqlite")
ROUNDS = 60


def main() -> None:
    """Measure the rows that the options name, print them and write them; exit 1 if a request or a delivery failed."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the scenes stop their processes
    from isolation.misbehaviours import BY_NAME

    rows = [BY_NAME[name] for name in options.misbehaviour or BY_NAME]
    results: dict[str, object] = {}
    failures: list[str] = []
    with postgres.running() as server, tempfile.TemporaryDirectory(prefix="bench-neighbours-") as folder:
        about = report.environment(server)
        for database in options.database or DATABASES:
            measured = {row.name: _measured(row, database, server, Path(folder)) for row in rows}
            _show(database, measured)
            results[database] = {name: [quiet.seconds, beside.seconds] for name, (quiet, beside) in measured.items()}
            failures += [
                f"{name}: {text}" for name, pair in measured.items() for text in pair[0].failures + pair[1].failures
            ]
    where = report.RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-neighbours.json"
    report.write(about | {"neighbours": results, "failures": failures}, where)
    print(*failures, f"every time: {where}", sep="\n", file=sys.stderr)
    sys.exit(bool(failures))


def _measured(
    misbehaviour: "Misbehaviour", database: str, server: Postgres, folder: Path
) -> tuple["Measured", "Measured"]:
    """Return the neighbour's times before and beside the misbehaviour."""
    from isolation.world import Scene

    name = f"neighbours_{misbehaviour.name.replace('-', '_')}"
    url = f"sqlite:///{folder / name}.db" if database == "sqlite" else server.create_database(name)
    migrate.upgrade(url)
    operations = misbehaviour.measured_on(database)
    with Scene(url, folder, is_full=True, cancellations=ROUNDS * 2, settings=misbehaviour.settings) as scene:
        misbehaviour.prepare(scene)
        scene.start()
        quiet = scene.neighbour.measure(operations, rounds=ROUNDS)
        with misbehaviour.run(scene):
            return quiet, scene.neighbour.measure(operations, rounds=ROUNDS)


def _show(database: str, measured: dict[str, tuple["Measured", "Measured"]]) -> None:
    operations = list(dict.fromkeys(operation for _, beside in measured.values() for operation in beside.seconds))
    table = report.new_table("row", *operations)
    for name, (quiet, beside) in measured.items():
        ratios = (
            f"{median(beside.seconds[operation]) / median(quiet.seconds[operation]):,.1f}"
            if operation in beside.seconds
            else ""
            for operation in operations
        )
        table.add_row(name, *ratios)
    console = report.wide_console()
    console.print(
        f"a neighbour's median beside a misbehaviour on {database}, as a multiple of the quiet one", table, sep="\n"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--misbehaviour", action="append", default=[], metavar="NAME", help="a row; may be repeated")
    parser.add_argument("--database", action="append", default=[], choices=DATABASES)
    return parser.parse_args()


if __name__ == "__main__":
    main()
