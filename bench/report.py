"""The report of a run: tables at the end, and JSON with every sample."""

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

from bench.kinds import Costed, Curved, Kept, Outcome, Rated, typical
from bench.measure import Sample, Samples, Spread
from bench.postgres import Postgres
from bench.processes import ROOT

RESULTS = Path(__file__).parent / "results"
PACKAGES = "fastapi starlette uvicorn uvloop httptools orjson psycopg sqlalchemy pydantic httpx".split()
MIN_WIDTH = 190
RATES = ("requests/s", "p50 ms", "p99 ms", "server", "database", "client", "ratio", "aim")


def show(outcomes: Sequence[Outcome]) -> None:
    """Print a table for each kind, then the doubts and failures."""
    console = wide_console()
    if rated := [outcome for outcome in outcomes if isinstance(outcome, Rated)]:
        console.print(_rates(rated))
        console.print("server, database, client: CPU microseconds per request, user and system, whole process trees.\n")
    if costed := [outcome for outcome in outcomes if isinstance(outcome, Costed)]:
        console.print(_costs(costed))
    if kept := [outcome for outcome in outcomes if isinstance(outcome, Kept)]:
        console.print(_promises(kept))
    if curved := [outcome for outcome in outcomes if isinstance(outcome, Curved)]:
        console.print(_curves(curved))
    for outcome in outcomes:
        for failure in outcome.failures:
            console.print(f"[red]{outcome.entry.name} failed:[/] {failure}")
        for doubt in outcome.doubts:
            console.print(f"[yellow]{outcome.entry.name}:[/] {doubt}")


def wide_console() -> Console:
    """Return a console for tables. A pipe or a narrow terminal would cut figures; wrapped lines are better."""
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    return console


