"""The shell blocks of the guides, run as they are printed."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

from support import pages
from support.demo import call
from support.servers import free_port

Booking = Callable[..., Any]


def test_the_first_five_minutes_work(
    booking: Booking, environment: Callable[[str, str], None], process: Callable[..., subprocess.Popen[str]]
) -> None:
    started = process("demo", "--port", str(free_port()))
    assert started.stderr is not None
    assert started.stdout is not None
    try:
        list(takewhile(lambda line: "Uvicorn running on" not in line, started.stderr))
        for name, value in _exports(started.stdout).items():
            environment(name, value)
        _first_five_minutes(booking)
        ((register,),) = pages.commands("guides/receivers/index.md")
        status, answer = call(os.path.expandvars(register))
        assert status == 201 or (status, answer["code"]) == (422, "validation_failed"), answer
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate()


def _first_five_minutes(booking: Booking) -> None:
    (me,), (availability,), (book,), commands = pages.commands("start.md")
    assert call(os.path.expandvars(me))[1]["organization"]["slug"] == "fjord-tours"
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()  # what departs today may have left already
    status, found = call(os.path.expandvars(availability).replace("$(date +%F)", f"{tomorrow}"))
    assert status == 200
    departure = next(each for each in found["data"] if each["seats_available"] >= 4)
    experience = (
        f"-H 'Authorization: Bearer $BOOKING_API_KEY' $BOOKING_BASE_URL/api/v1/experiences/{departure['experience_id']}"
    )
    tiers = call(os.path.expandvars(f"curl -s {experience}"))[1]["price_tiers"]
    ids = {"DEPARTURE": departure["id"], "TIER": next(tier["id"] for tier in tiers if tier["seats_per_unit"] == 1)}
    request = re.sub("DEPARTURE|TIER", lambda match: ids[match[0]], os.path.expandvars(book))
    first, again = call(request), call(request)
    assert first[0] == 201
    assert again == first
    for command in commands:
        done = booking(*shlex.split(command)[1:])
        assert done.code == 0, (command, done.err)


def _exports(lines: Any) -> dict[str, str]:
    """Return the variables that the demo prints."""
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith("export "):
            (word,) = shlex.split(line)[1:]
            name, _, value = word.partition("=")
            found[name] = value
        elif found:
            break
    return found


def test_the_operators_commands_work_on_a_new_database(stored: Booking) -> None:
    for page in ("guides/operators/index.md", "guides/operators/health.md", "guides/operators/watching.md"):
        for command in [command for block in pages.commands(page) for command in block]:
            program, *words = shlex.split(command)
            done = stored(*words)
            assert (program, done.code) == ("booking", 0), (command, done.err)


RUNBOOKS = ("install", "sizing", "upgrade", "backup", "keys", "failover", "alerts")


def test_the_commands_of_the_runbooks_work_one_after_the_other(stored: Booking) -> None:
    for page in RUNBOOKS:
        for command in [command for block in pages.commands(f"operations/{page}.md") for command in block]:
            program, *words = shlex.split(command)
            done = stored(*words)
            assert (program, done.code) == ("booking", 0), (command, done.err)


def test_the_commands_about_what_guests_see_work(stored: Booking) -> None:
    new = ("--slug", "fjord-tours", "--name", "Fjord Tours", "--timezone", "Europe/Oslo", "--currency", "NOK")
    assert stored("orgs", "create", *new).code == 0
    for command in [command for block in pages.commands("guides/merchants/guests.md") for command in block]:
        program, *words = shlex.split(command)
        done = stored(*words)
        assert (program, done.code) == ("booking", 0), (command, done.err)
