"""What a run says: one table at the end, and the same with every sample as JSON."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench.measure import Sample, Samples, Spread, ratios
from bench.postgres import Postgres
from bench.processes import ROOT
from bench.workloads import Workload

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "orjson", "psycopg", "sqlalchemy", "pydantic")
MIN_WIDTH = 160
TITLE = "Each workload beside its floor: medians over the rounds, lowest–highest"
COLUMNS = ("requests/s", "p50 ms", "p99 ms", "server", "database", "client", "ratio", "aim")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One workload measured: the samples of its sides, ours first where the service took part."""

    workload: Workload
    samples: Samples
    failures: list[str]
    doubts: list[str]
    with_service: bool

    @property
    def ratio(self) -> Spread | None:
        """Ours to the floor; none when only floors ran."""
        if not self.with_service:
            return None
        ours, floor, *_ = self.samples.values()
        return ratios(ours, floor)


def show(outcomes: Sequence[Outcome]) -> None:
    """Print the table, then what a reader must know before believing it."""
    # A pipe or a narrow terminal would get cut figures; a wrapped line is the lesser evil.
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    console.print(_table(outcomes))
    console.print("server, database, client: CPU microseconds per request, user and system, whole process trees.")
    for outcome in outcomes:
        for failure in outcome.failures:
            console.print(f"[red]{outcome.workload.name} failed:[/] {failure}")
        for doubt in outcome.doubts:
            console.print(f"[yellow]{outcome.workload.name}:[/] {doubt}")


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title=TITLE, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("workload, sides", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(f"[bold]{outcome.workload.name}[/]", *[""] * (len(COLUMNS) - 2), *_verdict(outcome))
        for side, samples in outcome.samples.items():
            table.add_row(f"  {side}", *_figures(samples))
        table.add_section()
    return table


def _figures(samples: Sequence[Sample]) -> list[str]:
    rate = Spread.of([sample.throughput for sample in samples])
    return [
        f"{rate.median:,.0f} ({rate.low:,.0f}–{rate.high:,.0f})",
        *(f"{_median(samples, name):.1f}" for name in ("p50_ms", "p99_ms")),
        *(f"{_median(samples, name):,.0f}" for name in ("server_us", "database_us", "client_us")),
    ]


def _median(samples: Sequence[Sample], name: str) -> float:
    return Spread.of([getattr(sample, name) for sample in samples]).median


def _verdict(outcome: Outcome) -> list[str]:
    aim, ratio = outcome.workload.aim, outcome.ratio
    if ratio is None:
        return ["", f"≥ {aim:.1f}"]
    colour = "green" if ratio.median >= aim else "red"
    return [f"[{colour}]{ratio.median:.2f}[/] ({ratio.low:.2f}–{ratio.high:.2f})", f"≥ {aim:.1f}"]


def environment(postgres: Postgres) -> dict[str, object]:
    """The machine and the versions a figure belongs to."""
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


def write(outcomes: Sequence[Outcome], where: Path, about: dict[str, object]) -> None:
    """Write every sample as JSON."""
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps(about | {"workloads": [_as_json(outcome) for outcome in outcomes]}, indent=1) + "\n")


def _as_json(outcome: Outcome) -> dict[str, object]:
    workload, ratio = outcome.workload, outcome.ratio
    return {
        "name": workload.name,
        "measures": workload.measures,
        "floor": workload.floor,
        "aim": workload.aim,
        "ratio": asdict(ratio) if ratio else None,
        "aim_met": ratio.median >= workload.aim if ratio else None,
        "failures": outcome.failures,
        "doubts": outcome.doubts,
        "sides": {side: [asdict(sample) for sample in samples] for side, samples in outcome.samples.items()},
    }
