"""The text that Prometheus reads: the metrics of all processes of one `booking serve`, and of the installation.

Processes of one `booking serve` share a port, so that a scrape reaches any of them. That one asks the others through
Unix sockets in a folder that they have in common, and adds the label `process`, a number that a process keeps as long
as it lives and its successor takes over (decision 0038).
"""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

FOLDER = "BOOKING_PROCESSES_DIR"
"""The variable with the folder of the sockets, which `booking serve --workers N` sets for its processes."""
PROCESSES_MAX = 256
ANSWER_S = 2.0
"""Seconds in which another process answers."""
_SOCKET_BYTES_MAX = 16 * 2**20

Families = list[dict[str, Any]]
"""Families of metrics as JSON, to be sent from one process to another."""


def as_json(metrics: Iterable[Metric]) -> Families:
    """Return metrics as JSON, without the instants at which counters were created."""
    return [
        {
            "name": metric.name,
            "documentation": metric.documentation,
            "type": metric.type,
            "samples": [
                [sample.name, sample.labels, sample.value]
                for sample in metric.samples
                if not sample.name.endswith("_created")
            ],
        }
        for metric in metrics
    ]


class _Given(Collector):
    """A collector of metrics that are ready."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def merged(by_process: Mapping[str, Families]) -> Iterator[Metric]:
    """Return the metrics of all processes, each sample with the label of its process."""
    found: dict[str, Metric] = {}
    for process, families in by_process.items():
        for family in families:
            name = family["name"]
            if name not in found:
                found[name] = Metric(name, family["documentation"], family["type"])
            for sample, labels, value in family["samples"]:
                found[name].add_sample(sample, {**labels, "process": process}, value)
    yield from found.values()


def render(metrics: Iterable[Metric]) -> bytes:
    """Return metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Given(metrics))
    return generate_latest(registry)


class Processes:
    """The processes of one `booking serve`: this one, and those that share its port.

    Args:
        registry: the metrics of this process.
        folder: of the sockets; None for a process by itself.
    """

    def __init__(self, registry: CollectorRegistry, folder: Path | None) -> None:
        self._registry = registry
        self._folder = folder
        self.name = "0"

    async def families(self) -> dict[str, Families]:
        """Return the metrics of each process that answers in time."""
        found = {self.name: as_json(self._registry.collect())}
        others = (
            [path for path in sorted(self._folder.glob("*.sock")) if path.stem != self.name] if self._folder else []
        )
        for path, answer in zip(others, await asyncio.gather(*map(_ask, others)), strict=True):
            if answer is not None:
                found[path.stem] = answer
        return found

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Take a number, and answer other processes while the body runs."""
        if self._folder is None or sys.platform == "win32":
            yield
            return
        with _number(self._folder) as self.name:
            path = self._folder / f"{self.name}.sock"
            path.unlink(missing_ok=True)
            server = await asyncio.start_unix_server(self._answer, path)
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)
            try:
                yield
            finally:
                server.close()
                path.unlink(missing_ok=True)

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(orjson.dumps(as_json(self._registry.collect())))
            await writer.drain()
            writer.close()


async def _ask(path: Path) -> Families | None:
    """Return the metrics of the process behind a socket; None without an answer."""
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=_SOCKET_BYTES_MAX)
            with contextlib.closing(writer):
                families: Families = orjson.loads(await reader.read())
                return families
    except (OSError, TimeoutError, ValueError):
        return None


@contextlib.contextmanager
def _number(folder: Path) -> Iterator[str]:
    """Hold the first number that no other process holds; it is free again when this process ends."""
    import fcntl

    for number in range(PROCESSES_MAX):
        descriptor = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield str(number)
        finally:
            os.close(descriptor)
        return
    raise OSError(f"more than {PROCESSES_MAX} processes share {folder}")


def processes_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of the processes of this `booking serve`, if there are several."""
    name = environment.get(FOLDER)
    return Path(name) if name else None


async def exposition(processes: Processes, installation: Sequence[Metric]) -> bytes:
    """Return the metrics of all processes and of the installation in Prometheus' text format."""
    return render([*merged(await processes.families()), *installation])
