"""Processes that start with the modules of the service loaded: forks of a process that has loaded them.

A start takes most of its time to load a thousand modules, and tests start hundreds of processes. A fork is an ordinary
process, with its own memory, files, environment, signals and end. When the command of a fork returns, the fork runs its
exit handlers, flushes its output and ends at once: unloading a thousand modules takes several times as long as a
command. Tests of the start and of the end use a new interpreter (`serving.COMMAND`).
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import IO, Any

_TESTS = Path(__file__).parents[2]
_LOADED = (
    "booking_cli.commands.serve",
    "booking_cli.commands.webhooks",
    "booking_cli.main",
    "booking_core.db.postgres",
    "booking_core.base.settings",
    "booking_sdk",
    "booking_server.app",
    "booking_server.transport.protocol",
    "booking_server.monitoring.app",
    "booking_server.worker.process",
    "httpx",
    "uvicorn.lifespan.on",
    "uvicorn.main",
    "uvloop",
)
"""None of these modules reads the environment when it is loaded."""
_OF_INTERPRETER = ("PYTHON", "LANG", "LC_")
"""The prefixes of the variables that an interpreter reads at its start."""
_COMMANDS = {"booking": "booking_cli.main:main", "uvicorn": "uvicorn.main:main"}
SCRIPT = "support.serving.forking:run_script"
_MESSAGE_MAX = 1 << 18

Output = IO[Any] | int | None
"""As for `subprocess.Popen`: a file, a descriptor, PIPE, DEVNULL or STDOUT; None for this process's stream."""


def start(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: bool = False,
    umask: int = -1,
    stdin: Output = None,
    stdout: Output = None,
    stderr: Output = None,
    start_new_session: bool = False,
) -> "Process":
    """Start a command with arguments: as a fork, or as a new process where the fork would differ from one.

    Args:
        words: the first is `booking`, `uvicorn`, or a function of these modules as `support.module:function`; or it is
            SCRIPT, followed by the path of a script.
        start_new_session: the process has no controlling terminal.
    """
    environment = {**os.environ} if env is None else env
    if sys.platform == "linux" and _of_interpreter(environment) == _of_interpreter(os.environ):
        streams = (stdin, stdout, stderr)
        return Forked(words, environment, cwd or Path.cwd(), umask, text, streams, start_new_session=start_new_session)
    module, function = _function_of(words)
    path = [] if words[0] in _COMMANDS else [str(_TESTS.parent), str(_TESTS)]
    program = f"import sys; sys.path[:0] = {path!r}; from {module} import {function}; sys.exit({function}())"
    command = [sys.executable, "-c", program, *words[1:]]
    return subprocess.Popen(
        command,
        env=environment,
        cwd=cwd,
        text=text,
        umask=umask,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=start_new_session,
    )


def run(words: Sequence[str], **settings: Any) -> "subprocess.CompletedProcess[Any]":
    """Run a command to its end, and return its exit code and output."""
    with start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings) as started:
        out, err = started.communicate()
    return subprocess.CompletedProcess(words, started.returncode, out, err)


def run_script() -> None:
    """Run the script of the second word, as an interpreter with its path would."""
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


def _function_of(words: Sequence[str]) -> tuple[str, str]:
    module, _, function = _COMMANDS.get(words[0], words[0]).partition(":")
    return module, function


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_INTERPRETER)}


