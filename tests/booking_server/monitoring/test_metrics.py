"""The metrics say what happened, cost a bounded number of series, and never a request its answer; alert rules and the
dashboard use metrics that exist, and each fault fires the alert that is meant for it.

`deploy/prometheus/alerts_test.yml` says which alert the metrics of each fault fire; the tests here and that of the mail
server below say that the faults have those metrics.
"""

import asyncio
import itertools
import json
import re
import subprocess
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from support.api.api import Api
from support.receivers.smtp import HANG, MailServer
from support.world.hooks import Hooks
from support.world.mails import Mails
from support.world.operations import Operations
from support.world.world import NEWER_SECRET, SECRET, FixedClock, World, make_world

from booking_core.base.clock import DAY, MINUTE, SECOND
from booking_core.base.errors import NotFound, Unavailable
from booking_core.base.settings import Settings
from booking_core.base.tokens import new_id
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.models.webhooks import AttemptError
from booking_core.notifications import Mailbox
from booking_core.upkeep import worker_heartbeats
from booking_server.adapters.smtp import SmtpMailer, SmtpServer
from booking_server.adapters.webhook_client import WebhookSender
from booking_server.app import create_app
from booking_server.cells.slots import CellsMonitor
from booking_server.monitoring.exposition import Processes, render
from booking_server.monitoring.metrics import COUNTED_ORGANIZATIONS_MAX, OTHERS, InstallationMetrics, Metrics
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.jobs.mail import MailJob
from booking_server.worker.process import Worker

TOKEN = "a-token-of-the-metrics"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    samples = chain.from_iterable(family.samples for family in text_string_to_metric_families(text))
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def installation(database: Database, **settings: Any) -> Samples:
    """Return the metrics of the installation as they are now."""
    options = Settings(database_url=database.url.render_as_string(hide_password=False), secret_key=SECRET, **settings)
    with closing(InstallationMetrics(options, database)) as read:
        return parsed(render(read.read()).decode())


# A process ---------------------------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_requests_batches_and_sales_are_counted(fresh_database_url: str, database: Database, world: World) -> None:
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET, metrics_token=TOKEN)
    with TestClient(create_app(settings, database=database)) as client:
        api = Api(client, world)
        departure = world.departure(world.experience())
        booking = api.book(departure, count=3, key="a-key-of-this-test").json()
        assert api.book(departure, count=3, key="a-key-of-this-test").status_code == 201  # the stored answer
        assert api.book(departure, count=99).status_code == 409
        api.cancel(booking["id"])
        client.get("/nowhere")
        me = api.get("/me").json()
        samples = parsed(client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).text)
    slug = me["organization"]["slug"]
    labels = {"process": "0"}
    assert value(samples, "booking_http_requests_total", operation="create_booking", status="201", **labels) == 2
    assert value(samples, "booking_http_requests_total", operation="create_booking", status="409", **labels) == 1
    assert value(samples, "booking_http_requests_total", operation="(unrouted)", status="404", **labels) == 1
    assert value(samples, "booking_http_request_duration_seconds_count", operation="create_booking", **labels) == 3
    assert value(samples, "booking_lane_batch_size_count", lane="book", **labels) == 3
    assert value(samples, "booking_lane_waiting", lane="book", **labels) == 0
    pool, size = ("writers", 1) if database.is_sqlite else ("bookings", 2)
    assert value(samples, "booking_pool_size", pool=pool, **labels) == size
    for name, amount in (("bookings_created", 1), ("seats_sold", 3), ("bookings_cancelled", 1)):
        assert value(samples, f"booking_{name}_total", organization=slug, **labels) == amount
    assert value(samples, "booking_database_up") == 1


@pytest.mark.one_database
def test_metrics_beside_the_api_need_a_token_and_are_absent_without_one(fresh_database_url: str) -> None:
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET, metrics_token=TOKEN)
    with TestClient(create_app(settings)) as client:
        wrong = client.get("/metrics", headers={"authorization": "Bearer another-token-of-it"})
        assert (wrong.status_code, client.get("/metrics").status_code) == (401, 401)
    with TestClient(create_app(Settings(database_url=fresh_database_url, secret_key=SECRET))) as client:
        assert client.get("/metrics").json()["code"] == "not_found"


