"""A PostgreSQL primary with a synchronous replica, from the wheel that all tests use."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg

from support.databases import databases, wheel
from support.serving.servers import free_port


@contextmanager
def running_cluster() -> Iterator["Cluster"]:
    """Start a primary and its replica, and end them with the block."""
    package = Path(str(wheel.load().__file__)).parent
    programs = min(package.glob("pginstall*/bin"))
    folder = Path(tempfile.mkdtemp(prefix="booking-cluster-"))
    folder.chmod(0o755)
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root; the wheel has created the user
        user = "pgserver"
        shutil.chown(folder, user)
    cluster = Cluster(programs, folder, user)
    try:
        cluster.build()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Cluster:
    """A primary with a synchronous replica, of the same PostgreSQL as all tests."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self._programs, self._folder, self._user = programs, folder, user
        self.ports = [free_port(), free_port()]
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, program: str, *arguments: str) -> None:
        subprocess.run([self._programs / program, *arguments], check=True, capture_output=True, user=self._user)

    def start(self, place: int) -> None:
        data, port = self._folder / str(place), self.ports[place]
        options = (
            f"port={port}\nlisten_addresses='127.0.0.1'\nunix_socket_directories=''\nfsync=off\nmax_connections=60\n"
            "wal_receiver_status_interval=1\n"
        )
        with (data / "postgresql.conf").open("a") as file:
            file.write(options)
        command = [self._programs / "postgres", "-D", data]
        self.processes.append(subprocess.Popen(command, user=self._user, stderr=subprocess.DEVNULL, process_group=0))
        self.wait(place)

    def wait(self, place: int) -> None:
        """Wait until the server accepts connections."""
        for _ in range(600):
            try:
                psycopg.connect(self.url(place), connect_timeout=2).close()
            except psycopg.OperationalError:
                threading.Event().wait(0.05)
            else:
                return
        raise AssertionError("the server does not start")

    def url(self, place: int, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.ports[place]}/{database}"

    def build(self) -> None:
        self.run("initdb", "-D", str(self._folder / "0"), "-U", "postgres", "-A", "trust", "--no-sync")
        self.start(0)
        primary = f"{self.url(0)}?application_name=replica"
        options = ("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
        self.run("pg_basebackup", "-D", str(self._folder / "1"), *options, "-d", primary)
        self.start(1)
        databases.run(self.url(0), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")

    def several(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.ports[0]},127.0.0.1:{self.ports[1]}/{database}"

    def promote(self) -> None:
        """Make the replica the primary, as the manager of a cluster does."""
        databases.run(self.url(1), "SELECT pg_promote()")

    def kill(self, place: int) -> None:
        for process in self._family(place):
            process.send_signal(signal.SIGKILL)

    def freeze(self, place: int) -> None:
        """Stop all processes of a server: the kernel still accepts connections, but nothing answers."""
        for process in self._family(place):
            process.suspend()

    def _family(self, place: int) -> list[psutil.Process]:
        leader = psutil.Process(self.processes[place].pid)
        return [leader, *leader.children(recursive=True)]

    def stop(self) -> None:
        for place, process in enumerate(self.processes):
            if process.poll() is None:
                self.kill(place)
            process.wait(timeout=60)
