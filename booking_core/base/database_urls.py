"""URLs of databases: SQLAlchemy's form, and libpq's with several hosts.

SQLAlchemy refuses `postgresql://one,two/booking`, which is parsed here. The parameter `schema` is the service's own:
the schema of PostgreSQL that holds its tables.
"""

import re
from typing import Any

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

_SESSION_ATTRS = ("any", "read-write", "read-only", "primary", "standby", "prefer-standby")
_LISTS = ("host", "hostaddr", "port")
_PORT_MAX = 65_535
_HOST = re.compile(r"(?:\[(.*)\]|([^:]*))(?::(.*))?")
"""A host with its port, such as `one:5432` or `[::1]:5432`, or without."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
"""Names that need no quotation marks anywhere."""

_DIALECT: Any = PGDialect_psycopg()  # type: ignore[no-untyped-call]

Parameters = dict[str, str]
"""Parameters of a connection by libpq's names."""


def parse(text: str) -> URL:
    """Return the URL. Several hosts, as in `postgresql://one:5432,two:5433/booking`, become lists in its query.

    Raises:
        ArgumentError: it is not a URL.
    """
    scheme, separator, rest = text.partition("://")
    end = min((rest.find(mark) for mark in "/?" if mark in rest), default=len(rest))
    user, at, hosts = rest[:end].rpartition("@")
    try:
        if "," not in hosts or not scheme.startswith("postgresql"):
            return make_url(text)
        url = make_url(f"{scheme}{separator}{user}{at}{rest[end:]}")
    except ValueError:  # a port that is no number
        raise ArgumentError("not a database URL") from None
    parts = [match.groups("") if (match := _HOST.fullmatch(host)) else (host, "", "") for host in hosts.split(",")]
    query = {"host": ",".join(a or b for a, b, _ in parts), "port": ",".join(port for _, _, port in parts)}
    return url.update_query_dict({key: text for key, text in query.items() if key not in url.query and text.strip(",")})


def schema_of(url: URL) -> str | None:
    """Return the schema of a PostgreSQL URL; none where the database decides.

    Raises:
        ValueError: it is not a plain name.
    """
    name = url.query.get("schema")
    if name is not None and not (isinstance(name, str) and _SCHEMA.fullmatch(name)):
        raise ValueError("must have a schema of lower-case letters, digits and underscores")
    return name if isinstance(name, str) else None


def with_schema(text: str, schema: str) -> str:
    """Return the URL of a schema of the same database."""
    url = parse(text).update_query_dict({"schema": schema})
    return url.render_as_string(hide_password=False)


def parameters(url: URL) -> Parameters:
    """Return libpq's parameters of a PostgreSQL URL.

    Several hosts without `target_session_attrs` get `read-write`: after a failover the first of them may be a standby,
    or the server that was the primary before.

    Raises:
        ValueError: there are not as many ports or addresses as hosts, or a value is not one of libpq's.
    """
    ports = {"port": _joined(url.query["port"])} if "port" in url.query else {}
    try:
        _, arguments = _DIALECT.create_connect_args(url.difference_update_query(["port", "schema"]))
    except (ArgumentError, ValueError):
        raise ValueError("must have as many ports as hosts, all of them numbers") from None
    params = {key: _joined(value) for key, value in arguments.items()} | ports
    if params.pop("ssl", "") == "true":  # libpq takes it in URLs, as JDBC writes it
        params["sslmode"] = "require"
    return _checked(params)


def _joined(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _checked(params: Parameters) -> Parameters:
    lists = {key: params[key].split(",") for key in _LISTS if params.get(key, "").strip(",")}
    count = max(len(lists.get(key, "1")) for key in ("host", "hostaddr"))
    for key, values in lists.items():
        if len(values) != count and not (key == "port" and len(values) == 1):
            raise ValueError(f"must have one {key} for each of its {count} hosts")
    if any(port and not (port.isdecimal() and 0 < int(port) <= _PORT_MAX) for port in lists.get("port", ())):
        raise ValueError(f"must have ports from 1 to {_PORT_MAX}")
    if count > 1:
        params.setdefault("target_session_attrs", "read-write")
    if params.get("target_session_attrs", "any") not in _SESSION_ATTRS:
        raise ValueError(f"must have a target_session_attrs of {', '.join(_SESSION_ATTRS)}")
    return {key: value for key, value in params.items() if value.strip(",")}


def has_several_servers(params: Parameters) -> bool:
    """Return whether the parameters name more than one server."""
    return "," in params.get("host", "") + params.get("hostaddr", "")


def servers(params: Parameters) -> list[str]:
    """Return each host with its port, for people."""
    hosts = (params.get("host") or params.get("hostaddr") or "local socket").split(",")
    ports = params.get("port", "").split(",")
    host_ports = ports if len(ports) == len(hosts) else ports * len(hosts)
    return [f"{host}:{port}" if port else host for host, port in zip(hosts, host_ports, strict=True)]


def masked(url: str) -> str:
    """Return the URL without its password, also without one in the query, as libpq and Redis accept it."""
    parts = parse(url)
    hidden: dict[str, Any] = {name: "***" for name in parts.query if "password" in name.lower()}
    text = parts.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")
    return text.replace("%2C", ",") if parts.query.get("host") else text