@pytest.mark.one_database
def test_batches_are_counted_by_size_and_by_their_first_jobs_wait(database: Database) -> None:
    metrics, lane = Metrics(database), SimpleNamespace(name="book", waiting_jobs=0, busy_threads=0, threads=1)
    metrics.observe_executors([cast(Any, lane)], lambda: 0)
    for size, waited_s in ((1, 0.0005), (2, 0.001), (3, 0.3), (40, 11.0)):
        lane.observe(size, waited_s)
    samples = parsed(render(metrics.registry.collect()).decode())
    sizes = {bound: value(samples, "booking_lane_batch_size_bucket", lane="book", le=bound) for bound in ("1.0", "4.0")}
    assert sizes == {"1.0": 1, "4.0": 3}
    assert value(samples, "booking_lane_batch_size_bucket", lane="book", le="+Inf") == 4
    assert value(samples, "booking_lane_batch_size_sum", lane="book") == 46
    waits = {
        bound: value(samples, "booking_lane_wait_seconds_bucket", lane="book", le=bound) for bound in ("0.001", "0.5")
    }
    assert waits == {"0.001": 2, "0.5": 3}
    assert value(samples, "booking_lane_wait_seconds_sum", lane="book") == pytest.approx(11.3015)


@pytest.mark.one_database
def test_refusals_are_counted_by_their_reason(database: Database) -> None:
    reasons = {
        "queue": Unavailable(reason="queue"),
        "fault": Unavailable(for_all=True, fault="disk full"),
        "locked": Unavailable(is_locked=True),
        "database": Unavailable(for_all=True),
        "busy": Unavailable(),
    }
    assert [error.reason for error in reasons.values()] == list(reasons)
    metrics = Metrics(database)
    metrics.observe_refusal("queue")
    samples = parsed(render(metrics.registry.collect()).decode())
    assert value(samples, "booking_http_unavailable_total", reason="queue") == 1


@pytest.mark.one_database
def test_what_is_rolled_back_or_refused_is_not_counted(database: Database) -> None:
    def refused(tx: Tx) -> None:
        tx.tally("bookings", "refused")
        raise NotFound

    def work(tx: Tx) -> None:
        tx.now()  # PostgreSQL begins its transaction with the first statement
        tx.tally("bookings", "fjord-tours")
        with pytest.raises(NotFound):
            tx.in_savepoint(refused)

    metrics = Metrics(database)
    database.write(work)
    with pytest.raises(NotFound):
        database.write(refused)
    database.dry_run(lambda tx: tx.tally("bookings", "rehearsed"))
    assert bookings_by_organization(metrics) == {"fjord-tours": 1}


def test_organizations_beyond_the_bound_are_counted_together(database: Database) -> None:
    metrics, slugs = Metrics(database), [f"organization-{number}" for number in range(COUNTED_ORGANIZATIONS_MAX)]
    for slug in (*slugs, "two more", "of them", slugs[-1]):
        metrics.observe_sale("bookings", slug, 1)
    counts = bookings_by_organization(metrics)
    assert counts == dict.fromkeys(slugs, 1) | {slugs[-1]: 2, OTHERS: 2}


class Interrupted(str):
    """A name during whose look-ups other threads count sales of other organizations."""

    interrupt: Callable[[], None]

    def __hash__(self) -> int:
        self.interrupt()
        return super().__hash__()


def test_the_organizations_counted_apart_are_bounded_in_several_threads(database: Database) -> None:
    metrics, others = Metrics(database), itertools.count(1)
    for number in range(COUNTED_ORGANIZATIONS_MAX - 1):
        metrics.observe_sale("bookings", f"organization-{number}", 1)
    slug = Interrupted("fjord-tours")
    slug.interrupt = lambda: metrics.observe_sale("bookings", f"other-{next(others)}", 1)
    metrics.observe_sale("bookings", slug, 1)
    assert len(bookings_by_organization(metrics)) == COUNTED_ORGANIZATIONS_MAX + 1  # with the others together


def bookings_by_organization(metrics: Metrics) -> dict[str, float]:
    samples = parsed(render(metrics.registry.collect()).decode())
    return {
        dict(labels)["organization"]: count
        for (name, labels), count in samples.items()
        if name == "booking_bookings_created_total"
    }


