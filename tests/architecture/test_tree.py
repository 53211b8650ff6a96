"""No file of the repository contains paths of the machine or secrets, and names of modules and tests are plain."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOMEBODYS_HOME = re.compile(rb"(?<![\w.])/(?:home|Users|root)/[A-Za-z0-9._-]+")
PLACES = re.compile(r"(?:file:|https?:)?//[^\s'\"]+|/[^\s'\"]+")
SHORTEST_PLACE = len("/a/place")
GENERAL = {"//", "/tmp/", "/opt/", "/srv/", "/home/", "/usr/local", "/etc/ssl/certs/ca-certificates.crt"}
"""Paths that exist on every machine."""
WORDS_MAX = 12
"""The words of a test's name, without `test`: one sentence that is read at a glance in a list of failures."""
PUBLIC_INDEX = re.compile(rb"(?:files\.)?python" rb"hosted\.org|pypi\.org/simple|registry\.npm" rb"js\.org")


def tracked() -> list[Path]:
    """Return every file under version control, and untracked files that are not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a clone")
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def of_this_machine() -> set[bytes]:
    """Return the paths of this clone, its interpreter and its package indexes."""
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    settings = [*configured.split(), *(value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_")))]
    places = {match.partition("//")[2] or match for each in settings for match in PLACES.findall(each)}
    places |= {str(ROOT), str(Path.home()), str(Path(sys.base_prefix))}
    found = {place for place in places if len(place) >= SHORTEST_PLACE} | {f"{ROOT.parent}/"}
    return {place.encode() for place in found - GENERAL}


def test_no_file_holds_a_place_of_the_machine_it_was_written_on() -> None:
    places = of_this_machine()
    for path in tracked():
        content = path.read_bytes()
        assert not {place for place in places if place in content}, path
        assert not SOMEBODYS_HOME.search(content), path


def test_no_file_names_the_host_of_a_package_index() -> None:
    for path in tracked():
        assert not PUBLIC_INDEX.search(path.read_bytes()), path


def test_no_file_is_a_database_a_secret_or_a_leftover() -> None:
    leftovers = {".db", ".db-wal", ".db-shm", ".secret", ".pem", ".key", ".orig", ".rej", ".pyc"}
    assert not [path for path in tracked() if path.suffix in leftovers]


def names_of_tests() -> list[tuple[Path, str]]:
    """Return the file and the name of every test."""
    modules = [path for path in tracked() if path.name.startswith("test_") and path.suffix == ".py"]
    return [
        (path, node.name)
        for path in modules
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def is_one_short_sentence(name: str) -> bool:
    """Return whether a test's name is short, and states one fact: a second "and" joins a second one."""
    words = name.split("_")[1:]
    return len(words) <= WORDS_MAX and words.count("and") <= 1


@pytest.mark.parametrize(
    ("name", "is_short"),
    [
        ("test_a_b_c_d_e_f_g_h_i_j_k_l", True),
        ("test_a_b_c_d_e_f_g_h_i_j_k_l_m", False),
        ("test_rows_and_columns", True),
        ("test_rows_and_columns_and_cells", False),
    ],
)
def test_a_test_name_has_twelve_words_and_one_conjunction_at_most(name: str, is_short: bool) -> None:
    assert is_one_short_sentence(name) is is_short


def test_every_test_name_is_one_short_sentence() -> None:
    names = names_of_tests()
    assert len(names) > 3_000
    assert not [(path, name) for path, name in names if not is_one_short_sentence(name)]


def unnamed_rows(source: str) -> list[int]:
    """Return the lines of the tables of a test module with functions in their rows, and without ids.

    pytest would number these rows: `<lambda>3` says nothing about a failure.
    """
    tables = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parametrize"
    ]
    return [
        table.lineno
        for table in tables
        if isinstance(table.args[1], ast.List | ast.Tuple) and "ids" not in {keyword.arg for keyword in table.keywords}
        for row in table.args[1].elts
        if isinstance(row, ast.Lambda)
        or (isinstance(row, ast.List | ast.Tuple) and any(isinstance(cell, ast.Lambda) for cell in row.elts))
    ]


def test_a_table_with_functions_needs_ids() -> None:
    table = (
        '@pytest.mark.parametrize("run", [lambda: 1, (2, lambda: 3), pytest.param(lambda: 4, id="a")]{})\ndef f(): ...'
    )
    assert unnamed_rows(table.format("")) == [1, 1]
    assert unnamed_rows(table.format(', ids=["a", "b", "c"]')) == []


def test_every_table_with_functions_has_ids() -> None:
    modules = [path for path in tracked() if path.name.startswith("test_") and path.suffix == ".py"]
    assert not [(path, lines) for path in modules if (lines := unnamed_rows(path.read_text(encoding="utf-8")))]


def test_no_module_has_a_name_without_meaning() -> None:
    """A module is named after a noun of the specification; these names would collect unrelated functions."""
    names = {"utils.py", "helpers.py", "common.py", "manager.py", "misc.py", "base_service.py"}
    assert not [path for path in tracked() if path.name in names]
