"""Helpers for tests of the demo: a catalogue with a departure every day, and the commands that the demo prints."""

import json
import shlex
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any


def call(command: str) -> tuple[int, Any]:
    """Send the request of a curl command, and return its status and response."""
    _, _, *words = shlex.split(command)
    headers, body, url = {}, None, ""
    while words:
        word = words.pop(0)
        if word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word == "|":
            break
        elif word == "-d":
            body = words.pop(0).encode()
        elif word != "-i":
            url = word
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def exported(printed: str) -> dict[str, str]:
    """Return the variables that the page of the demo exports, except PATH."""
    lines = (line.removeprefix("export ") for line in printed.splitlines() if line.startswith("export BOOKING"))
    return dict(line.split("=", 1) for line in lines)


def booking_command(printed: str) -> list[str]:
    """Return the arguments of the booking command that the page of the demo prints."""
    (line,) = (line for line in printed.replace("\\\n", "").splitlines() if " bookings create " in line)
    return shlex.split(line)[1:]


def small(slug: str, currency: str) -> dict[str, Any]:
    """Return a catalogue with a departure on every day: the demo then works on the day of the test."""
    price = {"amount_minor": 89000, "currency": currency}
    today = datetime.now(UTC).date()
    days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    schedule = {"weekdays": days, "times": ["12:00"], "seats_total": 9}
    schedule |= {"from": f"{today}", "to": f"{today + timedelta(days=60)}"}
    return {
        "experiences": [
            {"slug": slug, "title": slug, "duration_minutes": 60, "price_from": price, "schedules": [schedule]}
        ]
    }
