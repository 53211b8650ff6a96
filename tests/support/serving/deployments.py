"""The processes of the files under `deploy/`, started together with the commands and environments of the files.

The processes run on this machine: each port of a file becomes a free port here, one for each network that has the port.
A machine, a container and a pod each have a network. The database is the one of the test.
"""

import re
import shlex
import signal
from collections.abc import Iterable, Iterator, Mapping
from configparser import RawConfigParser
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from support.receivers.receivers import wait_until
from support.serving import forking
from support.serving.servers import free_port
from support.serving.serving import environment
from support.world.world import SECRET

DEPLOY = Path(__file__).parents[3] / "deploy"
MACHINE = "127.0.0.1"
_ADDRESS = "BOOKING_METRICS_ADDRESS"
_STOP_S = 40
"""The files give a process so much time to stop."""
_MAIL = {"BOOKING_SMTP_URL": "smtp://mail.invalid"}
_ENVIRONMENT_FILE = {
    "BOOKING_SECRET_KEY": SECRET,
    **_MAIL,
    "BOOKING_TRUSTED_PROXIES": "127.0.0.1/32",
    _ADDRESS: "127.0.0.1:9464",
}
"""The settings of an operator. All units get the same file; it has an address that only one process can have."""


@dataclass(frozen=True)
class Process:
    """A command of `booking` in a file, with its environment and its network."""

    name: str
    words: list[str]
    environment: dict[str, str]
    network: str
    has_fixed_address: bool = False
    is_job: bool = False


@dataclass(frozen=True)
class Endpoint:
    """An address that a file expects to be served, and the status of its answer."""

    network: str
    port: int
    path: str
    status: int = 200


