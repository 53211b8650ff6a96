"""A start waits while the database is away, notifies once, and passes on any other error."""

from collections.abc import Callable

import pytest

from booking_core.db.waiting import is_away, patiently


class Away(Exception):
    pass


class Wrong(Exception):
    pass


class Start:
    """Fails with these errors one after the other, at a clock that each pause moves."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.notified: list[Exception] = []
        self.at = 0.0

    def run(self, pause: Callable[[float], object] | None = None) -> str:
        return patiently(
            self._work,
            lambda error: isinstance(error, Away),
            self.notified.append,
            wait_s=2,
            pause=pause or self._pause,
            clock=lambda: self.at,
        )

    def _pause(self, seconds: float) -> None:
        self.at += seconds

    def _work(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "started"


def test_it_starts_when_the_database_is_back_and_notifies_once() -> None:
    start = Start(Away(), Away(), Away())
    assert start.run() == "started"
    assert len(start.notified) == 1


def test_after_the_wait_the_error_is_raised() -> None:
    start = Start(*(Away() for _ in range(100)))
    with pytest.raises(Away):
        start.run()
    assert start.at == 2


def test_an_error_while_the_database_is_there_is_raised_at_the_second_try_without_a_pause() -> None:
    start = Start(Wrong(), Wrong())
    with pytest.raises(Wrong):
        start.run()
    assert (start.at, start.notified) == (0, [])


def test_a_database_that_came_back_after_the_first_try_is_used() -> None:
    assert Start(Wrong()).run() == "started"


def test_a_process_that_ends_does_not_wait_on() -> None:
    start = Start(*(Away() for _ in range(100)))
    with pytest.raises(Away):
        start.run(pause=lambda seconds: True)
    assert start.at == 0


def test_a_server_that_refuses_connections_is_away(postgres_server: str) -> None:
    assert is_away("postgresql://127.0.0.1:1/booking")
    assert not is_away(postgres_server)
    assert not is_away("sqlite:///booking.db")
