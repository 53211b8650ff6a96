"""Make files and folders that only their owner can read, with any umask.

No other user of the machine may read a database, a mail or a key file. A file that is created with its mode is never
open to others, not even briefly; an existing file keeps its mode until `tighten` changes it.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_folder(path: Path) -> None:
    """Make the folder and each missing parent with mode 0700. Existing folders are not changed."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600, unless there is one. A failure is reported when the file is opened."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))


def replace(path: Path, content: bytes, *, draft: Path | None = None) -> None:
    """Write the file whole, with mode 0600, also where a file with a looser mode was.

    Args:
        draft: where it is written before it takes its place; by default a name of this process beside it.

    Raises:
        OSError: it cannot be written; the former content stays.
    """
    with replacing(path, draft=draft) as file:
        file.write_bytes(content)


@contextmanager
def replacing(path: Path, *, draft: Path | None = None) -> Iterator[Path]:
    """Yield an empty file, mode 0600, that takes the path's place when the block ends without an error.

    The content is on the disk before it takes its place. After an error, Ctrl-C included, the former file stays.

    Args:
        draft: its name until then; by default a name of this process beside the path.

    Raises:
        OSError: the file cannot be made or put in its place.
    """
    draft = draft or path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    try:
        yield draft
        _sync(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # Windows opens no folder
        _sync(path.absolute().parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def of_content(path: Path) -> list[Path]:
    """Return the files that hold the rows of an SQLite database."""
    return [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))]


def of_database(path: Path) -> list[Path]:
    """Return every file that belongs to an SQLite database."""
    return [*of_content(path), *(path.with_name(path.name + ending) for ending in (".lock", ".secret"))]


def tighten(paths: Iterable[Path]) -> list[tuple[Path, int, bool]]:
    """Remove the permissions of group and others from the files.

    Returns:
        Each file that was open to them, the mode it had, and whether it could be changed: only its owner can.
    """
    open_files = []
    for path in paths:
        mode = _mode(path)
        if mode is not None and mode & ~FILE_MODE & 0o777:
            open_files.append((path, mode, _change(path)))
    return open_files


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _change(path: Path) -> bool:
    try:
        path.chmod(FILE_MODE)
    except OSError:
        return False
    return True
