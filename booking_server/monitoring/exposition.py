"""The text that Prometheus reads: the metrics of all processes of one `booking serve`, and of the installation.

Processes of one `booking serve` share a port, and a scrape reaches any of them. That one asks the others through Unix
sockets in a folder that they have in common, and adds the label `process`, a number that a process keeps as long as it
lives and its successor takes over (decision 0026).
"""

import asyncio
import contextlib
import itertools
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path

import orjson
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

FOLDER = "BOOKING_PROCESSES_DIR"
"""The variable with the folder of the sockets, which `booking serve --workers N` sets for its processes."""
ANSWER_S = 2.0
"""The seconds that another process has for its answer."""


class Families(Collector):
    """Reads families of metrics when they are collected."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._read()


def labelled(
    label: str, sources: Iterable[tuple[str, Iterable[Metric]]], *, shared: tuple[str, ...] = ()
) -> Iterator[Metric]:
    """Return each metric once, with the samples of all its sources, each with the label of its source.

    Args:
        sources: metrics by the value of the label.
        shared: beginnings of names of metrics that are the same in every source, and have no label.
    """
    families: dict[str, Metric] = {}
    for value, metrics in sources:
        for metric in metrics:
            if metric.name.startswith(shared):
                families.setdefault(metric.name, metric)
                continue
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.add_sample(sample.name, {**sample.labels, label: value}, sample.value)
    yield from families.values()


def render(metrics: Iterable[Metric]) -> bytes:
    """Return metrics in Prometheus' text format."""
    return generate_latest(Families(lambda: metrics))


class Processes:
    """The processes of one `booking serve`: this one, and those that share its port.

    Args:
        own: the metrics of this process.
        folder: of the sockets; None for a single process.
    """

    def __init__(self, collector: Collector, folder: Path | None) -> None:
        self._collector = collector
        self._folder = folder
        self.name = "0"

    async def exposition(self, installation: Iterable[Metric]) -> bytes:
        """Return the metrics of all processes that answer in time, and of the installation, as text."""
        sources = {self.name: self._collector.collect(), **await self._others()}
        return render([*labelled("process", sources.items()), *installation])

    async def _others(self) -> dict[str, Iterable[Metric]]:
        paths = [path for path in sorted(self._folder.glob("*.sock")) if path.stem != self.name] if self._folder else []
        answers = await asyncio.gather(*map(_ask, paths), return_exceptions=True)
        return {
            path.stem: _read(answer) for path, answer in zip(paths, answers, strict=True) if isinstance(answer, bytes)
        }

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
        families = [
            (family.name, family.documentation, family.type, [sample[:3] for sample in family.samples])
            for family in self._collector.collect()
        ]
        with contextlib.suppress(OSError):
            writer.write(orjson.dumps(families))
            await writer.drain()
            writer.close()


async def _ask(path: Path) -> bytes:
    """Return the answer of the process that listens on a socket."""
    async with asyncio.timeout(ANSWER_S):
        reader, writer = await asyncio.open_unix_connection(path)
        with contextlib.closing(writer):
            return await reader.read()


def _read(answer: bytes) -> Iterator[Metric]:
    """Return the metrics in the answer of another process."""
    for name, documentation, kind, samples in orjson.loads(answer or b"[]"):
        metric = Metric(name, documentation, kind)
        metric.samples = [Sample(*sample) for sample in samples]
        yield metric


@contextlib.contextmanager
def _number(folder: Path) -> Iterator[str]:
    """Hold the first number that no other process holds; it is free again when this process ends."""
    import fcntl

    for number in itertools.count():
        with (folder / f"{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield str(number)
            return


def processes_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of the processes of this `booking serve`, if there are several."""
    name = environment.get(FOLDER)
    return Path(name) if name else None
