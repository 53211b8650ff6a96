"""`python -m booking_core.db.migrations "what changes"` writes the next revision from the difference between the tables
and a database that all revisions so far have made. Without an argument it writes the base revision again, from the
tables alone: for changes before the first release."""

import sys
import tempfile
from pathlib import Path

from booking_core.db import migrate


def main() -> None:
    if len(sys.argv) > 2:
        sys.exit('usage: python -m booking_core.db.migrations ["what changes"]')
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'scratch.db'}"
        if len(sys.argv) == 1:
            migrate.write_base(url)
            return
        migrate.upgrade(url)
        migrate.write_revision(url, sys.argv[1])


if __name__ == "__main__":
    main()