class Forked:
    """A process, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        umask: int,
        text: bool,
        streams: tuple[Output, Output, Output],
        *,
        start_new_session: bool,
    ) -> None:
        self.args = words
        self.returncode: int | None = None
        with contextlib.ExitStack() as far_ends:
            self.stdin, reader = _pipe(streams[0], 0, far_ends, text, is_input=True)
            self.stdout, writer = _pipe(streams[1], 1, far_ends, text)
            is_one = streams[2] == subprocess.STDOUT
            self.stderr, errors = (None, writer) if is_one else _pipe(streams[2], 2, far_ends, text)
            self._status, status = socket.socketpair()
            far_ends.callback(status.close)
            request = {"words": words, "environment": dict(environment), "cwd": str(cwd), "umask": umask}
            request["is_session"] = start_new_session
            _parent().fork(request, [status.fileno(), reader, writer, errors])
        self.pid = int(self._status.makefile("rb", buffering=0).readline())

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, once the process has ended."""
        return self._end(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _end(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            self._status.settimeout(timeout_s)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                self.returncode = int(self._status.recv(16))
                self._status.close()
        return self.returncode

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002 - as there
        """Write the input, and return the output and the errors."""
        output: dict[int, Any] = {}
        readers = [
            Thread(target=_read, args=(pipe, output)) for pipe in (self.stdout, self.stderr) if pipe and not pipe.closed
        ]
        for reader in readers:
            reader.start()
        if self.stdin:
            with contextlib.suppress(BrokenPipeError), self.stdin:
                self.stdin.write(input or "")
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return output.get(id(self.stdout)), output.get(id(self.stderr))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # as Popen: it has ended, but the message has not arrived
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[Any]


def _read(stream: IO[Any], outputs: dict[int, Any]) -> None:
    with stream:
        outputs[id(stream)] = stream.read()


def _pipe(
    output: Output, number: int, far_ends: contextlib.ExitStack, text: bool, *, is_input: bool = False
) -> tuple[IO[Any] | None, int]:
    """Return this process's end of a stream, if there is one, and the descriptor for the other process."""
    if output == subprocess.PIPE:
        reader, writer = os.pipe()
        near, far = (writer, reader) if is_input else (reader, writer)
        far_ends.callback(os.close, far)
        return os.fdopen(near, ("w" if is_input else "r") + ("" if text else "b")), far
    if output == subprocess.DEVNULL:
        null = os.open(os.devnull, os.O_RDWR)
        far_ends.callback(os.close, null)
        return None, null
    if output is None:
        return None, number
    return None, output if isinstance(output, int) else output.fileno()


class _Parent:
    """The process with the modules, as the tests' process sees it."""

    def __init__(self) -> None:
        self._socket, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_MAX)
        with far_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.serving.forking", str(far_end.fileno())],
                cwd=_TESTS,
                pass_fds=[far_end.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Ask for a fork with a socket for its end, and its standard streams."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)


@cache
def _parent() -> _Parent:
    return _Parent()


# In that process -----------------------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> Callable[[], object]:
    """Fork for each request, and report the exit codes. In a fork, return its command."""
    running: dict[int, tuple[int, socket.socket]] = {}
    """The process id and the socket of each fork, by the descriptor that reports its end."""
    while True:
        ready, _, _ = select.select([requests, *running], [], [])
        for readable in ready:
            if readable is not requests:
                _tell_end(*running.pop(readable))
                os.close(readable)
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_MAX, 4)
            if not message:
                os._exit(0)  # the tests' process waits, and to unload the modules would take a second
            status, pid = socket.socket(fileno=descriptors[0]), os.fork()
            if pid == 0:
                for other, (_, its) in running.items():
                    os.close(other)
                    its.close()
                requests.close()
                status.close()
                return _become(json.loads(message), descriptors[1:])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            status.sendall(b"%d\n" % pid)
            running[os.pidfd_open(pid)] = pid, status


def _tell_end(pid: int, status: socket.socket) -> None:
    _, how = os.waitpid(pid, 0)
    with status, contextlib.suppress(OSError):  # the test may have ended
        status.sendall(b"%d" % os.waitstatus_to_exitcode(how))


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> Callable[[], object]:
    """Turn this process into the requested one, and return its command."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = TextIOWrapper(open(0, "rb", closefd=False), sys.stdout.encoding, sys.stdout.errors)  # noqa: SIM115
    sys.stdout, sys.stderr = _output(1, sys.stdout), _output(2, sys.stderr)
    if request["is_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["words"]
    sys.modules["__main__"] = ModuleType("__main__")  # its child processes import their own
    module, function = _function_of(sys.argv)
    return partial(_run, getattr(importlib.import_module(module), function))


_exit_code: int | None = None
"""The exit code of this fork's command, once it is known."""


def _run(command: Callable[[], object]) -> object:
    """Run the command, and return what `sys.exit` gets."""
    global _exit_code
    try:
        returned = command()
    except SystemExit as end:
        returned = end.code
    if returned is None or isinstance(returned, int):
        _exit_code = returned or 0
    return returned


def _end_at_once() -> None:
    """End this process as the last of its exit handlers, without unloading its modules.

    If the output cannot be written, the interpreter ends the process, with its own message and exit code.
    """
    if _exit_code is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_code & 0xFF)


def _output(descriptor: int, like: Any) -> TextIOWrapper:
    """Open an output as the interpreter did."""
    raw = FileIO(descriptor, "w", closefd=False)
    buffer: Any = raw if like.write_through else BufferedWriter(raw)
    is_by_line = like.line_buffering or raw.isatty()
    output = TextIOWrapper(buffer, like.encoding, like.errors, None, is_by_line, like.write_through)
    output.mode = "w"
    return output


def _main() -> None:
    atexit.register(_end_at_once)  # the first one, which runs last
    for name in _LOADED:
        importlib.import_module(name)
    gc.freeze()
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1])))())  # type: ignore[arg-type]


if __name__ == "__main__":
    _main()
