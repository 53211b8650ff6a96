"""Read and import catalogue files."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from booking_cli.framework.arguments import read_bytes
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode

if TYPE_CHECKING:
    from booking_core.base.context import Installation, Organization
    from booking_core.catalogue.transfer import ImportSummary, ImportTally, Plan
    from booking_core.db.engine import Database, Tx

_RETRY_HINT = "run the same command again to complete it; imported entries stay as they are"


def read_document(path: Path) -> Any:
    """Return the content of a catalogue file; `-` is stdin.

    Raises:
        CliError: the file cannot be read, or is too large.
    """
    from booking_core.catalogue import transfer

    return transfer.parse(read_bytes(path), suffix=path.suffix or ".json")


@dataclass(frozen=True, slots=True)
class CatalogImport:
    """A validated import, and the ways to run it."""

    database: "Database"
    organization: "Organization"
    installation: "Installation"
    plan: "Plan"
    tally: "ImportTally"
    advance: Callable[[int, int], None]

    def run(self, *, dry_run: bool, atomic: bool) -> "ImportSummary":
        """Import the file in batches, in one transaction, or not at all."""
        if dry_run:
            return self.database.read(lambda tx: self._write(tx, dry_run=True))
        from booking_core.catalogue import transfer

        with _deferred_interrupt() as raise_if_interrupted:

            def progress(count: int, total: int) -> None:
                raise_if_interrupted()  # the transaction can still be rolled back
                self.advance(count, total)

            if atomic:
                return self.database.write(lambda tx: self._write(tx, progress=progress))
            return transfer.import_in_batches(
                self.database,
                self.organization,
                self.installation,
                self.plan,
                tally=self.tally,
                progress=self.advance,
                before_batch=raise_if_interrupted,
            )

    def _write(self, tx: "Tx", **options: Any) -> "ImportSummary":
        from booking_core import organizations
        from booking_core.catalogue import transfer

        now = organizations.now(tx, self.organization)
        return transfer.import_plan(tx, self.organization, self.installation, self.plan, now=now, **options)


@contextmanager
def report_partial_import(cli: Cli, tally: "ImportTally", *, dry_run: bool) -> Iterator[None]:
    """Report how much was imported when the import ends early.

    Raises:
        CliError: Ctrl-C was pressed.
    """
    try:
        yield
    except KeyboardInterrupt:
        message = f"Interrupted. {_progress_message(tally)}"
        hint = None if dry_run else _RETRY_HINT
        raise CliError(message, ExitCode.INTERRUPTED, code="interrupted", hint=hint) from None
    except Exception:
        if tally.has_begun:
            cli.render.note(f"{_progress_message(tally)} {_RETRY_HINT[0].upper()}{_RETRY_HINT[1:]}.")
        raise


def _progress_message(tally: "ImportTally") -> str:
    if not tally.has_begun:
        return "Nothing was imported."
    parts = [
        f"{tally.imported[kind]} of {count} {kind.replace('_', ' ')}" for kind, count in tally.total.items() if count
    ]
    return f"Imported: {', '.join(parts)}. The rest was not imported."


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C until the yielded function is called, which then raises KeyboardInterrupt.

    A second Ctrl-C raises KeyboardInterrupt at once.
    """
    pressed = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    def raise_if_interrupted() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield raise_if_interrupted
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield raise_if_interrupted
    finally:
        signal.signal(signal.SIGINT, before)
