"""`python -m bench`: run the workloads, print the table, keep the samples."""

import argparse
import signal
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench import measure, postgres, report
from bench.measure import Timing
from bench.workloads import WORKLOADS, Stage, Workload

FULL = Timing(warmup_s=1.0, duration_s=4.0)
QUICK = Timing(warmup_s=0.5, duration_s=1.0)


def main() -> None:
    """Read the options and run; exit 1 when a side gave wrong answers, whatever the ratios."""
    options = _options()
    if options.list:
        for workload in WORKLOADS:
            print(f"{workload.name:18} ≥ {workload.aim:.1f}  {workload.measures}  /  {workload.floor}")
        return
    # A terminated bench stops what it started, as an interrupted one does.
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
    with postgres.running() as database:
        about = report.environment(database) | {"rounds": rounds, "quick": options.quick}
        stage = Stage(database, with_service=not options.floors)
        measured = [_measured(workload, stage, rounds, timing, console) for workload in _chosen(options.only)]
    outcomes = [outcome for outcome in measured if outcome]
    report.show(outcomes)
    where = options.json or report.RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    report.write(outcomes, where, about)
    console.print(f"every sample: {where}")
    if any(outcome.failures for outcome in outcomes):
        sys.exit(1)


def _measured(workload: Workload, stage: Stage, rounds: int, timing: Timing, console: Console) -> report.Outcome | None:
    with console.status(f"{workload.name}: starting") as status, ExitStack() as stack:
        sides = workload.build(stage, stack)
        if not sides:
            console.print(f"{workload.name}: left out, its data comes through the service")
            return None
        samples = measure.alternate(sides, rounds, timing, lambda what: status.update(f"{workload.name}, {what}"))
    failures, doubts = measure.failures(sides, samples), measure.doubts(samples)
    return report.Outcome(workload, samples, failures, doubts, stage.with_service)


def _chosen(names: list[str]) -> list[Workload]:
    """The workloads of those names, or for a name that none has, those that begin so; all when none is named."""
    known = {w.name for w in WORKLOADS}
    whole, begun = known.intersection(names), tuple(name for name in names if name not in known)
    return [w for w in WORKLOADS if not names or w.name in whole or w.name.startswith(begun)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The service measured beside its floors.")
    parser.add_argument("--quick", action="store_true", help="runs of one second, three rounds: a look, not a figure")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a workload, or its first letters")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, each side once in each (5; 3 with --quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where every sample goes (bench/results/<time>.json)")
    parser.add_argument("--floors", action="store_true", help="measure the floors alone, without the service")
    parser.add_argument("--list", action="store_true", help="name the workloads, their aims and floors, and stop")
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not _chosen(options.only):
        parser.error(f"no workload begins so; there are: {', '.join(w.name for w in WORKLOADS)}")
    return options


if __name__ == "__main__":
    main()
