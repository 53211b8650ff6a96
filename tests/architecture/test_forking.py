"""A fork of `support.forking` is the process that it stands for."""

import subprocess
from pathlib import Path

import pytest
from support import forking
from support.serving import environment, ran


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
