"""The report of a run: a table for each entry, and JSON with every reading."""

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table

from bench.measure import Outcome, Spread
from bench.postgres import Postgres
from bench.processes import ROOT

MIN_WIDTH = 160


def show(outcomes: Sequence[Outcome]) -> None:
    """Print a table for each entry, with its goals and failures below."""
    console = Console()
    console.width = max(console.width, MIN_WIDTH)  # a pipe or a narrow terminal would cut figures
    for outcome in outcomes:
        console.print(f"[bold]{outcome.entry.name}[/]: {outcome.entry.measures}", highlight=False)
        console.print(_table(outcome))
        for goal in outcome.entry.goals:
            reached = outcome.reached(goal)
            colour = "green" if goal.is_met(reached.median) else "red"
            console.print(f"[{colour}]{_spread(reached)}[/], goal: {goal}")
        console.print(*(f"[red]wrong answers:[/] {failure}" for failure in outcome.failures), "", sep="\n")


def _table(outcome: Outcome) -> Table:
    figures = next(iter(outcome.readings.values()))[0].figures
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("side", no_wrap=True)
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    for side in outcome.readings:
        table.add_row(side, *(_spread(Spread.of(outcome.values(side, figure))) for figure in figures))
    return table


def _spread(spread: Spread) -> str:
    """Return the median and the range, if there is one, with two decimals below ten, and none from a hundred on."""
    digits = 2 if spread.median < 10 else 1 if spread.median < 100 else 0
    values = [f"{value:,.{digits}f}" for value in (spread.median, spread.low, spread.high)]
    return f"{values[0]} ({values[1]}–{values[2]})" if spread.low < spread.high else values[0]


def environment(postgres: Postgres) -> dict[str, object]:
    """Return the machine of the measurement, and the commit, whose locks name the versions of all packages."""
    commit = ["git", "describe", "--always", "--dirty"]
    return {
        "commit": subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "postgres": postgres.version,
    }


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return the goals of an entry, and every reading."""
    goals = {str(goal): asdict(outcome.reached(goal)) for goal in outcome.entry.goals}
    readings = {side: [asdict(reading) for reading in readings] for side, readings in outcome.readings.items()}
    return {"name": outcome.entry.name, "measures": outcome.entry.measures, "goals": goals, "readings": readings}
