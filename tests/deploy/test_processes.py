"""The processes of each file under `deploy/` run together, and the runbooks' commands work beside them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from support import pages
from support.databases import databases
from support.serving import deployments
from support.serving.deployments import Endpoint, Running

RUNBOOKS = [
    f"operations/{name}.md" for name in ("install", "sizing", "upgrade", "backup", "keys", "failover", "alerts")
]
UNITS = ("booking@8000", "booking@8001", "booking-worker")


@pytest.fixture
def url(new_database_url: Callable[[str], str], drop_database: Callable[[str], None]) -> Iterator[str]:
    """An empty database of PostgreSQL, without a schema."""
    url = new_database_url("postgresql")
    databases.run(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    yield url
    drop_database(url)


def run_runbooks(run: Mapping[str, Callable[[list[str]], None]], runbooks: Sequence[str] = RUNBOOKS) -> None:
    """Run the lines of these programs in blocks that run as printed, or that have another program than `booking`."""
    for page in runbooks:
        for block in pages.blocks(page):
            lines = [words for _, words in pages.lines_of(block) if words and words[0] in run]
            if not block.reason or any(words[0] != "booking" for words in lines):
                for program, *words in lines:
                    run[program](words)


def run_booking(deployment: Running, place: str, words: list[str]) -> None:
    """Run a command of `booking` where a process runs. A restoration waits until the processes are stopped."""
    stopped = [name for name, process in deployment.processes.items() if not process.is_job]
    if words[0] == "restore":
        deployment.stop()
    deployment.run(deployment.processes[place], *words)
    if words[0] == "restore":
        deployment.start(*stopped)


def answers(deployment: Running, endpoints: list[Endpoint]) -> dict[Endpoint, int]:
    return {endpoint: deployment.ask(endpoint).status_code for endpoint in endpoints}


def check(deployment: Running, endpoints: list[Endpoint]) -> None:
    assert endpoints
    assert answers(deployment, endpoints) == {endpoint: endpoint.status for endpoint in endpoints}


@pytest.mark.exhaustive(but="install")
@pytest.mark.parametrize("runbooks", [RUNBOOKS[:1], RUNBOOKS], ids=["install", "all"])
def test_the_units_of_systemd_run_together_while_the_runbooks_are_followed(
    url: str, tmp_path: Path, runbooks: list[str]
) -> None:
    with deployments.running(deployments.systemd(*UNITS), url, tmp_path) as machine:

        def run_systemctl(words: list[str]) -> None:
            action, *names = [word for word in words if word != "--now"]
            if action == "enable":
                assert tuple(names) == UNITS
                machine.start(*names)
            else:
                assert action == "restart"
                machine.restart(*names)

        run_runbooks({"systemctl": run_systemctl, "booking": partial(run_booking, machine, UNITS[0])}, runbooks)
        for file in ("upstream.conf", "Caddyfile"):
            check(machine, deployments.upstreams(file))
        check(machine, deployments.scraped("prometheus.yml"))


@pytest.mark.exhaustive
def test_the_services_of_compose_run_together_while_the_runbooks_are_followed(url: str, tmp_path: Path) -> None:
    with deployments.running(deployments.compose(), url, tmp_path) as machine:
        run_runbooks(
            {"docker": partial(run_compose, machine, tmp_path), "booking": partial(run_booking, machine, "api-1")}
        )
        check(machine, deployments.upstreams("upstream-compose.conf"))
        check(machine, deployments.scraped("compose.yml"))
        check(machine, deployments.health_checks())


def run_compose(machine: Running, folder: Path, words: list[str]) -> None:
    """Carry out a command of Compose."""
    assert words[:3] == ["compose", "-f", "deploy/compose.yaml"]
    action, *rest = words[3:]
    names = [word for word in rest if word in machine.processes]
    if action == "up" and not names:
        machine.start(*machine.processes)
    elif action == "up":
        machine.restart(*names)
    elif action == "exec":
        assert rest[:2] == [names[0], "booking"]
        machine.run(machine.processes[names[0]], *rest[2:])
    elif action == "run":
        process = machine.processes[names[0]]
        assert not process.has_fixed_address, f"{process.name} runs with this address already"
        mounted = dict.fromkeys(re.findall(r"--volume \S+:(\S+)", " ".join(rest)), folder / "mounted")
        for inside, outside in mounted.items():
            outside.mkdir()
            rest = [word.replace(inside, str(outside)) for word in rest]
        machine.run(process, *rest[rest.index(process.name) + 1 :])
    else:
        assert action == "build"


@pytest.mark.exhaustive
def test_the_pods_of_kubernetes_run_together_while_the_runbooks_are_followed(url: str, tmp_path: Path) -> None:
    with deployments.running(deployments.kubernetes(), url, tmp_path) as cluster:
        cluster.start(*cluster.processes)
        run_runbooks({"booking": partial(run_booking, cluster, "booking-api-0/api")})
        check(cluster, list(deployments.probes()))