def new_table(title: str, first: str, *headings: str) -> Table:
    """Return a table without rows, whose figures are on the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _rates(outcomes: Sequence[Rated]) -> Table:
    table = new_table(
        "Under load, beside its floor: medians over the rounds, lowest–highest", "workload, sides", *RATES
    )
    for outcome in outcomes:
        verdict = _verdict(outcome)
        table.add_row(f"[bold]{outcome.entry.name}[/]", *[""] * (len(RATES) - 2), *verdict)
        for side, samples in outcome.samples.items():
            table.add_row(f"  {side}", *_figures(samples))
        table.add_section()
    return table


def _figures(samples: Sequence[Sample]) -> list[str]:
    return [
        _spread(Spread.of([sample.throughput for sample in samples]), ",.0f"),
        *(f"{value:.1f}" if (value := typical(samples, name)) else "" for name in ("p50_ms", "p99_ms")),
        *(f"{typical(samples, name):,.0f}" for name in ("server_us", "database_us", "client_us")),
    ]


def _costs(outcomes: Sequence[Costed]) -> Table:
    table = new_table(
        "What it costs, beside its floor: medians, lowest–highest", "cost, sides", "taken", "ratio", "limit"
    )
    for outcome in outcomes:
        table.add_row(f"[bold]{outcome.entry.name}[/]  {outcome.entry.measures}", "", *_verdict(outcome))
        floor = list(outcome.taken.values())[1]
        for side, taken in outcome.taken.items():
            share = Spread.of([a / b for a, b in zip(taken, floor, strict=True)]).median
            table.add_row(f"  {side}", f"{_spread(Spread.of(taken), ',.1f')} {outcome.entry.unit}", f"{share:.2f}", "")
        table.add_section()
    return table


def _promises(outcomes: Sequence[Kept]) -> Table:
    table = new_table("What is promised: medians over the rounds, lowest–highest", "promise, figures", "read", "limit")
    for outcome in outcomes:
        table.add_row(f"[bold]{outcome.entry.name}[/]  {outcome.entry.measures}", "", "")
        for figure in outcome.entry.figures:
            read = Spread.of(outcome.readings[figure.name])
            colour = "green" if figure.is_met(read.median) else "red"
            shown = f"{_spread(read, ',.1f')} {figure.unit}"
            table.add_row(f"  {figure.name}", f"[{colour}]{shown}[/]" if figure.goal else shown, figure.goal)
        table.add_section()
    return table


def _curves(outcomes: Sequence[Curved]) -> Table:
    headings = (*RATES[:6], "per CPU s", "ratio")
    table = new_table("As there is more: medians over the rounds, lowest–highest", "curve, levels, sides", *headings)
    for outcome in outcomes:
        entry = outcome.entry
        table.add_row(f"[bold]{entry.name}[/]  {entry.measures}, by {entry.by}", *[""] * len(headings))
        for level, sides in outcome.levels.items():
            ratio = outcome.ratio(level)
            for side, samples in sides.items():
                per_cpu_s = typical(samples, "per_cpu_s")
                shown = f"{per_cpu_s:,.0f}" if per_cpu_s else ""
                table.add_row(f"  {level:9,} {side}", *_figures(samples), shown, _spread(ratio, ".2f") if ratio else "")
                ratio = None
        table.add_section()
    return table


def coloured(text: str, *, is_met: bool) -> str:
    return f"[{'green' if is_met else 'red'}]{text}[/]"


def _spread(spread: Spread, form: str) -> str:
    return f"{spread.median:{form}} ({spread.low:{form}}–{spread.high:{form}})"


def _verdict(outcome: Rated | Costed) -> list[str]:
    return [coloured(_spread(outcome.ratio, ".2f"), is_met=bool(_is_met(outcome))), outcome.entry.goal]


def _is_met(outcome: Outcome) -> bool | None:
    """Return True if the outcome reached its goal; None for a curve, which has no goal."""
    match outcome:
        case Rated(entry=entry, ratio=ratio):
            return ratio.median >= entry.aim
        case Costed(entry=entry, ratio=ratio):
            return ratio.median <= entry.at_most
        case Kept(entry=entry, readings=readings):
            return all(figure.is_met(Spread.of(readings[figure.name]).median) for figure in entry.figures)
        case Curved():
            return None


def environment(postgres: Postgres) -> dict[str, object]:
    """Return the machine and the versions of the measurement."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "processor": _processor(),
        "load_average": os.getloadavg(),
        "postgres": postgres.settings(),
        "packages": {name: version(name) for name in PACKAGES},
        "client": "bench.load (asyncio, uvloop)",
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def write(found: dict[str, object], where: Path) -> None:
    """Write results as JSON."""
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps(found, indent=1) + "\n")


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return the goal of an entry, and every sample."""
    entry = outcome.entry
    return {
        "name": entry.name,
        "kind": type(entry).__name__.lower(),
        "measures": entry.measures,
        "goal": entry.goal,
        "is_met": _is_met(outcome),
        "failures": outcome.failures,
        "doubts": outcome.doubts,
        **_found(outcome),
    }


def _found(outcome: Outcome) -> dict[str, object]:
    match outcome:
        case Rated():
            return {"floor": outcome.entry.floor, "ratio": _ratio(outcome.ratio), "sides": _samples(outcome.samples)}
        case Costed():
            of_floor = {"floor": outcome.entry.floor, "ratio": _ratio(outcome.ratio)}
            return {**of_floor, "unit": outcome.entry.unit, "sides": outcome.taken}
        case Kept():
            return {
                "units": {figure.name: figure.unit for figure in outcome.entry.figures},
                "figures": outcome.readings,
            }
        case Curved():
            levels = {str(level): _samples(sides) for level, sides in outcome.levels.items()}
            ratios = {str(level): _ratio(outcome.ratio(level)) for level in outcome.levels}
            return {"by": outcome.entry.by, "levels": levels, "ratios": ratios}


def _ratio(ratio: Spread | None) -> dict[str, float] | None:
    return asdict(ratio) if ratio else None


def _samples(sides: Samples) -> dict[str, list[dict[str, object]]]:
    return {side: [asdict(sample) for sample in samples] for side, samples in sides.items()}
