"""Configure the log of the service: text on a terminal, JSON lines elsewhere."""

import contextlib
import faulthandler
import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from booking_cli.framework import environment

if TYPE_CHECKING:
    from booking_core.base.settings import Settings

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""The attributes of every log record. The others were passed as `extra`."""


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object on one line, with the values of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def log_settings(log: logging.Logger, settings: "Settings") -> None:
    """Log the settings that differ from their defaults, with masked secrets, and warnings about them and about
    variables of the environment that are no settings."""
    defaults = type(settings)().shown()
    changed = [f"{name}={value}" for name, value in settings.shown().items() if value != defaults[name]]
    log.info("settings: %s", " ".join(changed) or "the defaults")
    for warning in (*settings.warnings(), *environment.misspelt(os.environ)):
        log.warning("%s", warning)


def log_crashes() -> None:
    """Write the Python stack of every thread to standard error if the interpreter or a native library crashes.

    The signal ends the process as before, and without this leaves nothing that says where.
    """
    if not faulthandler.is_enabled():
        with contextlib.suppress(AttributeError, OSError, ValueError):  # standard error is closed or is no file
            faulthandler.enable()


def config(log_format: str | None) -> dict[str, Any]:
    """Return the configuration for `logging.config.dictConfig`, also for the processes that uvicorn starts.

    Args:
        log_format: console or json; None means console on a terminal, and json elsewhere.
    """
    chosen = log_format or ("console" if sys.stderr.isatty() else "json")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "console": {"format": "%(asctime)s %(levelname)-7s %(message)s", "datefmt": "%H:%M:%S"},
            "json": {"()": "booking_cli.operator.logs.JsonLines"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": chosen, "stream": "ext://sys.stderr"}},
        "loggers": {"alembic": {"level": "WARNING"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
    }
