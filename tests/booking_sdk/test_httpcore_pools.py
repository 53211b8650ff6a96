"""The SDK uses private parts of httpcore's pools. They are in one module, and the metadata allows the releases that
have them: with another release, the module would do nothing, silently."""

import re
from pathlib import Path

import httpcore
import httpx
import pytest

import booking_sdk

FOLDER = Path(str(booking_sdk.__file__)).parent
PARTS = {
    "_connections": "a connection that a cancelled call left behind is closed",
    "_requests": "a request that a cancelled call left behind frees its place",
    "_optional_thread_lock": "places are freed under the pool's lock",
    "_assign_requests_to_connections": "a request that waits gets the place that was freed",
    "_network_backend": "a blocking read ends at the deadline of its attempt",
}


@pytest.mark.parametrize(("part", "promise"), PARTS.items())
def test_httpcore_has_each_private_part_that_the_sdk_needs(part: str, promise: str) -> None:
    with httpx.Client() as client:
        pool = getattr(client._transport, "_pool", None)
    if not hasattr(pool, part):
        pytest.fail(f"httpcore {httpcore.__version__} has no {part}, by which {promise}: see _httpcore_pools.py")


def test_one_module_names_private_parts_of_a_pool() -> None:
    names = re.compile(rf"\bpool\.(?:{'|'.join(PARTS)})\b")
    users = [path.name for path in FOLDER.rglob("*.py") if re.search(names, path.read_text(encoding="utf-8"))]
    assert users == ["_httpcore_pools.py"]
