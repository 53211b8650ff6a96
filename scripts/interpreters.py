"""Prints the newest installed Python interpreter of each minor version from 3.11 on.

It searches the PATH and pyenv's versions. `make test-pythons` runs it, with any Python.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 11)
_NAME = re.compile(r"python3(\.\d+)?")
_ASK = "import sys; print(*sys.version_info[:3]); sys.exit(sys.version_info.releaselevel != 'final')"


def candidates() -> Iterator[Path]:
    """Yield every file with the name of an interpreter."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    for folder in [*on_path, *sorted((pyenv / "versions").glob("*/bin"))]:
        if folder.is_dir() and folder != pyenv / "shims":  # a shim answers for one version, and refuses others
            yield from sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def version_of(path: Path) -> tuple[int, ...] | None:
    """Return the version that the interpreter reports; None if it does not run, or is not a final release."""
    try:
        answer = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(map(int, answer.split()))


def installed() -> list[Path]:
    """Return one interpreter for each minor version in order, the newest patch release of each."""
    best: dict[tuple[int, ...], tuple[tuple[int, ...], Path]] = {}
    for path in candidates():
        version = version_of(path)
        if version and version[:2] >= OLDEST and version > best.get(version[:2], ((), path))[0]:
            best[version[:2]] = version, path
    return [path for _, (_, path) in sorted(best.items())]


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in installed())
