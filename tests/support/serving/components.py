"""Programs that no Python package brings: a browser, proxies, a pooler, Prometheus.

A test that needs one is skipped where it is missing, and fails in CI, which installs all of them.
"""

import os
import shutil
from typing import NoReturn

import pytest

PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
"""Debian keeps servers in folders that are not on the PATH of every user."""


def program(name: str, package: str) -> str:
    """Return the path of a program, or end the test with the Debian package that has it."""
    return shutil.which(name, path=PATH) or missing(f"{name} is not installed; it is in the Debian package {package}")


def missing(reason: str) -> NoReturn:
    """Skip the test, or let it fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
