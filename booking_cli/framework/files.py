"""Check files whose names the user typed."""

from pathlib import Path


def is_there(path: Path) -> bool:
    """Return whether a file exists; False for a path that is too long or leads through a file."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
