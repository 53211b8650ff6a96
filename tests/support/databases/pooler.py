"""PgBouncer between the service and PostgreSQL: from the PATH, or built by `make pgbouncer`."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from support.serving import components
from support.serving.servers import free_port

_BUILT = Path(__file__).parents[3] / "build" / "pgbouncer" / "pgbouncer"
_OLDEST = (1, 21)
_NOBODY = 65534


def _command() -> str:
    """Return a PgBouncer that keeps prepared statements."""
    for command in (shutil.which("pgbouncer"), _BUILT):
        if command and Path(command).exists() and _version(str(command)) >= _OLDEST:
            return str(command)
    return components.missing("PgBouncer 1.21 or newer is not installed, and was not built by `make pgbouncer`")


def _version(command: str) -> tuple[int, ...]:
    output = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)\.(\d+)", output)
    return tuple(map(int, match.groups())) if match else (0,)


@contextmanager
def pgbouncer(
    url: str, *, mode: str = "transaction", size: int = 3, prepared: int = 200, ignores_options: bool = False
) -> Iterator[str]:
    """Run a PgBouncer and yield the URL of the database through it.

    Args:
        mode: transaction or session.
        size: the number of its connections to the server.
        prepared: max_prepared_statements; with 0 it keeps none, as before version 1.21.
        ignores_options: PgBouncer ignores libpq's options, instead of refusing a connection with options.
    """
    target, port = make_url(url), free_port()
    folder = Path(tempfile.mkdtemp(prefix="booking-pgbouncer-"))
    folder.chmod(0o755)
    # PgBouncer refuses to run as root, and another user may not read the folder of the build.
    command = shutil.copy(_command(), folder / "pgbouncer")
    user, users = target.username or "postgres", folder / "users.txt"
    users.write_text(f'"{user}" ""')
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(
        _CONFIGURATION.format(
            host=target.query.get("host", target.host or "127.0.0.1"),
            port=target.port or 5432,
            login=f"user={user} password={target.password}" if target.password else f"user={user}",
            users=users,
            listen=port,
            mode=mode,
            size=size,
            prepared=prepared,
            ignored="options" if ignores_options else "extra_float_digits",
        )
    )
    process = subprocess.Popen(
        [command, configuration], stderr=subprocess.PIPE, user=_user(target) if os.geteuid() == 0 else None
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if b"process up" in line:
                break
        process.stderr.close()
        yield f"postgresql://{user}@127.0.0.1:{port}/{target.database}"
    finally:
        process.kill()  # a PgBouncer that is terminated waits for its clients
        process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def _user(target: URL) -> int:
    """Return the user for PgBouncer: the server's user, who may be the only one with access to its socket."""
    folder = str(target.query.get("host", ""))
    return Path(folder).stat().st_uid or _NOBODY if folder.startswith("/") else _NOBODY


_CONFIGURATION = """
[databases]
* = host={host} port={port} {login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
client_login_timeout = 10
max_prepared_statements = {prepared}
ignore_startup_parameters = {ignored}
verbose = 0
"""
