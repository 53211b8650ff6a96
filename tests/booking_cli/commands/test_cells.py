"""`booking cells`, and the commands that work on every cell."""

from collections.abc import Callable

import pytest
from support.serving.commands import Booking, Environment
from support.world.world import SECRET

from booking_core.base import tokens
from booking_core.db import revisions

CREATE = ("orgs", "create", "--timezone", "Europe/Oslo", "--currency", "NOK", "--name", "Tours", "--slug")


@pytest.fixture
def celled(booking: Booking, environment: Environment, new_database_url: Callable[[str], str]) -> Booking:
    """Return a function that runs `booking` on a first cell, with the names of two others."""
    environment("BOOKING_DATABASE_URL", new_database_url("postgresql"))
    environment("BOOKING_SECRET_KEY", SECRET)
    environment("BOOKING_CELLS", "c2 aw=postgresql://nobody@127.0.0.1:1/gone")
    return booking


def test_a_cell_is_created_listed_and_used(celled: Booking, environment: Environment) -> None:
    assert states(celled) == {"first": "ready", "c2": "missing", "aw": "unreachable"}
    created = celled("cells", "create", "c2", "--json")
    assert (created.json["state"], created.json["organizations"]) == ("ready", 0)
    assert "booking_c2" in created.json["location"]
    assert celled("cells", "create", "nn", "--json").error["code"] == "bad_cell"
    assert states(celled)["c2"] == "ready"

    environment("BOOKING_CELLS", "c2")
    assert celled(*CREATE, "fjord", "--cell", "c2").code == 0
    assert celled(*CREATE, "ridge").code == 0
    refused = celled(*CREATE, "fjord", "--json")
    assert refused.error["code"] == "slug_taken"
    assert celled(*CREATE, "other", "--cell", "zz", "--json").error["code"] == "bad_cell"
    listed = celled("orgs", "list", "--json").json["data"]
    assert [(entry["slug"], entry["cell"]) for entry in listed] == [("ridge", "first"), ("fjord", "c2")]

    upgraded = celled("db", "upgrade", "--json").json["data"]
    assert {entry["cell"]: entry["revision"] for entry in upgraded} == dict.fromkeys(("first", "c2"), revisions.head())
    assert celled("keys", "create", "--org", "fjord", "--name", "web", "--json").code == 6
    environment("BOOKING_CELL", "c2")
    key = celled("keys", "create", "--org", "fjord", "--name", "web", "--json").json["key"]
    assert tokens.cell_of_api_key(key) == "c2"
    entries = celled("audit", "list", "--json").json["data"]
    assert [entry["action"] for entry in entries] == ["keys.create", "orgs.create", "cells.create"]


def test_an_unavailable_cell_is_a_finding_and_others_are_upgraded(celled: Booking) -> None:
    celled("cells", "create", "c2")
    upgraded = celled("db", "upgrade", "--json")
    assert (upgraded.code != 0, "cell aw" in upgraded.err) == (True, True)
    examined = celled("doctor", "--json")
    assert examined.code == 1
    assert [finding["subject"] for finding in examined.json["data"] if finding["kind"] == "broken"] == ["cell aw"]


def states(booking: Booking) -> dict[str, str]:
    return {cell["name"]: cell["state"] for cell in booking("cells", "list", "--json").json["data"]}
