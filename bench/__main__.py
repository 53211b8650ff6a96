"""`python -m bench`: measure the entries, print the tables, write the samples and draw the plot."""

import argparse
import compileall
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench import kinds, plot, postgres, report
from bench.entries import ENTRIES
from bench.kinds import Curved, Entry
from bench.measure import Timing
from bench.processes import ROOT
from bench.stage import Stage

FULL = Timing(warmup_s=1.0, duration_s=4.0)
QUICK = Timing(warmup_s=0.5, duration_s=1.0)
PACKAGES = ("booking_core", "booking_server", "booking_sdk", "booking_cli", "webhook_verify", "bench")


def main() -> None:
    """Read the options and run; exit 1 if an answer was wrong or an entry could not be measured."""
    options = _options()
    if options.list:
        for entry in ENTRIES:
            floor = getattr(entry, "floor", "")
            print(f"{entry.name:21} {entry.goal:10} {entry.measures}{floor and '  /  '}{floor}")
        return
    # A terminated bench stops its processes, like an interrupted one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=True)
    try:
        _run(options, console)
    except KeyboardInterrupt:
        console.print("interrupted; everything started is stopped")
        sys.exit(130)


def _run(options: argparse.Namespace, console: Console) -> None:
    timing = QUICK if options.quick else FULL
    rounds = options.rounds or (3 if options.quick else 5)
    _compile()
    with postgres.running() as database:
        about: dict[str, object] = report.environment(database) | {"rounds": rounds, "quick": options.quick}
        stage = Stage(database, quick=options.quick)
        outcomes, broken = [], []
        for entry in _chosen(options.only):
            try:
                outcomes.append(_measured(entry, stage, rounds, timing, console))
            except Exception as error:  # the results of the other entries stay valid
                console.print_exception()
                broken.append(f"{entry.name}: {error!s:.200}")
    report.show(outcomes)
    where = options.json or report.RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    report.write(about | {"entries": [report.as_json(outcome) for outcome in outcomes]}, where)
    console.print(f"every sample: {where}")
    if curves := [outcome for outcome in outcomes if isinstance(outcome, Curved)]:
        drawn = where.with_suffix(".svg")
        drawn.write_text(plot.drawn(curves))
        console.print(f"the plot: {drawn}")
    for each in broken:
        console.print(f"[red]not measured:[/] {each}")
    if broken or any(outcome.failures for outcome in outcomes):
        sys.exit(1)


def _compile() -> None:
    """Compile every module to bytecode.

    If the environment keeps Python from writing bytecode, each start would compile all changed modules, and the starts
    are measured.
    """
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2)


def _measured(entry: Entry, stage: Stage, rounds: int, timing: Timing, console: Console) -> kinds.Outcome:
    with console.status(f"{entry.name}: starting") as status:
        return kinds.measured(entry, stage, rounds, timing, lambda what: status.update(f"{entry.name}, {what}"))


def _chosen(names: list[str]) -> list[Entry]:
    """Return the entries of those names, or for an unknown name the entries that begin with it; by default all."""
    if not names:
        return list(ENTRIES)
    known = {entry.name for entry in ENTRIES}
    whole, begun = known.intersection(names), tuple(name for name in names if name not in known)
    return [entry for entry in ENTRIES if entry.name in whole or entry.name.startswith(begun)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The service measured beside its floors.")
    parser.add_argument("--quick", action="store_true", help="runs of one second, three rounds: a look, not a figure")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="an entry, or its first letters")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, each side once in each (5; 3 with --quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where every sample goes (bench/results/<time>.json)")
    parser.add_argument(
        "--list", action="store_true", help="name the entries, what they want and their floors, and stop"
    )
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not _chosen(options.only):
        parser.error(f"no entry begins so; there are: {', '.join(entry.name for entry in ENTRIES)}")
    return options


if __name__ == "__main__":
    main()
