"""A start waits while the database is unavailable, notifies once, and passes on any other error."""

import pytest

from booking_core.db.waiting import is_away, patiently


class Away(Exception):
    pass


class Wrong(Exception):
    pass


@pytest.mark.parametrize(
    ("errors", "outcome", "waited_s", "notified", "ends"),
    [
        pytest.param([Away] * 3, None, 1.5, 1, False, id="it starts when the database is back"),
        pytest.param([Away] * 100, Away, 2, 1, False, id="after the wait the error is raised"),
        pytest.param([Wrong] * 2, Wrong, 0, 0, False, id="another error is raised at the second try, without a pause"),
        pytest.param([Wrong], None, 0, 0, False, id="a database that came back after the first try is used"),
        pytest.param([Away] * 100, Away, 0, 1, True, id="a process that ends does not wait on"),
    ],
)
def test_a_start_waits_while_the_database_is_away(
    errors: list[type[Exception]], outcome: type[Exception] | None, waited_s: float, notified: int, ends: bool
) -> None:
    at, seen, left = 0.0, list[Exception](), list(errors)

    def start() -> str:
        if left:
            raise left.pop(0)
        return "started"

    def pause(seconds: float) -> bool:
        nonlocal at
        at += 0 if ends else seconds
        return ends

    def run() -> str:
        return patiently(
            start, lambda error: isinstance(error, Away), seen.append, wait_s=2, pause=pause, clock=lambda: at
        )

    if outcome is None:
        assert run() == "started"
    else:
        with pytest.raises(outcome):
            run()
    assert (at, len(seen)) == (waited_s, notified)


def test_a_server_that_refuses_connections_is_away(postgres_server: str) -> None:
    assert is_away("postgresql://127.0.0.1:1/booking")
    assert not is_away(postgres_server)
    assert not is_away("sqlite:///booking.db")
