"""JSON that stays in memory."""

import tracemalloc

import orjson

from booking_core.base.packed_json import packed_json


def test_packed_json_takes_no_more_memory_than_its_text() -> None:
    value = {"currency": "NOK", "amount_minor": 89000}
    tracemalloc.start()
    try:
        results = [packed_json(value) for _ in range(100)]
        assert tracemalloc.get_traced_memory()[0] < 20_000, "the buffers of a hundred results are 400 kB"
    finally:
        tracemalloc.stop()
    assert set(results) == {orjson.dumps(value)}
