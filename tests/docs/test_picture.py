"""The picture of the command line in the README is the output of the commands."""

import re

import pytest

from docsite import terminal

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
