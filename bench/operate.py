"""Runs many `booking` commands in one process: `python -m bench.operate`, a JSON list of argument lists on stdin.

A shop needs three commands, and a run up to 64 shops; a Python start for each would take minutes. The command is found
by its entry point, as in a shell, so nothing internal is named here.
"""

import json
import sys
from importlib.metadata import entry_points


def main() -> None:
    """Run the commands in order; stop at the first failure."""
    (command,) = entry_points(group="console_scripts", name="booking")
    booking = command.load()
    for arguments in json.load(sys.stdin):
        sys.argv = ["booking", *arguments]
        try:
            code = booking()
        except SystemExit as end:
            code = end.code
        if code:
            sys.exit(f"booking {' '.join(arguments)}: exit {code}")


if __name__ == "__main__":
    main()