# Several processes -------------------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_the_process_that_is_asked_answers_for_all(database: Database, tmp_path: Path) -> None:
    async def ask() -> bytes:
        one, other = (Processes(Metrics(database).registry, tmp_path) for _ in range(2))
        async with one.answering():
            async with other.answering():
                assert (one.name, other.name) == ("0", "1")
                both = await one.exposition([])
            successor = Processes(Metrics(database).registry, tmp_path)
            async with successor.answering():
                assert successor.name == "1"
        return both

    samples = parsed(asyncio.run(ask()).decode())
    assert {dict(labels)["process"] for name, labels in samples if name == "booking_pool_size"} == {"0", "1"}


@pytest.mark.one_database
def test_a_process_that_is_gone_is_left_out(database: Database, tmp_path: Path) -> None:
    (tmp_path / "7.sock").touch()
    samples = parsed(asyncio.run(Processes(Metrics(database).registry, tmp_path).exposition([])).decode())
    assert {dict(labels)["process"] for name, labels in samples if name == "booking_pool_size"} == {"0"}


# The installation --------------------------------------------------------------------------------------------------


def test_due_deliveries_and_their_age_are_read(world: World, database: Database, clock: FixedClock) -> None:
    hooks = Hooks(world)
    hooks.endpoint()
    hooks.publish(times=3)
    clock.at += 10 * MINUTE
    samples = installation(database)
    assert value(samples, "booking_backlog_due", kind="event") == 3
    assert value(samples, "booking_backlog_age_seconds", kind="event") == 600
    hooks.fail(*hooks.claim())
    clock.at += 2 * MINUTE
    samples = installation(database)
    assert value(samples, "booking_backlog_due", kind="delivery") > 0
    assert value(samples, "booking_endpoints", status="enabled") == 1
    assert value(samples, "booking_endpoints_failing", status="enabled") == 1


@pytest.mark.parametrize(
    ("options", "error", "kind"),
    [
        ({"max_per_second": 1}, AttemptError.HTTP_STATUS, "limited_delivery"),
        ({}, AttemptError.TIMEOUT, "slow_delivery"),
    ],
    ids=["with a limit", "that times out"],
)
def test_a_delivery_for_a_limited_or_slow_endpoint_has_its_own_kind(
    world: World, database: Database, clock: FixedClock, options: dict[str, Any], error: AttemptError, kind: str
) -> None:
    hooks = Hooks(world)
    hooks.endpoint(**options)
    hooks.publish()
    hooks.fail(*hooks.claim(), error=error)
    hooks.publish(times=3)
    clock.at += 10 * MINUTE
    samples = installation(database)
    due = {name: value(samples, "booking_backlog_due", kind=name) for name in ("event", "delivery", kind)}
    assert due == {"event": 0, "delivery": 0, kind: 4}
    assert value(samples, "booking_backlog_age_seconds", kind=kind) == 600


def test_unchecked_payments_and_unannounced_departures_are_counted_with_their_age(
    world: World, database: Database, clock: FixedClock
) -> None:
    experience = world.experience()
    columns = {"amount_minor": 500, "currency": "NOK", "created_at": clock.at, "updated_at": clock.at}
    for check_at in (None, clock.at, clock.at + 60 * MINUTE):
        world.insert(tables.payment_intents, booking_id=new_id(), status="open", check_at=check_at, **columns)
    for days, announce_at in enumerate((None, clock.at, clock.at + MINUTE, clock.at + 60 * MINUTE), start=1):
        world.departure(experience, starts_at=clock.at + days * DAY, announce_at=announce_at)
    clock.at += 10 * MINUTE
    samples = installation(database)
    for kind, rows in (("payment_check", 1), ("departure_update", 2)):
        assert value(samples, "booking_backlog_due", kind=kind) == rows
        assert value(samples, "booking_backlog_age_seconds", kind=kind) == 600


def test_sandboxes_are_counted(world: World, database: Database, clock: FixedClock) -> None:
    assert value(installation(database), "booking_sandboxes") == 0
    make_world(database, clock, clock_offset=0)
    make_world(database, clock, clock_offset=MINUTE)
    assert value(installation(database), "booking_sandboxes") == 2


def test_workers_are_counted_while_they_are_alive(database: Database, clock: FixedClock) -> None:
    assert value(installation(database), "booking_workers_running") == 0
    database.write(lambda tx: worker_heartbeats.beat(tx, new_id()))
    assert value(installation(database), "booking_workers_running") == 1
    clock.at += 60 * SECOND
    assert value(installation(database), "booking_workers_running") == 0


