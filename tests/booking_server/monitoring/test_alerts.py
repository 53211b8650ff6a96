"""Alert rules and the dashboard use metrics that exist, and each fault fires the alert that is meant for it.

`deploy/prometheus/alerts_test.yml` says which alert the metrics of each fault fire; `test_metrics.py` and the test of
the mail server below say that the faults have those metrics.
"""

import asyncio
import json
import re
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from support.receivers.smtp import HANG, MailServer
from support.world.mails import Mails
from support.world.world import SECRET, World

from booking_core.base.settings import Settings
from booking_core.notifications import Mailbox
from booking_server.adapters.smtp import SmtpMailer, SmtpServer
from booking_server.adapters.webhook_client import WebhookSender
from booking_server.cells.slots import CellsMonitor
from booking_server.monitoring.exposition import render
from booking_server.monitoring.metrics import InstallationMetrics, Metrics
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.jobs.mail import MailJob
from booking_server.worker.process import Worker

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
    found = exported(world)
    for text in (expressions, queries, GUIDE.read_text()):
        named = set(METRIC.findall(text))
        assert len(named) > 5
        assert named - found == set()


def test_the_guide_explains_every_alert_and_every_metric(world: World) -> None:
    guide = GUIDE.read_text()
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    assert [alert for alert in alerts if f"`{alert}`" not in guide] == []
    own = {name for name in exported(world) if name.startswith("booking_")}
    families = {name for name in own if not name.endswith(("_bucket", "_sum", "_count"))}
    assert [name for name in sorted(families) if f"`{name}`" not in guide] == []


def test_the_runbook_has_a_section_for_each_alert_with_its_severity() -> None:
    rules = re.findall(r"alert: (\w+).*?severity: (\w+)", RULES.read_text(), re.DOTALL)
    assert len(rules) > 12
    assert re.findall(r"^## (\w+)\n\n\*(\w+)\.\*", RUNBOOK.read_text(), re.MULTILINE) == rules


@pytest.mark.component("promtool", package="prometheus")
def test_each_fault_fires_its_alert_and_no_other() -> None:
    configurations = [["check", "config", str(RULES.with_name(name))] for name in ("prometheus.yml", "compose.yml")]
    for words in (*configurations, ["test", "rules", str(RULES.with_name("alerts_test.yml"))]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


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
