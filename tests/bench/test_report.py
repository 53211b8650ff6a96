"""The report of the bench names packages that are installed with it."""

from importlib.metadata import version

import pytest

from bench.report import PACKAGES


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_of_the_report_is_installed(package: str) -> None:
    assert version(package)
