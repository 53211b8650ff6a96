"""The settings of an installation, read once from the environment at the edge and passed in everywhere else."""

import ipaddress
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, TypeAdapter, ValidationError, WrapValidator
from pydantic import ValidatorFunctionWrapHandler as Handler
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
"""An upper bound for days: an instant is a 64-bit integer, also after so many days."""
_CENTURY_MINUTES = _CENTURY_DAYS * 24 * 60
_CENTURY_S = _CENTURY_MINUTES * 60
_DAY_S = 86_400
_PORT_MAX = 65_535
CELLS_MAX = 64
"""Cells beside the first cell: each has separate connections and threads in every process."""
_CELL_SCHEMA = "booking_"


class SettingError(Exception):
    """A setting that cannot be understood. The message is one line and names it."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many requests in so many seconds."""

    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests}/{self.seconds}"


class Address(NamedTuple):
    """A host, or its address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


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


def _split_keys(text: str) -> list[str]:
    """Return the keys of a comma list: the first seals and signs, all open."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _url(*schemes: str) -> AfterValidator:
    """Return the validator of a URL with one of the schemes and a host."""
    beginnings = tuple(f"{scheme}://" for scheme in schemes)

    def check(text: str) -> str:
        if not text.startswith(beginnings) or not _names_a_host(text):
            raise ValueError(f"must begin with {' or '.join(beginnings)} and name a host")
        return text.rstrip("/")

    return AfterValidator(check)


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


def _cidrs(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(part.strip())) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError("must be a comma list of networks, such as 127.0.0.0/8") from None


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


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError("must be HOST:PORT, or a port")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


def _cell(text: str) -> CellAddress:
    name, equals, urls = text.partition("=")
    if not re.fullmatch("[a-z0-9]{2}", name):
        raise ValueError("must be a list of NAME or NAME=URL, each name two lower-case letters or digits")
    if not equals:
        return CellAddress(name)
    url, _, direct_url = urls.partition("|")
    return CellAddress(name, _postgres_url(url), _postgres_url(direct_url) if direct_url else None)


def _cells(text: str) -> tuple[CellAddress, ...]:
    cells = tuple(map(_cell, text.split()))
    if len({cell.name for cell in cells}) < len(cells):
        raise ValueError("must have each name once")
    if len(cells) > CELLS_MAX:
        raise ValueError(f"must not have more than {CELLS_MAX} cells")
    return cells


def _must_be(text: str) -> WrapValidator:
    """Return the validator that words every error of a type."""

    def check(value: Any, handler: Handler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"must be {text}") from None

    return WrapValidator(check)


def _words(meanings: Mapping[str, Any]) -> BeforeValidator:
    """Return the validator that gives some words a value."""
    return BeforeValidator(lambda text: meanings.get(text.lower(), text))