@dataclass
class Ports:
    """The ports on this machine, by network and port of a file."""

    local: dict[tuple[str, int], int] = field(default_factory=dict)

    def of(self, network: str, port: int) -> int:
        """Return the port on this machine."""
        network = MACHINE if network == "localhost" else network
        return self.local.setdefault((network, port), free_port())

    def moved(self, process: Process, url: str, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command and the environment of a process, as they are on this machine."""
        words = process.words[:]
        for place, option in enumerate(words[:-1]):
            if option in ("--port", "--health-port"):
                words[place + 1] = str(self.of(process.network, int(words[place + 1])))
            if option in ("--host", "--health-host"):
                words[place + 1] = MACHINE
        settings = process.environment | {"BOOKING_DATABASE_URL": url, "BOOKING_SHUTDOWN_DELAY": ""}
        if _ADDRESS in settings:
            port = int(settings[_ADDRESS].rpartition(":")[2])
            settings[_ADDRESS] = f"{MACHINE}:{self.of(process.network, port)}"
        if store := re.fullmatch(r"redis://(\w+):(\d+)", settings.get("BOOKING_RATE_LIMIT_STORE", "")):
            settings["BOOKING_RATE_LIMIT_STORE"] = f"redis://{MACHINE}:{self.of(store[1], int(store[2]))}"
        return words, environment(folder, **settings)


class Running:
    """The processes of a deployment that run."""

    def __init__(self, processes: Iterable[Process], url: str, folder: Path) -> None:
        self.processes = {process.name: process for process in processes}
        self.ports = Ports()
        self._url, self._folder = url, folder
        self._started: dict[str, forking.Process] = {}

    def run(self, process: Process, *words: str) -> str:
        """Run a command to its end with the environment of a process, and return its output."""
        changed = Process(process.name, list(words) or process.words, process.environment, process.network)
        moved, variables = self.ports.moved(changed, self._url, self._folder)
        result = forking.run(["booking", *moved], env=variables, cwd=self._folder, text=True)
        assert result.returncode == 0, f"{process.name}: {result}"
        return str(result.stdout)

    def start(self, *names: str) -> None:
        """Run the jobs among the processes to their end, start the others together, and wait until each is ready."""
        for name in names:
            if self.processes[name].is_job:
                self.run(self.processes[name])
        services = [self.processes[name] for name in names if not self.processes[name].is_job]
        for process in services:
            words, variables = self.ports.moved(process, self._url, self._folder)
            with self._log(process.name).open("wb") as log:
                self._started[process.name] = forking.start(
                    ["booking", *words], env=variables, cwd=self._folder, stdout=log, stderr=log
                )
        for process in services:
            wait_until(lambda process=process: self._is_ready(process), f"{process.name} is ready")  # type: ignore[misc]

    def _is_ready(self, process: Process) -> bool:
        log = self._log(process.name)
        assert self._started[process.name].poll() is None, f"{process.name} has ended: {log.read_text()}"
        options = dict(zip(process.words, process.words[1:], strict=False))
        port = int(options.get("--port") or options["--health-port"])
        with suppress(httpx.TransportError):
            return self.ask(Endpoint(process.network, port, "/readyz")).is_success
        return False

    def ask(self, endpoint: Endpoint) -> httpx.Response:
        """Return the answer of an endpoint."""
        return httpx.get(f"http://{MACHINE}:{self.ports.of(endpoint.network, endpoint.port)}{endpoint.path}")

    def stop(self, *names: str) -> None:
        """Ask processes to end, all of them by default, and wait for it."""
        stopping = {name: self._started.pop(name) for name in names or tuple(self._started)}
        for process in stopping.values():
            process.send_signal(signal.SIGTERM)
        for name, process in stopping.items():
            assert process.wait(timeout=_STOP_S) in (0, -signal.SIGTERM), self._log(name).read_text()

    def restart(self, name: str) -> None:
        """Replace a process by a new one."""
        if name in self._started:
            self.stop(name)
        self.start(name)

    def kill(self) -> None:
        """End all processes at once."""
        for process in self._started.values():
            process.kill()
            process.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name.replace('/', '-')}.log"


@contextmanager
def running(processes: Iterable[Process], url: str, folder: Path) -> Iterator[Running]:
    """Yield a deployment whose processes are not started yet, and end them with the block."""
    deployment = Running(processes, url, folder)
    try:
        yield deployment
    finally:
        deployment.kill()


# The files -----------------------------------------------------------------------------------------------------------


def systemd(*names: str) -> list[Process]:
    """Return the processes of units such as `booking@8000`."""
    return [_unit(name) for name in names]


def _unit(name: str) -> Process:
    template, at, instance = name.partition("@")
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / f"{template}{at}.service")
    assert unit["Service"]["EnvironmentFile"] == "/etc/booking/environment"
    words = shlex.split(unit["Service"]["ExecStart"].replace("%i", instance))
    program = next(place for place, word in enumerate(words) if word.endswith("/booking"))
    assignments = dict(word.split("=", 1) for word in words[1:program])
    return Process(name, words[program + 1 :], _ENVIRONMENT_FILE | assignments, MACHINE)


def compose_file() -> dict[str, Any]:
    """Return the Compose file."""
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


def compose() -> list[Process]:
    """Return the services of the Compose file that run the image of `booking`, each in a separate network."""
    services = compose_file()["services"]
    return [_service(name, services[name]) for name in services if services[name]["image"] == "booking"]


def _service(name: str, service: Mapping[str, Any]) -> Process:
    variables = {key: _interpolated(value) for key, value in service["environment"].items()}
    address = service.get("networks", {}).get("default", {}).get("ipv4_address")
    return Process(name, service["command"], variables, name, bool(address), service["restart"] == "no")


def _interpolated(text: str) -> str:
    """Return a value of the Compose file with the variables that its first lines export."""
    exported = {"BOOKING_SECRET_KEY": SECRET, "POSTGRES_PASSWORD": "secret", **_MAIL}
    return re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda match: exported.get(match[1], match[2]), text)


def manifests() -> list[dict[str, Any]]:
    """Return the manifests for Kubernetes."""
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [manifest for file in files for manifest in yaml.safe_load_all(file.read_text())]


def kubernetes() -> list[Process]:
    """Return the containers of all pods; the containers of a pod share one."""
    return [
        process
        for manifest in manifests()
        if manifest["kind"] == "Deployment"
        for number in range(manifest["spec"]["replicas"])
        for process in _pod(f"{manifest['metadata']['name']}-{number}", manifest["spec"]["template"]["spec"])
    ]


def _pod(name: str, pod: Mapping[str, Any]) -> Iterator[Process]:
    (config,) = [manifest["data"] for manifest in manifests() if manifest["kind"] == "ConfigMap"]
    secret = {"BOOKING_SECRET_KEY": SECRET, "BOOKING_RATE_LIMIT_STORE": "redis://limits:6379", **_MAIL}
    for container in pod["initContainers"]:
        yield Process(f"{name}/{container['name']}", container["args"], config | secret, name, is_job=True)
    for container in pod["containers"]:
        yield Process(f"{name}/{container['name']}", container["args"], config | secret, name)


# The addresses that other files expect --------------------------------------------------------------------------------


def upstreams(file: str) -> list[Endpoint]:
    """Return the API processes that a proxy sends requests to."""
    text = (DEPLOY / "proxies" / file).read_text()
    lines = re.findall(r"^\s*(?:server|reverse_proxy) (.+?)(?: max_fails.*| \{)$", text, re.MULTILINE)
    # Only the API asks for a key.
    return [_endpoint(address, "/api/v1/me", 401) for line in lines for address in line.split()]


def scraped(file: str) -> list[Endpoint]:
    """Return the addresses that Prometheus reads metrics from."""
    config = yaml.safe_load((DEPLOY / "prometheus" / file).read_text())
    targets = [
        target for job in config["scrape_configs"] for group in job["static_configs"] for target in group["targets"]
    ]
    return [_endpoint(target, "/metrics") for target in targets]


def _endpoint(address: str, path: str, status: int = 200) -> Endpoint:
    network, _, port = address.partition(":")
    return Endpoint(network, int(port), path, status)


def health_checks() -> list[Endpoint]:
    """Return the address of the image's check in the container of each service."""
    dockerfile = (DEPLOY.parent / "Dockerfile").read_text()
    (check,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", dockerfile)
    return [Endpoint(service.network, int(check[0]), check[1]) for service in compose() if not service.is_job]


def probes() -> Iterator[Endpoint]:
    """Yield the probes of each pod, and the metrics of the pods that declare their port."""
    for manifest in manifests():
        if manifest["kind"] != "Deployment":
            continue
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        gets = [container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        gets += [{"path": "/metrics", "port": name} for name in ports if name == "metrics"]
        for number in range(manifest["spec"]["replicas"]):
            for get in gets:
                yield Endpoint(f"{manifest['metadata']['name']}-{number}", ports[get["port"]], get["path"])
