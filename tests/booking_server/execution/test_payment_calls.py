"""An organization has so many requests under way that may call Stripe, and the next ones are refused at once."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from support.world import World

from booking_core.base.errors import Unavailable
from booking_server.adapters.stripe_intents import StripeIntents
from booking_server.execution.service import PaymentCalls

PLACES = 3


@pytest.fixture
def calls() -> PaymentCalls:
    return PaymentCalls(StripeIntents(), of_one_max=PLACES)


def test_an_organization_whose_places_are_taken_is_refused_as_by_a_queue(calls: PaymentCalls, world: World) -> None:
    """So that the admission repeats the refusal, and the application is not asked each time."""
    organization = world.organization
    with ExitStack() as taken:
        for _ in range(PLACES):
            taken.enter_context(calls.place(organization))
        with pytest.raises(Unavailable) as refused, calls.place(organization):
            pass
        assert refused.value.reason == "queue"
        with calls.place(replace(organization, id="another")):
            pass
    with calls.place(organization):
        pass


def test_a_sandbox_which_asks_no_stripe_takes_no_place(calls: PaymentCalls, world: World) -> None:
    sandbox = replace(world.organization, clock_offset=0)
    with ExitStack() as taken:
        for _ in range(PLACES + 1):
            taken.enter_context(calls.place(sandbox))
