"""The report of the bench names packages that are installed with it."""

from importlib.metadata import version

import pytest

from bench.report import PACKAGES, PEERS


@pytest.mark.parametrize("package", [*PACKAGES, *PEERS])
def test_a_package_of_the_report_is_installed(package: str) -> None:
    assert version(package)
