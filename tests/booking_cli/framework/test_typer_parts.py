"""The command needs a few private parts of Typer, which are in one module. Its metadata allows the releases that
have them."""

import importlib
import re
from pathlib import Path

import pytest
import typer

import booking_cli

FOLDER = Path(str(booking_cli.__file__)).parent
PARTS = {
    "typer._click.exceptions.MissingParameter": "a command names every missing parameter",
    "typer._click.exceptions.NoArgsIsHelpError": "a group without a command prints its help on stderr",
    "typer._click.shell_completion.CompletionItem": "a group completes commands that are not imported",
    "typer._completion_shared.get_completion_script": "`booking completion` prints a script",
    "typer._completion_classes.completion_init": "a script of completion is answered",
    "typer.completion.shell_complete": "a script of completion is answered",
}


@pytest.mark.parametrize(("part", "purpose"), PARTS.items())
def test_typer_has_each_private_part_that_the_command_needs(part: str, purpose: str) -> None:
    module, _, name = part.rpartition(".")
    try:
        getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        pytest.fail(f"Typer {typer.__version__} has no {part}, by which {purpose}: see framework/typer_parts.py")


def test_one_module_names_private_parts_of_typer() -> None:
    named = [path.name for path in FOLDER.rglob("*.py") if re.search(r"\btyper\._", path.read_text(encoding="utf-8"))]
    assert named == ["typer_parts.py"]
