"""The bench and the tests start PostgreSQL beside those of other users."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_lock_of_the_server_is_in_a_folder_of_its_user() -> None:
    script = (
        "from support.databases import wheel\n"
        "folder = wheel.load().PostgresServer.lock_path.parent\n"
        "print(folder.name, oct(folder.parent.stat().st_mode & 0o777), folder.parent)"
    )
    env = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    child = subprocess.run(
        [sys.executable, "-c", script], cwd=TESTS, env=env, check=True, capture_output=True, text=True
    )
    name, mode, parent = child.stdout.split()
    assert (name, mode) == ("python_PostgresServer", "0o700")
    assert not Path(parent).exists()
