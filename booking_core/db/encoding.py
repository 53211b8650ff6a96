"""Refuses a PostgreSQL database that does not keep text as UTF-8.

Without a locale, as on a minimal Debian, `createdb` makes one in SQL_ASCII: clients get its texts as bytes, and the
server counts bytes where limits count characters.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

REQUIRED = "UTF8"


class EncodingRequired(Exception):
    """The database keeps text in another encoding."""

    code = "wrong_encoding"
    hint = "make the database anew: createdb --encoding UTF8 --template template0 NAME"

    def __init__(self, found: str) -> None:
        super().__init__(f"The database has the encoding {found}, and the service needs {REQUIRED}.")


def require_utf8(connection: "psycopg.Connection") -> "psycopg.Connection":
    """Return the connection; the server has said its encoding with the login.

    Raises:
        EncodingRequired: it is another one. The connection is closed.
    """
    found = connection.info.parameter_status("server_encoding")
    if found not in (None, REQUIRED):
        connection.close()
        raise EncodingRequired(found)
    return connection
