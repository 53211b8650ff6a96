"""The database as operator commands use it: the first change of a command also writes its entry of the audit trail."""

import getpass
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from booking_core.db.engine import Database, Pool, Tx
from booking_core.records import audit

if TYPE_CHECKING:
    from booking_cli.framework.context import Cli

T = TypeVar("T")

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class AuditedDatabase(Database):
    """Writes the entry of a command in the first transaction of the command that changes something.

    A command that works in many transactions, such as an import, has one entry, in the first of them. A dry run has
    none, and neither has a change that was refused.
    """

    def __init__(self, url: str, cli: "Cli") -> None:
        super().__init__(url)
        self._cli = cli
        self._is_pending = cli.action is not None
        self._lock = threading.Lock()

    def write(self, fn: Callable[[Tx], T], *, lane: Pool | None = None) -> T:
        with self._entry() as entry:
            return super().write(entry.writing(fn), lane=lane)

    def write_once(self, fn: Callable[[Tx], T]) -> T:
        with self._entry() as entry:
            return super().write_once(entry.writing(fn))

    def dry_run(self, fn: Callable[[Tx], T]) -> T:
        is_pending, self._is_pending = self._is_pending, False
        try:
            return super().dry_run(fn)
        finally:
            self._is_pending = is_pending

    @contextmanager
    def _entry(self) -> Iterator["_Entry"]:
        """Yield the entry of the command, if it is still to be written, and log it when it was."""
        with self._lock:
            is_first, self._is_pending = self._is_pending, False
        entry = _Entry(self._cli if is_first else None)
        try:
            yield entry
        except BaseException:
            self._is_pending |= is_first
            raise
        entry.log()


class _Entry:
    """The entry of a command. Without a command nothing is written."""

    def __init__(self, cli: "Cli | None") -> None:
        self._cli = cli
        self._written: audit.AuditEntry | None = None

    def writing(self, fn: Callable[[Tx], T]) -> Callable[[Tx], T]:
        """Return a function that also writes the entry into the transaction of `fn`."""
        cli = self._cli
        if cli is None:
            return fn

        def work(tx: Tx) -> T:
            result = fn(tx)
            self._written = _entry_of(cli, result)
            audit.record(tx, self._written, at=tx.now())
            return result

        return work

    def log(self) -> None:
        if self._written is not None:
            self._written.log()


def _entry_of(cli: "Cli", result: Any) -> audit.AuditEntry:
    assert cli.action is not None
    objects = {**cli.audited, **_typed_ids(cli.arguments), **_made_ids(result)}
    return audit.AuditEntry(audit.OPERATOR, operator(), cli.action, cli.organization_id or _owner_of(result), objects)


def operator() -> str:
    """Return the user of the operating system and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _typed_ids(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the command that are ids. Any other text may be a secret, or about a guest."""
    lists = {name: value if isinstance(value, list | tuple) else [value] for name, value in arguments.items()}
    ids = {name: [text.lower() for text in of_one if _is_id(text)] for name, of_one in lists.items()}
    return {name.removesuffix("s").removesuffix("_id"): of_name for name, of_name in ids.items() if of_name}


def _made_ids(result: Any) -> dict[str, Any]:
    """Return the id in the result of a change: a resource as JSON or as a dict, a row, or a tuple of these."""
    if isinstance(result, bytes):
        result = json.loads(result)
    if isinstance(result, dict):
        result_id = result.get("id") or next((value["id"] for value in result.values() if _has_id(value)), None)
        return {"id": result_id} if _is_id(result_id) else {}
    if isinstance(result, tuple) and not hasattr(result, "_fields"):
        return next(filter(None, map(_made_ids, result)), {})
    result_id = getattr(result, "id", None)
    return {"id": str(result_id)} if _is_id(result_id) else {}


def _has_id(value: Any) -> bool:
    return isinstance(value, dict) and _is_id(value.get("id"))


def _owner_of(result: Any) -> str | None:
    """Return the organization of a result that is or has one, as of a command that creates it."""
    from booking_core.base.context import Organization

    return result.id if isinstance(result, Organization) else None


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def log_to_stderr(log_format: str | None) -> None:
    """Write the lines of the audit trail to stderr, if the operator asked for a format of logs.

    Without one a command that a person types shows its result only; its entry is in the database.
    """
    if log_format is None:
        return
    import logging.config

    from booking_cli.operator import logs

    config = logs.config(log_format)
    level = config["root"].pop("level")
    config["loggers"] = {
        "booking.audit": {"level": level, "handlers": config.pop("root")["handlers"], "propagate": False}
    }
    logging.config.dictConfig(config)
