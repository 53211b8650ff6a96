"""Installs a set of the locked packages, and the packages of this tree, into an environment.

    python3 scripts/install.py .venv run

A set is a dependency group of pyproject.toml, and its lock is in locks/. uv installs it: the program on the PATH,
otherwise the package that pip adds to the environment. If uv fails, pip installs the same. Every file is checked
against its hash.
"""

from __future__ import annotations  # an older Python reads as far as its refusal

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("webhook_verify", "booking_core", "booking_server", "booking_sdk", "booking_cli")


class Environment:
    """A virtual environment, made from the interpreter that runs this program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def create(self) -> None:
        """Create the environment if it does not exist, or if its interpreter was deleted.

        pip takes seconds, so it is added when it is needed.
        """
        if not self.python.exists():
            run(sys.executable, "-m", "venv", "--clear", "--without-pip", self.folder)

    def install(self, name: str) -> None:
        """Install a set with uv, or with pip."""
        arguments = ["--quiet", "--require-hashes", "-r", ROOT / "locks" / f"{name}.txt"]
        packages = ["--quiet", "--no-deps", "--no-build-isolation", *(f"-e{ROOT / package}" for package in PACKAGES)]
        if certificates := os.environ.get("PIP_CERT"):
            os.environ.setdefault("SSL_CERT_FILE", certificates)  # uv reads no setting of pip
        try:
            uv = shutil.which("uv") or self._add_uv()
            run(uv, "pip", "install", "--python", self.python, *arguments)
            run(uv, "pip", "install", "--python", self.python, *packages)
        except (OSError, subprocess.CalledProcessError):
            sys.stderr.write("uv failed, so pip installs the packages. With a working uv on the PATH it is faster.\n")
            self._pip_install(*arguments)
            self._pip_install(*packages)

    def _add_uv(self) -> Path:
        """Return the uv of the environment. pip adds it if it is not there."""
        uv = self.folder / "bin" / "uv"
        if not uv.exists():
            self._pip_install("--quiet", "--require-hashes", "-r", ROOT / "locks" / "uv.txt")
        return uv

    def _pip_install(self, *arguments: Any) -> None:
        if not (self.folder / "bin" / "pip").exists():
            run(self.python, "-m", "ensurepip", "--default-pip", stdout=subprocess.DEVNULL)
        run(self.python, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile", *arguments)


def run(*command: Any, stdout: int | None = None) -> None:
    """Run a program in the tree."""
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True, stdout=stdout)  # noqa: S603


def sets_in(name: str) -> Iterator[str]:
    """Yield a set, and the sets that it includes."""
    import tomllib

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    yield name
    for part in groups[name]:
        if isinstance(part, dict):
            yield from sets_in(part["include-group"])


def main() -> None:
    """Install a set, and mark it and the sets that it includes as installed."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python may run this line
        sys.exit("Python 3.11 or newer is needed; set PYTHON=python3.11")
    folder, name = Path(sys.argv[1]).absolute(), sys.argv[2]
    environment = Environment(folder)
    with Path(f"{folder}.lock").open("w") as lock:  # two runs of make share an environment
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment.create()
        environment.install(name)
        for included in sets_in(name):
            (folder / f".{included}").touch()


if __name__ == "__main__":
    main()