Days = Annotated[int, Field(ge=1, le=_CENTURY_DAYS), _must_be(f"a whole number from 1 to {_CENTURY_DAYS}")]
Minutes = Annotated[int, Field(ge=1, le=_CENTURY_MINUTES), _must_be(f"a whole number from 1 to {_CENTURY_MINUTES}")]
LongSeconds = Annotated[int, Field(ge=1, le=_CENTURY_S), _must_be(f"a whole number from 1 to {_CENTURY_S}")]
Seconds = Annotated[float, Field(gt=0, lt=_DAY_S, allow_inf_nan=False), _must_be("a number of seconds")]
Delay = Annotated[float, Field(ge=0, lt=_DAY_S, allow_inf_nan=False), _must_be("a number of seconds")]
Waits = Annotated[
    tuple[Annotated[int, Field(ge=0, le=_CENTURY_S)], ...],
    Field(min_length=len(limits.WEBHOOK_WAITS_S), max_length=len(limits.WEBHOOK_WAITS_S)),
    BeforeValidator(lambda text: text.split(",")),
    _must_be(f"{len(limits.WEBHOOK_WAITS_S)} whole numbers of seconds, separated by commas, none above a century"),
]
Switch = Annotated[bool, _must_be("on or off")]
Share = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None,
    _words(dict.fromkeys(_OFF - {"0"}) | dict.fromkeys(_ON, 1.0)),
    _must_be("a share of the requests from 0 to 1, on for all of them, or off"),
]
Networks = Annotated[tuple[str, ...], PlainValidator(_cidrs)]
PublicUrl = Annotated[str, _url("https", "http")]
LimitStore = Annotated[
    Literal["memory://"] | Annotated[str, _url("redis", "rediss")], _must_be("memory:// or redis://HOST:PORT")
]
PostgresUrl = Annotated[str, AfterValidator(_postgres_url)]
Token = Annotated[str, Field(pattern=r"^[!-~]{16,}$"), _must_be("at least 16 characters of ASCII, without spaces")]
CellName = Annotated[str, Field(pattern=r"^[a-z0-9]{2}$"), _must_be("two lower-case letters or digits")]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, with a field for each variable: `webhook_deadline_s` is BOOKING_WEBHOOK_DEADLINE.

    Only `from_environment` reads the environment and validates.
    """

    database_url: Annotated[str, AfterValidator(_database_url)] = DEFAULT_DATABASE_URL
    database_direct_url: PostgresUrl | None = None
    secret_key: Annotated[str, AfterValidator(_secret_key)] | None = None
    secret_key_check: Annotated[Literal["refuse", "warn"], _must_be("refuse or warn")] = "refuse"  # noqa: S105
    public_url: PublicUrl = "http://127.0.0.1:8000"
    rate_limit: Annotated[RateLimit | None, PlainValidator(_rate_limit)] = RateLimit(600, 60)
    rate_limit_store: LimitStore = "memory://"
    trusted_proxies: Networks = ()
    smtp_url: Annotated[str, _url("smtp", "smtps")] | None = None
    mail_from: Annotated[str, AfterValidator(_mail_from)] | None = None
    mail_dir: str | None = None
    stripe_api_key: str | None = None
    stripe_base_url: PublicUrl | None = None
    webhook_waits_s: Waits = limits.WEBHOOK_WAITS_S
    webhook_deadline_s: Seconds = float(limits.WEBHOOK_DEADLINE_S)
    webhook_disable_after_s: LongSeconds = limits.WEBHOOK_DISABLE_AFTER_S
    webhook_allow_http: Switch = False
    webhook_allow_cidrs: Networks = ()
    webhook_ca_file: Annotated[str, AfterValidator(_ca_file)] | None = None
    event_retention_days: Days = limits.EVENT_RETENTION_DAYS
    delivery_retention_days: Days = limits.DELIVERY_RETENTION_DAYS
    idempotency_retention_days: Days = limits.IDEMPOTENCY_RETENTION_DAYS
    guest_retention_days: Annotated[Days | None, _words(dict.fromkeys(_OFF))] = None
    pending_minutes: Minutes = 30
    log_format: Annotated[Literal["console", "json"], _must_be("console or json")] | None = None
    request_log: Share = 0.0
    metrics_address: Annotated[Address, PlainValidator(_address)] | None = None
    metrics_token: Token | None = None
    tracing: Switch = False
    shutdown_delay_s: Delay = 0.0
    cells: Annotated[tuple[CellAddress, ...], PlainValidator(_cells)] = ()
    cell: CellName | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Read the settings from `BOOKING_*` variables; an empty variable counts as absent.

        Raises:
            SettingError: a variable cannot be understood.
        """
        environment = os.environ if environment is None else environment
        values = {}
        for name, kind in get_type_hints(cls, include_extras=True).items():
            if text := environment.get(variable(name)):
                values[name] = _parsed(name, kind, text)
        settings = cls(**values)
        if settings.cells and settings.is_sqlite:
            raise SettingError("BOOKING_CELLS needs PostgreSQL in BOOKING_DATABASE_URL")
        return settings.of_cell(settings.cell) if settings.cell else settings

    def of_cell(self, name: str) -> "Settings":
        """Return the settings of the cell of that name, with its database instead of the first cell's.

        Raises:
            SettingError: BOOKING_CELLS has no such cell.
        """
        address = next((cell for cell in self.cells if cell.name == name), None)
        if address is None:
            raise SettingError(f"BOOKING_CELLS has no cell {name!r}")
        settings = replace(self, cell=name)
        if address.url:
            return replace(settings, database_url=address.url, database_direct_url=address.direct_url)
        schema = f"{_CELL_SCHEMA}{name}"
        direct = self.database_direct_url and database_urls.with_schema(self.database_direct_url, schema)
        url = database_urls.with_schema(self.database_url, schema)
        return replace(settings, database_url=url, database_direct_url=direct)

    def shown(self) -> dict[str, str]:
        """Return the effective settings by variable name, with secrets masked."""
        return {variable(field.name): _shown(field.name, getattr(self, field.name)) for field in fields(self)}

    @property
    def is_sqlite(self) -> bool:
        return self.database_url.startswith("sqlite")

    @property
    def session_url(self) -> str:
        """The database's URL for work that needs its own session: the direct URL, if one is set to bypass a pooler."""
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
        """Return a sentence for each missing setting; `serve`, `worker` and `doctor` show it."""
        if self.has_mail_transport:
            return ()
        return (
            "no mail is sent: neither BOOKING_SMTP_URL nor BOOKING_MAIL_DIR is set; confirmations and notices "
            "stay queued in the database",
        )

    def secret_keys(self) -> SecretKeys:
        """Return the keys that sign cursors and seal secrets. Beside an SQLite file a missing key is created.

        Raises:
            SettingError: none is set, and the database is shared: each process would create its own key.
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
        """True if there is a secret key: none would be created."""
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
        return Installation(self.secret_keys(), self.public_url, self.pending_minutes, self.cell or "")


SECRET_URLS = ("database_url", "database_direct_url", "rate_limit_store", "smtp_url")
"""Settings that are shown without the password in their URL. A key may look like a URL and is none."""
SECRETS = (*SECRET_URLS, "secret_key", "stripe_api_key", "metrics_token")
_OFF_UNLESS_SET = ("rate_limit", "guest_retention_days", "request_log")


def variable(name: str) -> str:
    """Return the environment variable of a field."""
    return f"BOOKING_{name.removesuffix('_s').upper()}"


def _parsed(name: str, kind: Any, text: str) -> Any:
    """Return the value of a text. One field's validator is built in a tenth of the time that all take."""
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError as error:
        (problem,) = error.errors(include_url=False, include_input=False)
        raise SettingError(f"{variable(name)} {problem['msg'].removeprefix('Value error, ')}") from None


def _shown(name: str, value: object) -> str:
    if value is None:
        return "off" if name in _OFF_UNLESS_SET else ""
    if name in SECRETS:
        return masked(str(value)) if name in SECRET_URLS else "***"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple) and not isinstance(value, Address):
        return (" " if name == "cells" else ",").join(map(str, value))
    return str(value)


def _kept_secret(path: Path) -> list[str]:
    """Return the keys in the file. The first caller creates it with a new key, mode 0600."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_files.FILE_MODE)
    except FileExistsError:
        return _read_secret(path)
    except OSError as error:
        raise SettingError(f"BOOKING_SECRET_KEY is not set, and {path} cannot be made: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        key = secrets.token_urlsafe(32)
        file.write(key + "\n")
    return [key]


def _read_secret(path: Path) -> list[str]:
    """Return the keys in a file of the form of BOOKING_SECRET_KEY."""
    text = path.read_text().strip()
    if not text:
        raise SettingError(f"BOOKING_SECRET_KEY is not set, and {path} is empty")
    try:
        return _split_keys(_secret_key(text))
    except ValueError as error:
        raise SettingError(f"BOOKING_SECRET_KEY is not set, and {path} {error}") from None
