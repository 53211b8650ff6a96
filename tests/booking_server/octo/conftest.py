"""Fixtures of the tests of OCTO."""

import pytest
from support.api.api import Api
from support.api.octo import Octo


@pytest.fixture
def octo(api: Api) -> Octo:
    return Octo(api)
