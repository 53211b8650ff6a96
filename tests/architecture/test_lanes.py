"""tests/isolation/README.md lists every resource that organizations share, with tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = (ROOT / "tests/isolation/README.md").read_text()
EXECUTOR = re.compile(r'BatchExecutor\(\s*"([a-z-]+)"')
JOB = re.compile(r'(?:^    name = |SweepJob\(|super\(\).__init__\(\s+)"(\w+)"', re.MULTILINE)
TEST = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")
SHARED = re.compile(r"service\.database\.read\b")


def named(folder: str, pattern: re.Pattern[str]) -> set[str]:
    """Return the matches of a pattern in the modules of a folder."""
    return {name for path in (ROOT / folder).rglob("*.py") for name in pattern.findall(path.read_text())}


@pytest.mark.parametrize(
    ("kind", "folder", "pattern"),
    [("executor", "booking_server/execution", EXECUTOR), ("job", "booking_server/worker", JOB)],
)
def test_every_executor_and_job_has_a_line(kind: str, folder: str, pattern: re.Pattern[str]) -> None:
    listed = set(re.findall(rf"^\| {kind} `([a-z-]+)` \|", LIST, re.MULTILINE))
    assert named(folder, pattern) == listed


def test_every_test_of_the_list_exists() -> None:
    found = {path.name: "" for path in (ROOT / "tests").rglob("test_*.py")}
    for path in (ROOT / "tests").rglob("test_*.py"):
        found[path.name] += path.read_text()
    missing = [
        f"{file}::{name}"
        for file, name in TEST.findall(LIST)
        if file not in found or (name and f"def {name}(" not in found[file])
    ]
    assert not missing


def test_requests_read_in_lanes_that_are_fair_between_organizations() -> None:
    """They do not use the shared connections: a rush of one organization's requests would delay the others'."""
    packages = ("api", "guest_pages", "octo", "execution")
    modules = [path for each in packages for path in (ROOT / "booking_server" / each).rglob("*.py")]
    modules.append(ROOT / "booking_server/stripe_webhooks.py")
    assert [str(path) for path in modules if SHARED.search(path.read_text())] == []
