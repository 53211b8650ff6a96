"""The interface of the two drivers. It imports neither, since psycopg is not installed where only SQLite is used."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy.engine import Dialect

from booking_core.db.statements import Compiled, Row

Step = tuple[Compiled, dict[str, Any]]
"""A compiled statement and its parameters."""


class Connection(Protocol):
    """A connection in autocommit mode, with an explicit BEGIN and COMMIT."""

    def execute(self, compiled: Compiled, parameters: dict[str, Any], /) -> tuple[list[Row], int]:
        """Run a statement and return its rows and the number of affected rows."""

    def execute_pipeline(self, steps: Sequence[Step], /) -> list[list[Row]]:
        """Run the statements in order and return the rows of each."""

    def command(self, text: str, /) -> None:
        """Run a statement without parameters and rows, such as SAVEPOINT."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self, last: Step | None = None, /) -> None:
        """End the transaction, after a last statement whose rows are not read."""

    def rollback(self) -> None:
        """Undo the transaction."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @property
    def broken(self) -> bool:
        """Whether the connection must not be used again."""

    @property
    def was_closed_by_server(self) -> bool:
        """Whether the server has closed the connection while it was idle."""

    def without_statement_timeout(self) -> AbstractContextManager[None]:
        """Lift the statement timeout inside the block."""

    def close(self) -> None:
        """Close the connection."""


class Driver(Protocol):
    """Opens connections to one database and classifies its errors."""

    @property
    def dialect(self) -> Dialect:
        """The SQLAlchemy dialect that statements are compiled for."""

    @property
    def readers(self) -> int:
        """The greatest number of connections for reads."""

    @property
    def writers(self) -> int:
        """The greatest number of connections for transactions."""

    def connect(self, writable: bool, /) -> Connection:
        """Open a connection."""

    def translate(self, error: Exception, /) -> Exception | None:
        """Return the error that a client gets; none for an error of the program."""

    def is_retryable(self, error: Exception, /) -> bool:
        """Return whether another run of the transaction may succeed."""
