"""The sync half of the SDK is generated from the async half."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SDK = ROOT / "booking_sdk"

_spec = importlib.util.spec_from_file_location("unasync", ROOT / "scripts" / "unasync.py")
assert _spec is not None
assert _spec.loader is not None
unasync = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(unasync)


def relative(path: Path) -> str:
    return path.relative_to(SDK).as_posix()


@pytest.mark.parametrize("source", unasync.SOURCES, ids=relative)
def test_generated_module_is_up_to_date(source: Path) -> None:
    assert unasync.target_of(source).read_text(encoding="utf-8") == unasync.generate(source), "run `make sync-client`"


@pytest.mark.parametrize("source", unasync.SOURCES, ids=relative)
def test_generated_module_holds_nothing_async(source: Path) -> None:
    text = unasync.target_of(source).read_text(encoding="utf-8")
    assert "Do not edit." in text.splitlines()[0]
    code = text.split("\n", 1)[1]
    assert not re.search(r"\basync\b|\bawait\b|\basyncio\b|\bAsync[A-Z]", code)


def test_sync_package_holds_only_generated_modules_and_the_handwritten_ones() -> None:
    expected = {*unasync.HANDWRITTEN, *map(unasync.target_of, unasync.SOURCES)}
    assert set(unasync.SYNC.rglob("*.py")) == expected


def test_every_async_class_is_in_a_module_that_is_generated_from() -> None:
    """`_http` is the exception: its two classes differ in more than keywords."""
    modules = {path for path in SDK.rglob("*.py") if re.search(r"^class Async", path.read_text("utf-8"), re.MULTILINE)}
    assert modules - set(unasync.SOURCES) == {SDK / "_http.py"}


def test_handwritten_concurrency_modules_have_the_same_names() -> None:
    def public(path: Path) -> set[str]:
        return set(
            re.findall(r"^\s*(?:async )?(?:def|class) ([a-z]\w*|[A-Z]\w*)", path.read_text("utf-8"), re.MULTILINE)
        )

    assert public(SDK / "_concurrency.py") == public(unasync.SYNC / "_concurrency.py")
