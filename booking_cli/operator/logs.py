"""How the service writes its log: lines for a person on a terminal, JSON objects for everything else."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from booking_core.settings import Settings

_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
"""What every record carries; the rest was given with `extra`."""


class JsonLines(logging.Formatter):
    """One JSON object a line, with what was given as `extra` beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in _KNOWN}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def tell_settings(log: logging.Logger, settings: "Settings") -> None:
    """Log the effective settings, secrets masked, and a warning for each thing that they leave undone."""
    shown = settings.shown()
    log.info("settings: %s", " ".join(f"{name}={value}" for name, value in shown.items()), extra={"settings": shown})
    for warning in settings.warnings():
        log.warning("%s", warning)


def config(log_format: str | None) -> dict[str, Any]:
    """The configuration for `logging.config.dictConfig`, also in the processes that uvicorn starts.

    Args:
        log_format: console or json; none means console on a terminal, else json.
    """
    chosen = log_format or ("console" if sys.stderr.isatty() else "json")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "console": {"format": "%(asctime)s %(levelname)-7s %(name)s  %(message)s"},
            "json": {"()": "booking_cli.operator.logs.JsonLines"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": chosen, "stream": "ext://sys.stderr"}},
        "loggers": {"alembic": {"level": "WARNING"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
    }
