"""The tools of the tests: forked processes, the order of a run, ids of rows, and the pages that list them."""

import re
import signal
import subprocess
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
from support.api.api import Api
from support.ordering import SLOW, is_slow, slow_first
from support.serving import forking
from support.serving.serving import environment, ran
from support.world.world import World

# Forks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive(but="('orgs', 'list')")
@pytest.mark.parametrize("argv", [("--version",), ("nosuch",), ("db", "current", "-o", "json"), ("orgs", "list")])
def test_a_fork_writes_and_ends_as_a_new_interpreter_does(tmp_path: Path, argv: tuple[str, ...]) -> None:
    forked = forking.run(["booking", *argv], env=environment(tmp_path), cwd=tmp_path, text=True)
    begun = ran(tmp_path, *argv)
    assert (forked.returncode, forked.stdout, forked.stderr) == (begun.returncode, begun.stdout, begun.stderr)


def test_an_environment_that_changes_the_interpreter_gets_a_new_one(tmp_path: Path) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    settings = environment(tmp_path, PYTHONDEVMODE="1")
    with forking.start(["booking", "--version"], env=settings, **pipes) as started:
        assert isinstance(started, subprocess.Popen)
        assert started.communicate()[0].startswith(b"booking ")


def test_a_signal_to_a_fork_that_ended_unnoticed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with forking.start(["booking", "--version"], env=environment(tmp_path), **pipes) as started:
        assert started.wait(60) == 0
        monkeypatch.setattr(started, "poll", lambda: None)  # as between its end and the message about it
        started.send_signal(signal.SIGKILL)


# Order ---------------------------------------------------------------------------------------------------------------


ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Test:
    __test__ = False
    nodeid: str


def collected(*modules: tuple[str, int]) -> list[Test]:
    return [Test(f"{module}::test_{number}") for module, count in modules for number in range(count)]


COLLECTED = collected(
    ("tests/booking_core/base/test_clock.py", 40),
    ("tests/system/test_crash.py", 6),
    ("tests/contract/test_lists.py", 30),
    ("tests/system/test_rush.py", 4),
    ("tests/examples/test_channel_manager.py", 5),
)


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_each_share_begins_with_slow_tests_and_no_test_is_lost(shares: int) -> None:
    ordered = slow_first(COLLECTED, shares)
    assert sorted(ordered, key=lambda item: item.nodeid) == sorted(COLLECTED, key=lambda item: item.nodeid)
    start = 0
    for share in range(min(shares, 3)):  # there are three slow modules
        assert is_slow(ordered[start])
        start += (len(ordered) - start) // (shares - share)


def test_the_tests_of_a_slow_module_stay_together() -> None:
    ordered = slow_first(COLLECTED, 3)
    modules = [module for module, _ in groupby(ordered, key=lambda item: item.nodeid.partition("::")[0])]
    slow = [module for module in modules if is_slow(Test(module))]
    assert len(slow) == len(set(slow)) == 3


@pytest.mark.parametrize("path", SLOW)
def test_each_slow_module_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("row", [object(), (object(),), {"a": [lambda: 0]}], ids=["object", "in tuple", "in dict"])
def test_a_row_of_a_table_that_pytest_would_number_is_refused(pytestconfig: pytest.Config, row: object) -> None:
    with pytest.raises(pytest.UsageError, match="the rows of row need ids"):
        pytestconfig.hook.pytest_make_parametrize_id(config=pytestconfig, val=row, argname="row")


# The page of the helpers ---------------------------------------------------------------------------------------------


SUPPORT = Path(__file__).parents[1] / "support"
PAGE = (SUPPORT / "README.md").read_text(encoding="utf-8")


def test_the_page_lists_exactly_the_modules_of_the_folder() -> None:
    modules = {path.stem for path in SUPPORT.rglob("*.py")} - {"__init__"}
    first_cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"\w+", cell)} == modules


def test_the_example_runs(api: Api, world: World) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    (test,) = (value for name, value in names.items() if name.startswith("test_") and callable(value))
    test(api, world)


# The list of shared resources ----------------------------------------------------------------------------------------


LIST = (ROOT / "tests/isolation/README.md").read_text()
EXECUTOR = re.compile(r'BatchExecutor\(\s*"([a-z-]+)"')
JOB = re.compile(r'(?:^    name = |SweepJob\(|super\(\).__init__\(\s+)"(\w+)"', re.MULTILINE)
TEST = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")
SHARED = re.compile(r"service\.database\.read\b")


def matches_in(folder: str, pattern: re.Pattern[str]) -> set[str]:
    """Return the matches of a pattern in the modules of a folder."""
    return {name for path in (ROOT / folder).rglob("*.py") for name in pattern.findall(path.read_text())}


@pytest.mark.parametrize(
    ("kind", "folder", "pattern"),
    [("executor", "booking_server/execution", EXECUTOR), ("job", "booking_server/worker", JOB)],
)
def test_every_executor_and_job_has_a_line(kind: str, folder: str, pattern: re.Pattern[str]) -> None:
    listed = set(re.findall(rf"^\| {kind} `([a-z-]+)` \|", LIST, re.MULTILINE))
    assert matches_in(folder, pattern) == listed


def test_every_test_of_the_list_exists() -> None:
    texts = {path.name: "" for path in (ROOT / "tests").rglob("test_*.py")}
    for path in (ROOT / "tests").rglob("test_*.py"):
        texts[path.name] += path.read_text()
    missing = [
        f"{file}::{name}"
        for file, name in TEST.findall(LIST)
        if file not in texts or (name and f"def {name}(" not in texts[file])
    ]
    assert not missing


def test_requests_read_in_lanes_that_are_fair_between_organizations() -> None:
    """They do not use the shared connections: a rush of one organization's requests would delay the others'."""
    packages = ("api", "guest_pages", "octo", "execution")
    modules = [path for package in packages for path in (ROOT / "booking_server" / package).rglob("*.py")]
    modules.append(ROOT / "booking_server/stripe_webhooks.py")
    assert [str(path) for path in modules if SHARED.search(path.read_text())] == []
