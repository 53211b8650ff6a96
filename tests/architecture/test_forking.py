"""A fork of `support.serving.forking` behaves like a new process."""

import signal
import subprocess
from pathlib import Path

import pytest
from support.serving import forking
from support.serving.serving import environment, ran


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
