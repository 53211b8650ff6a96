"""The report of a run: a table for each entry, and JSON with every reading."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench.measure import Outcome, Spread
from bench.postgres import Postgres
from bench.processes import ROOT

RESULTS = ROOT / "bench" / "results"
PACKAGES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "orjson", "psycopg", "sqlalchemy", "pydantic")
MIN_WIDTH = 160


def show(outcomes: Sequence[Outcome]) -> None:
    """Print a table for each entry, with its goals, failures and doubts below."""
    console = wide_console()
    for outcome in outcomes:
        entry = outcome.entry
        floor = f", beside {entry.floor}" if entry.floor else ""
        console.print(f"[bold]{entry.name}[/]: {entry.measures}{floor}", highlight=False)
        console.print(_table(outcome))
        for goal in outcome.entry.goals:
            reached = outcome.reached(goal)
            colour = "green" if goal.is_met(reached.median) else "red"
            console.print(f"[{colour}]{_spread(reached)}[/], goal: {goal}")
        for failure in outcome.failures:
            console.print(f"[red]wrong answers:[/] {failure}")
        for doubt in outcome.doubts:
            console.print(f"[yellow]doubt:[/] {doubt}")
        console.print()


def _table(outcome: Outcome) -> Table:
    figures = next(iter(outcome.readings.values()))[0].figures
    table = new_table("side", *figures)
    for side in outcome.readings:
        table.add_row(side, *(_spread(Spread.of(outcome.values(side, figure))) for figure in figures))
    return table


def wide_console() -> Console:
    """Return a console for tables. A pipe or a narrow terminal would cut figures; wrapped lines are better."""
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    return console


def new_table(first: str, *headings: str) -> Table:
    """Return a table without rows, whose figures are on the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _spread(spread: Spread) -> str:
    """Return the median and the range, with two decimals below ten, and none from a hundred on."""
    digits = 2 if spread.median < 10 else 1 if spread.median < 100 else 0
    return f"{spread.median:,.{digits}f} ({spread.low:,.{digits}f}–{spread.high:,.{digits}f})"


def environment(postgres: Postgres) -> dict[str, object]:
    """Return the machine and the versions of the measurement."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg(),
        "postgres": postgres.settings(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def write(results: dict[str, object], file: Path) -> None:
    """Write results as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n")


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return the goals of an entry, and every reading."""
    goals = {str(goal): asdict(outcome.reached(goal)) for goal in outcome.entry.goals}
    readings = {side: [asdict(reading) for reading in readings] for side, readings in outcome.readings.items()}
    return {"name": outcome.entry.name, "measures": outcome.entry.measures, "goals": goals, "readings": readings}
