"""A set of packages is installed with uv, or by pip where uv is missing or fails."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import install


class Machine:
    """Records the programs that are run. Those whose command contains a word of `failing` fail."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.failing: list[str] = []

    def run(self, *command: Any, **options: Any) -> None:
        text = " ".join(map(str, command))
        self.commands.append(text)
        if any(word in text for word in self.failing):
            raise subprocess.CalledProcessError(1, text)

    def ran(self, *words: str) -> list[bool]:
        """Return for each word whether the command at its place contains it."""
        return [word in command for word, command in zip(words, self.commands, strict=True)]


@pytest.fixture
def environment(tmp_path: Path) -> install.Environment:
    return install.Environment(tmp_path / "a folder" / ".venv")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(install, "run", machine.run)
    monkeypatch.setattr(install.shutil, "which", lambda name: "/bin/uv")
    return machine


def test_the_uv_on_the_path_installs(environment: install.Environment, machine: Machine) -> None:
    environment.create()
    environment.install("run")
    assert machine.ran("venv --clear --without-pip", "/bin/uv pip install", "/bin/uv pip install") == [True] * 3
    assert f"--require-hashes -r {install.ROOT / 'locks' / 'run.txt'}" in machine.commands[1]


def test_uv_trusts_the_certificates_that_pip_trusts(
    environment: install.Environment, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = []
    monkeypatch.setattr(install, "run", lambda *_, **__: trusted.append(install.os.environ["SSL_CERT_FILE"]))
    monkeypatch.setenv("PIP_CERT", "/etc/proxy.pem")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/others.pem")
    environment.install("run")
    monkeypatch.delenv("SSL_CERT_FILE")
    environment.install("run")
    assert trusted == ["/etc/others.pem"] * 2 + ["/etc/proxy.pem"] * 2


def test_pip_brings_a_uv_where_there_is_none(
    environment: install.Environment, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    environment.install("run")
    assert machine.ran("-m ensurepip", "locks/uv.txt", "bin/uv pip install", "bin/uv pip install") == [True] * 4
    assert "-m pip" in machine.commands[1]
    assert "--require-hashes" in machine.commands[1]


@pytest.mark.parametrize("failing", ["/bin/uv", "locks/uv.txt"], ids=["uv-fails", "no-uv-to-be-had"])
def test_pip_does_the_same_work_where_uv_fails(
    environment: install.Environment,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
) -> None:
    if failing != "/bin/uv":
        monkeypatch.setattr(install.shutil, "which", lambda name: None)
    environment.python.parent.mkdir(parents=True)
    (environment.folder / "bin" / "pip").touch()
    machine.failing = [failing]
    environment.install("check")
    *_, locked, packages = machine.commands
    assert "-m pip" in locked
    assert f"--require-hashes -r {install.ROOT / 'locks' / 'check.txt'}" in locked
    assert f"-e{install.ROOT / 'booking_cli'}" in packages
    assert "faster" in capsys.readouterr().err


def test_a_failure_of_pip_is_a_failure(environment: install.Environment, machine: Machine) -> None:
    machine.failing = ["/bin/uv", "locks/run.txt"]
    with pytest.raises(subprocess.CalledProcessError):
        environment.install("run")


def test_an_environment_that_works_is_kept(environment: install.Environment, machine: Machine) -> None:
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    environment.create()
    assert machine.commands == []
    environment.python.unlink()
    environment.python.symlink_to("/gone")  # the interpreter was replaced by a newer one
    environment.create()
    assert machine.ran("venv --clear") == [True]


def test_a_set_and_the_sets_in_it_are_marked(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".venv"
    folder.mkdir()
    monkeypatch.setattr(sys, "argv", ["install.py", str(folder), "check"])
    install.main()
    assert {path.name for path in folder.iterdir()} == {".check", ".run"}
    assert set(install.sets_in("test")) == {"test", "bench", "check", "docs", "run", "uv"}


def test_an_older_python_is_refused_with_a_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.sys, "version_info", (3, 10, 13))
    with pytest.raises(SystemExit, match=r"3\.11 or newer is needed; set PYTHON="):
        install.main()
