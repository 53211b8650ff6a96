"""The settings of an installation, read once from the environment at the edge and passed in everywhere else."""

import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from booking_core.base import database_urls, private_files
from booking_core.base.context import Installation
from booking_core.base.database_urls import masked
from booking_core.base.tokens import SecretKeys, is_strong
from booking_core.models import limits
from booking_core.models.base import mailbox, single_line

DEFAULT_DATABASE_URL = "sqlite:///booking.db"
_OFF = frozenset({"off", "0", "false", "no"})
_ON = frozenset({"on", "1", "true", "yes"})
_CENTURY_DAYS = 36_525
"""More than for ever is meant by: an instant is a 64-bit integer, and one so many days off must still be one."""
_CENTURY_MINUTES = _CENTURY_DAYS * 24 * 60
_CENTURY_S = _CENTURY_MINUTES * 60
_PORT_MAX = 65_535
_TOKEN_LENGTH_MIN = 16
CELLS_MAX = 64
"""Cells beside the first one: each has connections and threads of its own in every process."""
_CELL_SCHEMA = "booking_"
_CELL_NAME = re.compile(r"[a-z0-9]{2}", re.ASCII)


class SettingError(Exception):
    """A setting that cannot be understood. The message is one line and names it."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests in so many seconds."""

    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests}/{self.seconds}"


def _database_url(text: str) -> str:
    try:
        url = database_urls.parse(text)
    except ArgumentError:
        raise ValueError("is not a database URL") from None
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise ValueError("must begin with sqlite:/// or postgresql://")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ValueError("must name a file: a database in memory is lost with the process")
    if url.get_backend_name() == "postgresql":
        database_urls.parameters(url)
        database_urls.schema_of(url)
    return text


def _postgres_url(text: str) -> str:
    if not text.startswith("postgresql"):
        raise ValueError("must begin with postgresql://")
    return _database_url(text)


def _secret_key(text: str) -> str:
    keys = _split_keys(text)
    if not keys:
        raise ValueError("must hold a key, or several separated by commas")
    if not is_strong(keys[0]):
        raise ValueError(
            "must begin with 32 random bytes or more in base64 or hex; make a key with `openssl rand -base64 32`"
            " and write it in front of the old one, with a comma between them"
        )
    return text


def _secret_key_check(text: str) -> str:
    if text not in ("refuse", "warn"):
        raise ValueError("must be refuse or warn")
    return text


