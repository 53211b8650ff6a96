"""Commands of the pages exist, units and services too, and the picture of the README is the output of its commands."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from support import pages
from support.databases import databases
from support.serving.commands import leaves

from booking_core.base.settings import Settings
from docsite import terminal

ROOT = Path(__file__).parents[2]
PAGES = [*pages.pages(), "../README.md"]
_INLINE = re.compile(r"(?<!`)`(booking [a-z][^`]*)`")
_REFERENCE = "reference/"
_OF_SERVERS = ("pg_promote", "ALTER SYSTEM", "citus")
"""SQL that no test may run on the shared server; `tests/system/test_failover.py` and `scripts/citus.py` run it."""


def commands_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of `booking` in the blocks and in the sentences of a page, without the program."""
    for line, words in pages.lines(page):
        for at, word in enumerate(words):
            if word == "booking" or word.endswith("/bin/booking"):
                yield line, words[at + 1 :]
    for command in _INLINE.findall((pages.DOCS / page).read_text(encoding="utf-8")):
        yield command, pages.words(command)[1:]


@cache
def tree() -> dict[tuple[str, ...], set[str]]:
    """Return the options of each command, by its words."""
    return {
        leaf.words: {name for parameter in leaf.command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for leaf in leaves()
    }


def problem(words: list[str]) -> str | None:
    """Return why the words are not a command of `booking`; None if they are."""
    names = [word for word in words if not word.startswith("-")]
    leaf = next((leaf for leaf in tree() if tuple(names[: len(leaf)]) == leaf), None)
    if leaf is None:
        is_group = any(command[: len(names)] == tuple(names) for command in tree())
        return None if is_group else f"there is no command {' '.join(names[:2])}"
    options = {word.split("=")[0] for word in words if re.match(r"--[a-z]", word)}
    unknown = options - tree()[leaf] - {"--help", "--profile", "--output", "--version"}
    return f"{' '.join(leaf)} has no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith(_REFERENCE)])
def test_each_command_of_booking_exists_with_its_options(page: str) -> None:
    problems = {line: problem(words) for line, words in commands_of(page)}
    assert {line: text for line, text in problems.items() if text} == {}


def test_variables_that_commands_set_are_settings() -> None:
    settings = set(Settings().shown())
    settings |= {"BOOKING_API_KEY", "BOOKING_BASE_URL", "BOOKING_CONFIG_DIR", "BOOKING_PROFILE"}
    variables = {
        name
        for page in PAGES
        for block in pages.blocks(page)
        for name in re.findall(r"^ *\$ .*?\b(BOOKING_[A-Z_]+)=", block.text, re.MULTILINE)
    }
    assert len(variables) > 3
    assert variables <= settings


def test_units_and_services_exist() -> None:
    units = {path.stem for path in (ROOT / "deploy" / "systemd").glob("*.service")}
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    documented = set()
    for page in PAGES:
        for line, words in pages.lines(page):
            if words and words[0] in ("systemctl", "journalctl"):
                names = {re.sub(r"(?<=@).*", "", word) for word in words if word.startswith("booking")}
                assert names <= units, line
                documented |= names
            if words[:2] == ["docker", "compose"] and {"exec", "run"} & set(words):
                assert set(words) & set(services), line
    assert documented == units


def test_sql_for_psql_runs(postgres_server: str) -> None:
    texts = {words[words.index("-c") + 1] for page in PAGES for _, words in pages.lines(page) if words[:1] == ["psql"]}
    runnable = {text for text in texts if not any(name in text for name in _OF_SERVERS)}
    assert len(runnable) >= 3
    databases.run(postgres_server, *runnable)


# The picture ---------------------------------------------------------------------------------------------------------


_VARYING = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"[0-9a-f]{8}…", "ID…"),
    (r"req_[0-9a-f]+", "REQUEST"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+]\d\d:\d\d", "TIME"),
    (r"\d{4}-\d\d-\d\d&#160;\d\d:\d\d", "TIME"),
    (r"\d+(&#160;)+(?=confirmed)", "NUMBER "),
)
"""Differs in each run of the commands: ids, times, and the number of a booking."""


def compared(svg: str) -> list[str]:
    """Return the lines of a picture without the parts that differ in each run."""
    for pattern, name in _VARYING:
        svg = re.sub(pattern, name, svg)
    return svg.splitlines()


@pytest.mark.exhaustive
def test_the_picture_is_the_output_of_the_commands() -> None:
    assert compared(terminal.PICTURE.read_text(encoding="utf-8")) == compared(terminal.picture())
