"""Each query of the dashboard returns data, with the labels of its legend, from a Prometheus that scraped the service.

Prometheus reads two scrapes, a minute apart, that were written into its storage. No test waits for a scrape.
"""

import asyncio
import itertools
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.api.api import Api
from support.receivers.receivers import wait_until
from support.serving.servers import free_port
from support.world.world import SECRET, FixedClock, make_world

from booking_core.base.clock import SECOND, system_clock
from booking_core.base.settings import CellAddress, Settings
from booking_core.db.engine import Database
from booking_core.upkeep.cells import Cell
from booking_server.adapters.webhook_client import WebhookSender
from booking_server.app import create_app
from booking_server.cells.slots import CellsMonitor, Slot
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.process import Worker

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "booking.json"
TOKEN = "a token of sixteen"
_OF_PROMETHEUS = """\
up 0
ALERTS{alertname="BookingDown",alertstate="firing"} 1
"""
"""Samples that Prometheus adds to each scrape."""
_VARIABLES = {"$__rate_interval": "2m", '"$cell"': '".*"'}
_VARIABLE = re.compile("|".join(map(re.escape, _VARIABLES)))

pytestmark = pytest.mark.component("prometheus", "promtool", package="prometheus")


def panels() -> list[dict[str, Any]]:
    """Return the panels, without the titles of the rows between them."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in panels if panel["type"] != "row"]


def queries() -> list[tuple[str, str, str]]:
    """Return each query with the title of its panel and its legend."""
    targets = [(panel["title"], target) for panel in panels() for target in panel["targets"]]
    return [
        (title, _VARIABLE.sub(lambda match: _VARIABLES[match[0]], target["expr"]), target["legendFormat"])
        for title, target in targets
    ]


@pytest.fixture(scope="module")
def scrapes(new_database_url: Callable[[str], str]) -> list[str]:
    """Two scrapes of a process with a worker. Between them it sold, refused, retried and sent."""
    url = new_database_url("sqlite")
    settings = Settings(database_url=url, secret_key=SECRET, metrics_token=TOKEN, rate_limit=None)
    with closing(Database(url, clock=(clock := FixedClock(system_clock())))) as database:
        world = make_world(database, clock)
        app = create_app(settings, database=database)
        with TestClient(app, raise_server_exceptions=False) as client:
            api, metrics = Api(client, world), app.state.monitor.metrics
            jobs = periodic_jobs(settings, database, world.installation)
            metrics.worker = worker = Worker(settings, database, world.installation, WebhookSender(settings), jobs)
            texts = []
            for _ in range(2):
                _work(api, worker)
                for reason in ("queue", "locked"):
                    metrics.observe_refusal(reason)
                metrics.observe_stripe_webhook("done")
                texts.append(_scrape(client, settings))
    return texts


def _work(api: Api, worker: Worker) -> None:
    departure = api.world.departure(api.world.experience())
    booked = api.book(departure).json()
    assert api.post(f"/bookings/{booked['id']}/cancel", {}).status_code == 200
    assert api.get("/bookings/nothing").status_code == 404
    api.world.database.retries["40001"] += 1
    worker.queue.attempts["succeeded"] += 1
    for job in worker.jobs:
        job.results["sent"] += 1
        worker.turns.note(job.name)


def _scrape(client: TestClient, settings: Settings) -> str:
    """Return the metrics of the process, and the metrics of another process that could not open a cell."""
    response = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 200
    cells = replace(settings, cells=(CellAddress("c2"),))
    slots = [Slot(Cell(name, cells), None) for name in ("first", "c2")]  # type: ignore[arg-type]
    of_cells = asyncio.run(CellsMonitor(cells, slots).exposition()).decode()
    of_cell = "".join(line + "\n" for line in of_cells.splitlines() if line.startswith("booking_cell_open"))
    return response.text + of_cell + _OF_PROMETHEUS


def _at(scrape: str, at_s: int) -> Iterator[str]:
    """Yield the samples of a scrape with its instant and the labels of its target."""
    for line in scrape.splitlines():
        sample = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if sample and not line.startswith("#"):
            labels = ",".join(filter(None, [sample[2], 'job="booking"', 'instance="a"']))
            yield f"{sample[1]}{{{labels}}} {sample[3]} {at_s}\n"


@pytest.fixture(scope="module")
def ask(
    scrapes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """A Prometheus that has these scrapes; the function returns the series of a query."""
    folder, now = tmp_path_factory.mktemp("prometheus"), system_clock() // SECOND
    samples = [line for scrape, ago in zip(scrapes, (90, 30), strict=True) for line in _at(scrape, now - ago)]
    (folder / "samples").write_text("".join([*samples, "# EOF\n"]))
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples"), str(folder / "data")]
    subprocess.run(words, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 15s}\n")
    address = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    server = subprocess.Popen(
        ["prometheus", *options, f"--web.listen-address={address}", "--log.level=error"], stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: _answers(address), "Prometheus answers")
        yield lambda query: _answer(address, query, now)
    finally:
        server.kill()
        server.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready") as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def _answer(address: str, query: str, at_s: int) -> list[dict[str, Any]]:
    words = urllib.parse.urlencode({"query": query, "time": at_s})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{words}") as answer:
        document = json.load(answer)
    assert document["status"] == "success"
    series: list[dict[str, Any]] = document["data"]["result"]
    return series


def test_every_panel_has_data_and_the_labels_of_its_legend(ask: Callable[[str], list[dict[str, Any]]]) -> None:
    empty, unnamed = [], []
    for title, query, legend in queries():
        series = [line for line in ask(query) if line["value"][1] != "NaN"]
        if not series:
            empty.append(title)
        labels = set(re.findall(r"\{\{(\w+)\}\}", legend))
        if any(not labels <= set(line["metric"]) for line in series):
            unnamed.append(title)
    assert (empty, unnamed) == ([], [])


def test_names_and_units_of_metrics_are_as_prometheus_wants_them(scrapes: list[str]) -> None:
    lines = scrapes[-1].removesuffix(_OF_PROMETHEUS).splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("booking_cell_open"))
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_panels_overlap_nowhere_and_have_a_number_each() -> None:
    all_panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in all_panels}) == len(all_panels)
    squares = [square for panel in all_panels for square in _squares(**panel["gridPos"])]
    assert len(set(squares)) == len(squares)
    assert {x for x, _ in squares} == set(range(24)), "Grafana has 24 columns"


def _squares(x: int, y: int, w: int, h: int) -> Iterator[tuple[int, int]]:
    """Yield the squares of the grid that a panel covers."""
    yield from itertools.product(range(x, x + w), range(y, y + h))


def test_every_panel_has_a_description_and_failure_panels_explain_emptiness() -> None:
    assert [panel["title"] for panel in panels() if not panel["description"]] == []
    of_failures = [panel for panel in panels() if re.search(r"fail|503|run again|away", panel["title"].lower())]
    unsaid = [
        panel["title"]
        for panel in of_failures
        if not any("vector(0)" in target["expr"] for target in panel["targets"])
        and "noValue" not in panel["fieldConfig"]["defaults"]
    ]
    assert len(of_failures) > 4
    assert unsaid == []
