"""`python -m booking_core.db.migrations "what changes"` writes the next migration from the difference between the
tables and a database that all migrations so far have made."""

import sys
import tempfile
from pathlib import Path

from booking_core.db import migrate


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit('usage: python -m booking_core.db.migrations "what changes"')
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'scratch.db'}"
        migrate.upgrade(url)
        migrate.write_revision(url, sys.argv[1])


if __name__ == "__main__":
    main()