def _split_keys(text: str) -> list[str]:
    """Return the keys of a comma list: the first seals and signs, all open."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _public_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("must begin with https:// or http://")
    if not _names_a_host(text):
        raise ValueError("must name a host")
    return text.rstrip("/")


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that is not closed, a port that is none
        return False


def _rate_limit(text: str) -> RateLimit | None:
    if text.lower() in _OFF:
        return None
    requests, slash, seconds = text.partition("/")
    if not (slash and requests.isdecimal() and seconds.isdecimal() and int(seconds) > 0):
        raise ValueError("must be REQUESTS/SECONDS, such as 600/60, or off")
    return RateLimit(int(requests), int(seconds)) if int(requests) else None


def _rate_limit_store(text: str) -> str:
    try:
        is_whole = text.startswith(("memory://", "redis://", "rediss://")) and urlsplit(text).port != 0
    except ValueError:  # a port that is none
        is_whole = False
    if not is_whole:
        raise ValueError("must be memory:// or redis://HOST:PORT")
    return text


def _switch(text: str) -> bool:
    if text.lower() not in _ON | _OFF:
        raise ValueError("must be on or off")
    return text.lower() in _ON


def _whole(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
            raise ValueError(f"must be a whole number from 1 to {most}")
        return int(text)

    return parse


def _whole_or_off(most: int) -> Callable[[str], int | None]:
    whole = _whole(most)

    def parse(text: str) -> int | None:
        return None if text.lower() in _OFF else whole(text)

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 86_400:
        raise ValueError("must be a number of seconds")
    return value


def _delay(text: str) -> float:
    return 0.0 if text == "0" else _seconds(text)


def _waits(text: str) -> tuple[int, ...]:
    waits = [part.strip() for part in text.split(",")]
    if len(waits) != len(limits.WEBHOOK_WAITS_S) or not all(wait.isdecimal() for wait in waits):
        raise ValueError(f"must be {len(limits.WEBHOOK_WAITS_S)} whole numbers of seconds, separated by commas")
    if any(len(wait) > len(str(_CENTURY_S)) or int(wait) > _CENTURY_S for wait in waits):
        raise ValueError("must not wait for longer than a century")
    return tuple(map(int, waits))


def _cidrs(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(part.strip())) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError("must be a comma list of networks, such as 127.0.0.0/8") from None


def _smtp_url(text: str) -> str:
    if not text.startswith(("smtp://", "smtps://")):
        raise ValueError("must begin with smtp:// or smtps://")
    if not _names_a_host(text):
        raise ValueError("must be smtp://USER:PASSWORD@HOST:PORT; user, password and port may be left out")
    return text


def named_mailbox(text: str) -> tuple[str, str]:
    """Name and address of `Fjord Tours <tours@example.com>`; the name may be left out.

    Raises:
        ValueError: it is not one plain mailbox.
    """
    name, bracket, rest = text.strip().rpartition("<")
    if bracket and not rest.endswith(">"):
        raise ValueError("is not one e-mail address")
    address = mailbox(rest.removesuffix(">").strip() if bracket else rest)
    if not address.isascii():
        raise ValueError("must be an ASCII address; a domain of other letters is written xn--...")
    return single_line(name.strip().strip('"')), address


def _mail_from(text: str) -> str:
    named_mailbox(text)
    return text


def _ca_file(text: str) -> str:
    import ssl  # slow to import, and needed by few installations

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(text)
    except OSError as error:  # no such file, or no certificate in it
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    return text


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError("must be HOST:PORT, or a port")
    return host.strip("[]") or "127.0.0.1", int(port)


def _token(text: str) -> str:
    if len(text) < _TOKEN_LENGTH_MIN or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"must hold at least {_TOKEN_LENGTH_MIN} characters of ASCII, without spaces")
    return text


def _log_format(text: str) -> str:
    if text not in ("console", "json"):
        raise ValueError("must be console or json")
    return text


def _request_share(text: str) -> float | None:
    if text.lower() in _OFF - {"0"}:
        return None
    try:
        share = 1.0 if text.lower() in _ON else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("must be a share of the requests from 0 to 1, on for all of them, or off")
    return share


def _text(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class CellAddress:
    """A cell after the first one: its name, and where it is."""

    name: str
    url: str | None = None
    """None: the schema `booking_NAME` of BOOKING_DATABASE_URL."""
    direct_url: str | None = None
    """As BOOKING_DATABASE_DIRECT_URL, for this database."""

    def __str__(self) -> str:
        urls = [masked(url) for url in (self.url, self.direct_url) if url]
        return self.name + (f"={'|'.join(urls)}" if urls else "")


def _cell_name(text: str) -> str:
    if not _CELL_NAME.fullmatch(text):
        raise ValueError("must have two lower-case letters or digits")
    return text


def _cell(text: str) -> CellAddress:
    name, equals, urls = text.partition("=")
    if not _CELL_NAME.fullmatch(name):
        raise ValueError("must be a list of NAME or NAME=URL, each name two lower-case letters or digits")
    if not equals:
        return CellAddress(name)
    url, _, direct_url = urls.partition("|")
    return CellAddress(name, _postgres_url(url), _postgres_url(direct_url) if direct_url else None)


def _cells(text: str) -> tuple[CellAddress, ...]:
    found = tuple(map(_cell, text.split()))
    if len({each.name for each in found}) < len(found):
        raise ValueError("must have each name once")
    if len(found) > CELLS_MAX:
        raise ValueError(f"must not have more than {CELLS_MAX} cells")
    return found


def _setting(
    name: str, parse: Callable[[str], object], default: object, *, secret: bool = False, absent: str = ""
) -> Any:
    """Declare a field and its variable; `absent` is the text shown for None."""
    metadata = {"name": f"BOOKING_{name}", "parse": parse, "secret": secret, "absent": absent}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, with a field for each variable. Only `from_environment` reads the environment."""

    database_url: str = _setting("DATABASE_URL", _database_url, DEFAULT_DATABASE_URL, secret=True)
    database_direct_url: str | None = _setting("DATABASE_DIRECT_URL", _postgres_url, None, secret=True)
    secret_key: str | None = _setting("SECRET_KEY", _secret_key, None, secret=True)
    secret_key_check: str = _setting("SECRET_KEY_CHECK", _secret_key_check, "refuse")
    public_url: str = _setting("PUBLIC_URL", _public_url, "http://127.0.0.1:8000")
    rate_limit: RateLimit | None = _setting("RATE_LIMIT", _rate_limit, RateLimit(600, 60), absent="off")
    rate_limit_store: str = _setting("RATE_LIMIT_STORE", _rate_limit_store, "memory://", secret=True)
    trusted_proxies: tuple[str, ...] = _setting("TRUSTED_PROXIES", _cidrs, ())
    smtp_url: str | None = _setting("SMTP_URL", _smtp_url, None, secret=True)
    mail_from: str | None = _setting("MAIL_FROM", _mail_from, None)
    mail_dir: str | None = _setting("MAIL_DIR", _text, None)
    stripe_api_key: str | None = _setting("STRIPE_API_KEY", _text, None, secret=True)
    stripe_base_url: str | None = _setting("STRIPE_BASE_URL", _public_url, None)
    webhook_waits_s: tuple[int, ...] = _setting("WEBHOOK_WAITS", _waits, limits.WEBHOOK_WAITS_S)
    webhook_deadline_s: float = _setting("WEBHOOK_DEADLINE", _seconds, float(limits.WEBHOOK_DEADLINE_S))
    webhook_disable_after_s: int = _setting("WEBHOOK_DISABLE_AFTER", _whole(_CENTURY_S), limits.WEBHOOK_DISABLE_AFTER_S)
    webhook_allow_http: bool = _setting("WEBHOOK_ALLOW_HTTP", _switch, False)
    webhook_allow_cidrs: tuple[str, ...] = _setting("WEBHOOK_ALLOW_CIDRS", _cidrs, ())
    webhook_ca_file: str | None = _setting("WEBHOOK_CA_FILE", _ca_file, None)
    event_retention_days: int = _setting("EVENT_RETENTION_DAYS", _whole(_CENTURY_DAYS), limits.EVENT_RETENTION_DAYS)
    delivery_retention_days: int = _setting(
        "DELIVERY_RETENTION_DAYS", _whole(_CENTURY_DAYS), limits.DELIVERY_RETENTION_DAYS
    )
    idempotency_retention_days: int = _setting(
        "IDEMPOTENCY_RETENTION_DAYS", _whole(_CENTURY_DAYS), limits.IDEMPOTENCY_RETENTION_DAYS
    )
    guest_retention_days: int | None = _setting(
        "GUEST_RETENTION_DAYS", _whole_or_off(_CENTURY_DAYS), None, absent="off"
    )
    pending_minutes: int = _setting("PENDING_MINUTES", _whole(_CENTURY_MINUTES), 30)
    log_format: str | None = _setting("LOG_FORMAT", _log_format, None)
    request_log: float | None = _setting("REQUEST_LOG", _request_share, 0.0, absent="off")
    metrics_address: tuple[str, int] | None = _setting("METRICS_ADDRESS", _address, None)
    metrics_token: str | None = _setting("METRICS_TOKEN", _token, None, secret=True)
    tracing: bool = _setting("TRACING", _switch, False)
    shutdown_delay_s: float = _setting("SHUTDOWN_DELAY", _delay, 0.0)
    cells: tuple[CellAddress, ...] = _setting("CELLS", _cells, ())
    cell: str | None = _setting("CELL", _cell_name, None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings from `BOOKING_*` variables; an empty variable counts as absent.

        Raises:
            SettingError: a variable cannot be understood.
        """
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for item in fields(cls):
            text = environment.get(item.metadata["name"], "")
            if not text:
                continue
            try:
                values[item.name] = item.metadata["parse"](text)
            except ValueError as error:
                raise SettingError(f"{item.metadata['name']} {error}") from None
        settings = cls(**values)
        if settings.cells and settings.is_sqlite:
            raise SettingError("BOOKING_CELLS needs PostgreSQL in BOOKING_DATABASE_URL")
        return settings.of_cell(settings.cell) if settings.cell else settings

    def of_cell(self, name: str) -> "Settings":
        """Return the settings of the cell of that name, with its database in the place of the first one's.

        Raises:
            SettingError: BOOKING_CELLS has no such cell.
        """
        address = next((each for each in self.cells if each.name == name), None)
        if address is None:
            raise SettingError(f"BOOKING_CELLS has no cell {name!r}")
        own = replace(self, cell=name)
        if address.url:
            return replace(own, database_url=address.url, database_direct_url=address.direct_url)
        schema = f"{_CELL_SCHEMA}{name}"
        direct = self.database_direct_url and database_urls.with_schema(self.database_direct_url, schema)
        url = database_urls.with_schema(self.database_url, schema)
        return replace(own, database_url=url, database_direct_url=direct)

    def shown(self) -> dict[str, str]:
        """Return the effective settings by variable name, with secrets masked."""
        return {item.metadata["name"]: _shown(item.metadata, getattr(self, item.name)) for item in fields(self)}

    @property
    def is_sqlite(self) -> bool:
        return self.database_url.startswith("sqlite")

    @property
    def session_url(self) -> str:
        """The database's URL for work that needs a session of its own: the direct one, if a pooler is passed by it."""
        return self.database_direct_url or self.database_url

    @property
    def sqlite_path(self) -> Path | None:
        """The file of an embedded database."""
        database = make_url(self.database_url).database if self.is_sqlite else None
        return Path(database) if database else None

    @property
    def has_mail_transport(self) -> bool:
        """True if mails are sent by SMTP, or written to a folder: the configured one, or the one beside an SQLite file.

        Without it they stay queued in the database until one is configured.
        """
        return bool(self.smtp_url or self.mail_dir or self.is_sqlite)

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each thing that the settings leave undone; `serve`, `worker` and `doctor` show it."""
        if self.has_mail_transport:
            return ()
        return (
            "no mail is sent: neither BOOKING_SMTP_URL nor BOOKING_MAIL_DIR is set, so that confirmations and notices "
            "stay queued in the database",
        )

    def secret_keys(self) -> SecretKeys:
        """Return the keys that sign cursors and seal secrets. Beside an SQLite file a missing key is created.

        Raises:
            SettingError: none is set, and the database is shared, so that each process would make its own.
        """
        if self.secret_key:
            return SecretKeys(*_split_keys(self.secret_key))
        if self.secret_file is None:
            raise SettingError("BOOKING_SECRET_KEY is required with PostgreSQL")
        return SecretKeys(*_kept_secret(self.secret_file))

    @property
    def secret_file(self) -> Path | None:
        """The file beside an SQLite database that keeps its secret key where BOOKING_SECRET_KEY is not set."""
        path = self.sqlite_path
        return path.with_name(path.name + ".secret") if path else None

    @property
    def has_secret_key(self) -> bool:
        """True if there is a secret key, so that none would be created."""
        return bool(self.secret_key) or (self.secret_file is not None and self.secret_file.exists())

    @property
    def refuses_wrong_key(self) -> bool:
        """True if secret keys that do not open the database's values end the program. Otherwise it only warns."""
        return self.secret_key_check != "warn"  # noqa: S105 - no password

    def secret_key_warnings(self) -> list[str]:
        """Say which of the keys that only open are weak: they may go on to, and should be dropped soon."""
        return [
            f"BOOKING_SECRET_KEY: key {place} of the list is not 32 random bytes in base64 or hex;"
            " `booking secrets reseal`, then take it out"
            for place, key in enumerate(_split_keys(self.secret_key or ""), start=1)
            if not is_strong(key)
        ]

    def installation(self) -> Installation:
        """Return the context that all requests, commands and jobs of this installation share.

        Raises:
            SettingError: there is no secret key, and none can be made.
        """
        return Installation(
            self.secret_keys(), self.public_url, self.pending_minutes, self.webhook_allow_http, self.cell or ""
        )


_OF_URLS = (_database_url, _postgres_url, _rate_limit_store, _smtp_url)
"""Settings that are shown without the password in their URL. A key may look like a URL and is none."""


def _shown(metadata: Mapping[str, Any], value: object) -> str:
    if value is None:
        return str(metadata["absent"])
    if metadata["secret"]:
        return masked(str(value)) if metadata["parse"] in _OF_URLS else "***"
    if isinstance(value, bool):
        return "on" if value else "off"
    if metadata["parse"] is _address and isinstance(value, tuple):
        return ":".join(map(str, value))
    separator = " " if metadata["parse"] is _cells else ","
    return separator.join(map(str, value)) if isinstance(value, tuple) else str(value)


def _kept_secret(path: Path) -> list[str]:
    """Return the keys in the file. The first caller creates it with a new key, mode 0600."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_files.FILE_MODE)
    except FileExistsError:
        return _read_secret(path)
    except OSError as error:
        raise SettingError(f"BOOKING_SECRET_KEY is not set, and {path} cannot be made: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        made = secrets.token_urlsafe(32)
        file.write(made + "\n")
    return [made]


def _read_secret(path: Path) -> list[str]:
    """Return the keys in a file of the form of BOOKING_SECRET_KEY."""
    text = path.read_text().strip()
    if not text:
        raise SettingError(f"BOOKING_SECRET_KEY is not set, and {path} is empty")
    try:
        return _split_keys(_secret_key(text))
    except ValueError as error:
        raise SettingError(f"BOOKING_SECRET_KEY is not set, and {path} {error}") from None
