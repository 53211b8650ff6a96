"""`python -m bench`: measure the entries and print the tables."""

import argparse
import json
import signal
import sys
from pathlib import Path

from rich.console import Console

from bench import creates, day, delivering, feed, isolation, overload, postgres, reads, report, rush, starts
from bench.measure import Entry, Timing, measured
from bench.stage import Stage

MODULES = (reads, creates, delivering, rush, feed, overload, starts, day, isolation)
ENTRIES = [entry for module in MODULES for entry in module.ENTRIES]
FULL = Timing(warmup_s=1.0, duration_s=4.0)
QUICK = Timing(warmup_s=0.5, duration_s=1.0)


def main() -> None:
    """Read the options and run; exit 1 if an answer was wrong or an entry could not be measured."""
    options = _options()
    if options.list:
        for entry in ENTRIES:
            print(f"{entry.name:36} {', '.join(map(str, entry.goals)):35} {entry.measures}")
        return
    # A terminated bench stops its processes, like an interrupted one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _run(options, Console(stderr=True))
    except KeyboardInterrupt:
        sys.exit(130)


def _run(options: argparse.Namespace, console: Console) -> None:
    timing, rounds = (QUICK, 3) if options.quick else (FULL, 5)
    outcomes, errors = [], []
    with postgres.running() as database:
        stage = Stage(database)
        for entry in _chosen(options.only):
            try:
                with console.status(f"{entry.name}: starting") as status:
                    outcomes.append(measured(entry, stage, options.rounds or rounds, timing, status.update))
            except Exception as error:  # the results of the other entries stay valid
                console.print_exception()
                errors.append(f"{entry.name}: {error!s:.200}")
        environment = report.environment(database)
    report.show(outcomes)
    if options.json:
        readings = environment | {"entries": [report.as_json(outcome) for outcome in outcomes]}
        options.json.write_text(json.dumps(readings, indent=1) + "\n")
    console.print(*(f"[red]not measured:[/] {error}" for error in errors), sep="\n")
    if errors or any(outcome.failures for outcome in outcomes):
        sys.exit(1)


def _chosen(names: list[str]) -> list[Entry]:
    """Return the entries whose names begin so; by default all that have a goal."""
    return [entry for entry in ENTRIES if (entry.name.startswith(tuple(names)) if names else entry.goals)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The service measured beside its floors.")
    parser.add_argument("--quick", action="store_true", help="runs of one second, three rounds: a look, not a figure")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="an entry, or its first letters")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, each side once in each (5; 3 with --quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading to a file")
    parser.add_argument("--list", action="store_true", help="name the entries and their goals, and stop")
    options = parser.parse_args()
    if not _chosen(options.only):
        parser.error(f"no entry begins so; there are: {', '.join(entry.name for entry in ENTRIES)}")
    return options


if __name__ == "__main__":
    main()
