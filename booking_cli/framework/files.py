"""Files that somebody named: a name may be longer than the system takes, or lead through a file."""

from pathlib import Path


def is_there(path: Path) -> bool:
    """Return whether there is such a file; a path that cannot be one is not there."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
