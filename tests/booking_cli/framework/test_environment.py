"""Variables of the environment that look like a setting and are none."""

from collections.abc import Mapping
from dataclasses import fields

import pytest

from booking_cli.framework.environment import VARIABLES, misspelt
from booking_core.base.settings import Settings, variable


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"BOOKING_RATELIMIT": "1/1"}, ["BOOKING_RATELIMIT is not a setting; did you mean BOOKING_RATE_LIMIT?"]),
        ({"BOOKING_DATABSE_URL": "x"}, ["BOOKING_DATABSE_URL is not a setting; did you mean BOOKING_DATABASE_URL?"]),
        ({"BOOKING_PORT": "8080"}, ["BOOKING_PORT is not a setting"]),
        ({"BOOKING_RATELIMIT": ""}, []),
        ({"RATELIMIT": "1", "MY_BOOKING_RATELIMIT": "1"}, []),
        ({"BOOKING_YY": "1", "BOOKING_XX": "1"}, ["BOOKING_XX is not a setting", "BOOKING_YY is not a setting"]),
    ],
)
def test_a_variable_that_nothing_reads_is_named_with_the_nearest_setting(
    environment: Mapping[str, str], said: list[str]
) -> None:
    assert list(misspelt(environment)) == said


def test_every_setting_and_every_variable_of_the_client_is_one() -> None:
    names = [variable(each.name) for each in fields(Settings)] + [name for name, _, _ in VARIABLES]
    assert list(misspelt(dict.fromkeys(names, "x"))) == []
