"""An event loop whose time moves when the test says so."""

from collections.abc import Iterator

import pytest
from support.api.connections import SteppedLoop, stepped_loop


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    with stepped_loop() as loop:
        yield loop