def test_secret_keys_that_open_nothing_are_reported(world: World, database: Database) -> None:
    Operations(world).issue(500)
    assert value(installation(database), "booking_secret_keys_valid") == 1
    url = database.url.render_as_string(hide_password=False)
    with closing(InstallationMetrics(Settings(database_url=url, secret_key=NEWER_SECRET), database)) as read:
        assert value(parsed(render(read.read()).decode()), "booking_secret_keys_valid") == 0


@pytest.mark.one_database
def test_without_a_database_the_process_is_still_measured(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise OSError("away")

    monkeypatch.setattr(database.driver, "connect", connect)
    with closing(InstallationMetrics(Settings(secret_key=SECRET), database)) as read:
        families = asyncio.run(read.families())
    assert [(family.name, family.samples[0].value) for family in families] == [("booking_database_up", 0)]


# Alerts --------------------------------------------------------------------------------------------------------------


DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "booking.json"
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "operators" / "watching.md"
RUNBOOK = Path(__file__).parents[3] / "docs" / "operations" / "alerts.md"
METRIC = re.compile(r"\b((?:booking|process)_[a-z0-9_]+)\b")


def exported(world: World) -> set[str]:
    """Return the names of all metrics of a process with a worker, as they are served."""
    settings = Settings(database_url=world.database.url.render_as_string(hide_password=False), secret_key=SECRET)
    metrics = Metrics(world.database)
    metrics.observe_executors([], lambda: 0)
    jobs = periodic_jobs(settings, world.database, world.installation)
    metrics.worker = Worker(settings, world.database, world.installation, WebhookSender(settings), jobs)
    with closing(InstallationMetrics(settings, world.database)) as installation:
        text = render([*metrics.registry.collect(), *installation.read()]).decode()
    text += asyncio.run(CellsMonitor(settings, []).exposition()).decode()
    families = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
    parts = ("bucket", "sum", "count")
    histograms = {f"{name}_{part}" for name, kind in families.items() if kind == "histogram" for part in parts}
    return {*families, *histograms}


def test_rules_dashboard_and_guide_name_metrics_that_exist(world: World) -> None:
    expressions = re.sub(r'"[^"]*"', "", "\n".join(re.findall(r"expr:((?:.*\n(?: {10}.+\n)*))", RULES.read_text())))
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = re.sub(
        r'"[^"]*"', "", "\n".join(target["expr"] for panel in panels for target in panel.get("targets", ()))
    )
    metrics = exported(world)
    for text in (expressions, queries, GUIDE.read_text()):
        names = set(METRIC.findall(text))
        assert len(names) > 5
        assert names - metrics == set()


def test_the_guide_explains_every_alert_and_every_metric(world: World) -> None:
    guide = GUIDE.read_text()
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    assert [alert for alert in alerts if f"`{alert}`" not in guide] == []
    names = {name for name in exported(world) if name.startswith("booking_")}
    families = {name for name in names if not name.endswith(("_bucket", "_sum", "_count"))}
    assert [name for name in sorted(families) if f"`{name}`" not in guide] == []


def test_the_runbook_has_a_section_for_each_alert_with_its_severity() -> None:
    rules = re.findall(r"alert: (\w+).*?severity: (\w+)", RULES.read_text(), re.DOTALL)
    assert len(rules) > 12
    assert re.findall(r"^## (\w+)\n\n\*(\w+)\.\*", RUNBOOK.read_text(), re.MULTILINE) == rules


@pytest.mark.component("promtool", package="prometheus")
def test_each_fault_fires_its_alert_and_no_other() -> None:
    configurations = [["check", "config", str(RULES.with_name(name))] for name in ("prometheus.yml", "compose.yml")]
    for words in (*configurations, ["test", "rules", str(RULES.with_name("alerts_test.yml"))]):
        result = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


async def send(job: MailJob) -> None:
    await job.run_turn(asyncio.Event())
    await job.close()


def test_a_mail_server_that_hangs_is_counted_as_delays(world: World) -> None:
    Mails(world).book()
    sender = Mailbox("Fjord Tours", "tours@example.com")
    with MailServer() as server:
        server.on_message = lambda _: HANG
        mailer = SmtpMailer(SmtpServer.of(server.url), sender.address, mail_s=0.05)
        job = MailJob(world.database, world.installation, mailer, sender)
        asyncio.run(send(job))
    assert set(job.results) == {"delayed"}
