"""The commands that `booking doctor` names are commands, with options that they have."""

import re
from typing import Any

import pytest
from support.serving.commands import leaves

from booking_cli.commands.registry import MODULES
from booking_core.upkeep import doctor

OPERATORS = {"departures", "refunds", "secrets"}
"""Groups of commands that an operator has as soon as they are installed."""


def commands() -> list[str]:
    """Yield every command."""
    remedies = [check.remedy for check in doctor.CHECKS if check.remedy]
    steps = (step for remedy in remedies for step in re.split(", (?:then|or) ", remedy))
    return sorted({step for step in steps if step.startswith("booking ")})


def found(words: list[str]) -> Any:
    """Return the command that the words begin with."""
    for leaf in leaves():
        if tuple(words[: len(leaf.words)]) == leaf.words:
            return leaf.command
    return None


def test_remedies_name_commands() -> None:
    assert len(commands()) > 8


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_remedy_is_one_and_has_its_options(command: str) -> None:
    words = command.split()[1:]
    if words[0] not in MODULES:
        assert words[0] in OPERATORS
        return
    known = found(words)
    assert known is not None, command
    options = {name for parameter in known.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
