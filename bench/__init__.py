"""Measures the service and its floors: minimal code for the same work.

`python -m bench` runs it; README.md explains the tables. The service imports nothing from here.
"""

import sys
from pathlib import Path

# The organizations of the bench are those of the tests.
sys.path.append(str(Path(__file__).parent.parent / "tests"))
