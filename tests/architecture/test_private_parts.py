"""Private parts of other packages: each is named in one module, and the metadata allows the releases that have them.
With another release, the module would do nothing, silently."""

import importlib
import re
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
OF_TYPER = {
    "_click.exceptions.MissingParameter": "a command names every missing parameter",
    "_click.exceptions.NoArgsIsHelpError": "a group without a command prints its help on stderr",
    "_click.shell_completion.CompletionItem": "a group completes commands that are not imported",
    "_completion_shared.get_completion_script": "`booking completion` prints a script",
    "_completion_classes.completion_init": "a script of completion is answered",
    "completion.shell_complete": "a script of completion is answered",
}
OF_A_POOL = {
    "_connections": "a connection that a cancelled call left behind is closed",
    "_requests": "a request that a cancelled call left behind frees its place",
    "_optional_thread_lock": "places are freed under the pool's lock",
    "_assign_requests_to_connections": "a request that waits gets the place that was freed",
    "_network_backend": "a blocking read ends at the deadline of its attempt",
}


@pytest.mark.parametrize(("part", "purpose"), OF_TYPER.items())
def test_typer_has_each_private_part_that_the_command_needs(part: str, purpose: str) -> None:
    module, _, name = f"typer.{part}".rpartition(".")
    try:
        getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        pytest.fail(f"Typer {version('typer')} has no {part}, by which {purpose}: see framework/typer_parts.py")


@pytest.mark.parametrize(("part", "purpose"), OF_A_POOL.items())
def test_httpcore_has_each_private_part_that_the_sdk_needs(part: str, purpose: str) -> None:
    with httpx.Client() as client:
        pool = getattr(client._transport, "_pool", None)
    if not hasattr(pool, part):
        pytest.fail(f"httpcore {version('httpcore')} has no {part}, by which {purpose}: see _httpcore_pools.py")


@pytest.mark.parametrize(
    ("package", "names", "module"),
    [
        ("booking_cli", r"\btyper\._", "typer_parts.py"),
        ("booking_sdk", rf"\bpool\.(?:{'|'.join(OF_A_POOL)})\b", "_httpcore_pools.py"),
    ],
)
def test_one_module_names_the_private_parts(package: str, names: str, module: str) -> None:
    paths = (ROOT / package).rglob("*.py")
    assert [path.name for path in paths if re.search(names, path.read_text(encoding="utf-8"))] == [module]
