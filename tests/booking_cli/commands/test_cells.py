"""`booking cells`, and the commands that work on every cell."""

import contextlib
import os
from collections.abc import Callable

import pytest
from support.world import SECRET

from booking_core import tokens
from booking_core.cells import moves
from booking_core.db import revisions, tables
from booking_core.db.engine import Database

Booking = Callable[..., object]

CREATE = ("orgs", "create", "--timezone", "Europe/Oslo", "--currency", "NOK", "--name", "Tours", "--slug")


@pytest.fixture
def celled(
    booking: Booking, environment: Callable[[str, str], None], new_database_url: Callable[[str], str]
) -> Booking:
    """Return a function that runs `booking` on a first cell, with the names of two others."""
    environment("BOOKING_DATABASE_URL", new_database_url("postgresql"))
    environment("BOOKING_SECRET_KEY", SECRET)
    environment("BOOKING_CELLS", "c2 aw=postgresql://nobody@127.0.0.1:1/gone")
    return booking


def test_a_cell_is_created_listed_and_used(celled: Booking, environment: Callable[[str, str], None]) -> None:
    assert states(celled) == {"first": "ready", "c2": "missing", "aw": "unreachable"}
    created = celled("cells", "create", "c2", "--json")
    assert (created.json["state"], created.json["organizations"]) == ("ready", 0)
    assert "booking_c2" in created.json["location"]
    assert celled("cells", "create", "nn", "--json").error["code"] == "bad_cell"
    assert states(celled)["c2"] == "ready"

    environment("BOOKING_CELLS", "c2")
    assert celled(*CREATE, "fjord", "--cell", "c2").code == 0
    assert celled(*CREATE, "ridge").code == 0
    taken = celled(*CREATE, "fjord", "--json")
    assert taken.error["code"] == "slug_taken"
    assert celled(*CREATE, "other", "--cell", "zz", "--json").error["code"] == "bad_cell"
    listed = celled("orgs", "list", "--json").json["data"]
    assert [(each["slug"], each["cell"]) for each in listed] == [("ridge", "first"), ("fjord", "c2")]

    upgraded = celled("db", "upgrade", "--json").json["data"]
    assert [(each["cell"], each["revision"]) for each in upgraded] == [
        ("first", revisions.head()),
        ("c2", revisions.head()),
    ]
    assert celled("keys", "create", "--org", "fjord", "--name", "web", "--json").code == 6
    environment("BOOKING_CELL", "c2")
    made = celled("keys", "create", "--org", "fjord", "--name", "web", "--json").json["key"]
    assert tokens.cell_of_api_key(made) == "c2"
    assert [each["action"] for each in celled("audit", "list", "--json").json["data"]] == [
        *("keys.create", "orgs.create", "cells.create"),
    ]


def test_a_cell_that_is_away_is_a_finding_and_does_not_keep_others_from_an_upgrade(celled: Booking) -> None:
    celled("cells", "create", "c2")
    upgraded = celled("db", "upgrade", "--json")
    assert upgraded.code != 0
    assert "cell aw" in upgraded.err
    examined = celled("doctor", "--json")
    assert examined.code == 1
    assert [each["subject"] for each in examined.json["data"] if each["kind"] == "broken"] == ["cell aw"]


def test_an_organization_moves_by_a_command_and_a_move_that_was_interrupted_is_a_finding(
    celled: Booking, environment: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment("BOOKING_CELLS", "c2")
    monkeypatch.setattr(moves, "LATE_S", 0.0)
    celled("cells", "create", "c2")
    celled(*CREATE, "fjord")
    with monkeypatch.context() as patched:
        patched.setattr(moves.Mover, "_clean_up", lambda *_: 1 / 0)
        assert celled("orgs", "move", "fjord", "--to", "c2").code != 0
    assert [(each["slug"], each["cell"]) for each in celled("orgs", "list", "--json").json["data"]] == [("fjord", "c2")]
    found = [each for each in celled("doctor", "--json").json["data"] if each["organization"]]
    assert [(each["subject"], each["remedy"]) for each in found] == [
        ("organization fjord", "booking orgs move fjord --to c2")
    ]
    assert celled("backup", "a.backup", "--json").error["code"] == "move_under_way"
    assert celled("orgs", "move", "fjord", "--to", "c2", "--abort", "--json").error["code"] == "bad_cell"
    moved = celled("orgs", "move", "fjord", "--to", "c2", "--json")
    assert (moved.json["slug"], moved.json["cell"]) == ("fjord", "c2")
    assert [each for each in celled("doctor", "--json").json["data"] if each["organization"]] == []
    assert celled("orgs", "move", "fjord", "--to", "c2", "--json").error["code"] == "moved_already"
    with contextlib.closing(Database(os.environ["BOOKING_DATABASE_URL"])) as first, first.writing() as tx:
        listed = celled("orgs", "list", "--json").json["data"][0]
        named = {name: listed[name] for name in ("id", "slug", "name", "timezone", "default_currency")}
        tx.insert(tables.organizations, **named, created_at=1, updated_at=1)
        tx.insert(tables.counters, organization_id=listed["id"])
    (twice,) = [each for each in celled("doctor", "--json").json["data"] if each["organization"]]
    assert (twice["invariant"], twice["kind"]) == ("an organization lives in one cell", "broken")
    assert celled("orgs", "move", "nothing", "--to", "c2", "--json").error["code"] == "not_found"


def states(booking: Booking) -> dict[str, str]:
    return {each["name"]: each["state"] for each in booking("cells", "list", "--json").json["data"]}
