"""A breaker keeps callers from a server that fails, and lets one of them have it probed after a pause."""

import pytest

from booking_core.circuit_breaker import FAILURES_MAX, PAUSE_MAX_S, PAUSE_S, CircuitBreaker


class Clock:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    """A breaker that a probe has closed, and whose server has answered since."""
    made = CircuitBreaker(clock=clock)
    made.probed(is_well=True)
    made.succeeded()
    return made


def pause_s(breaker: CircuitBreaker, clock: Clock) -> float:
    """Return the seconds until the next probe is due, to a quarter of a second, and let it be taken."""
    begun = clock.at
    while not breaker.takes_probe():
        clock.at += 0.25
    return clock.at - begun


def test_nothing_is_asked_before_the_first_probe_which_is_due_at_once(clock: Clock) -> None:
    breaker = CircuitBreaker(clock=clock)
    assert breaker.is_open
    assert breaker.takes_probe()
    assert breaker.probed(is_well=True)
    assert not breaker.is_open


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not(breaker: CircuitBreaker) -> None:
    for _ in range(5):
        assert [breaker.failed() for _ in range(FAILURES_MAX - 1)] == [False] * (FAILURES_MAX - 1)
        breaker.succeeded()
    assert [breaker.failed() for _ in range(FAILURES_MAX + 1)] == [False, False, True, False]
    assert breaker.is_open


def test_one_failure_that_has_cost_much_opens_it(breaker: CircuitBreaker) -> None:
    assert breaker.failed(opens=True)
    assert breaker.is_open


def test_one_caller_takes_the_probe_that_is_due_and_no_other_until_it_has_ended(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    assert not breaker.takes_probe()
    breaker.failed(opens=True)
    assert not breaker.takes_probe()
    clock.at += PAUSE_S
    assert [breaker.takes_probe() for _ in range(3)] == [True, False, False]
    breaker.probed(is_well=False)
    assert breaker.is_open
    assert not breaker.takes_probe()


def test_each_pause_is_twice_the_one_before_up_to_a_bound(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed(opens=True)
    pauses = []
    for _ in range(8):
        pauses.append(pause_s(breaker, clock))
        breaker.probed(is_well=False)
    assert pauses == [1, 2, 4, 8, 16, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S]


def test_a_server_that_answers_probes_and_no_caller_costs_one_failure_for_each_longer_pause(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    breaker.failed(opens=True)
    pauses = []
    for _ in range(4):
        pauses.append(pause_s(breaker, clock))
        assert breaker.probed(is_well=True)
        assert breaker.failed()  # the first one
    assert pauses == [1, 2, 4, 8]


def test_the_pauses_are_short_again_after_a_success(breaker: CircuitBreaker, clock: Clock) -> None:
    for _ in range(3):
        breaker.failed(opens=True)
        assert pause_s(breaker, clock) == PAUSE_S
        breaker.probed(is_well=True)
        breaker.succeeded()
