"""The example catalogues of the demo are valid and have departures on any day, and their pictures are served."""

import contextlib
import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import product

import pytest
from fastapi import FastAPI
from sqlalchemy import select
from starlette.testclient import TestClient
from support.world.world import HOUR, World

from booking_cli.operator import demo_app, demo_data
from booking_cli.operator.demo_organizations import ORGANIZATIONS, DemoOrganization
from booking_core.base.clock import SECOND
from booking_core.base.context import Actor
from booking_core.base.errors import NotFound
from booking_core.catalogue import transfer
from booking_core.db import tables
from booking_core.db.statements import OWNER, Statement

ALL_BOOKINGS = Statement(select(tables.bookings.c.status).where(tables.bookings.c.organization_id == OWNER))
DAYS = tuple(date(2026, 11, 25) + timedelta(days=days) for days in (0, 40, 200, 360, 400, 1600))


@pytest.mark.exhaustive(but="fjord-tours")
@pytest.mark.parametrize("today", DAYS, ids=str)
@pytest.mark.parametrize("demo", ORGANIZATIONS, ids=[demo.slug for demo in ORGANIZATIONS])
def test_each_of_the_next_six_months_has_departures(demo: DemoOrganization, today: date) -> None:
    plan = transfer.validate(demo_data.shifted(json.loads(demo.catalogue.read_text()), today))
    starts = [datetime.fromtimestamp(entry.values["starts_at"] / SECOND, UTC).date() for entry in plan.departures]
    months = [sum(30 * month <= (start - today).days < 30 * (month + 1) for start in starts) for month in range(6)]
    assert min(months) >= 20
    assert months[0] >= 60
    if demo.slug == "fjord-tours":  # the key of the first call is of this one, and its guide books for tomorrow
        assert {today + timedelta(days=number) for number in range(183)} <= set(starts)


class Undone(Exception):
    """Ends a transaction whose changes nobody needs."""


class LargestParties(random.Random):
    """Always the largest number, of parties and of their guests."""

    def randint(self, a: int, b: int) -> int:
        return b


@pytest.mark.one_database
@pytest.mark.parametrize("demo", ORGANIZATIONS, ids=[demo.slug for demo in ORGANIZATIONS])
def test_bookings_fit_in_the_departures_when_the_next_ones_are_the_smallest(
    demo: DemoOrganization, new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_data.random, "Random", LargestParties)
    world = new_world(timezone=demo.timezone, default_currency=demo.currency)
    organization, installation = world.organization, world.installation
    today = datetime.fromtimestamp(world.clock() / SECOND, UTC).date()
    plan = transfer.validate(demo_data.shifted(json.loads(demo.catalogue.read_text()), today))
    world.database.write(lambda tx: transfer.import_plan(tx, organization, installation, plan, now=world.clock()))
    smallest = sorted(plan.departures, key=lambda departure: departure.values["seats_total"])[:3]
    for departure, hours in product(smallest, range(1, 12, 2)):
        at = max(departure.values["starts_at"] - hours * HOUR, world.clock())
        actor = Actor(installation=installation, organization=organization, at=at)
        with contextlib.suppress(Undone), world.database.writing() as tx:
            demo_data.add_bookings(tx, actor)
            tx.flush()
            rows = tx.all(ALL_BOOKINGS, organization_id=organization.id)
            assert {status for (status,) in rows} == {"confirmed", "cancelled"}, hours
            raise Undone


@pytest.mark.parametrize("demo", ORGANIZATIONS, ids=[demo.slug for demo in ORGANIZATIONS])
def test_the_pictures_of_the_experiences_are_served_and_cached(demo: DemoOrganization) -> None:
    app = FastAPI()
    app.include_router(demo_app.router)
    document = demo_data.with_pictures(json.loads(demo.catalogue.read_text()))
    urls = [experience["image_url"] for experience in document["experiences"] if experience.get("image_url")]
    assert len(urls) >= 10
    with TestClient(app) as client:
        for url in urls:
            picture = client.get(url)
            assert (picture.status_code, picture.headers["content-type"]) == (200, "image/svg+xml")
            assert picture.headers["cache-control"] == "public, max-age=3600"
            assert "<script" not in picture.text
        assert client.get("/demo/pictures/..%2fdemo_app.py").status_code == 404
        with pytest.raises(NotFound):
            client.get("/demo/pictures/none.svg")


def test_a_guest_reads_norwegian_titles_tiers_and_add_ons() -> None:
    for experience in json.loads(ORGANIZATIONS[0].catalogue.read_text())["experiences"]:
        texts = experience["translations"]["nb"]
        assert texts["title"] != experience["title"]
        for kind in ("price_tiers", "add_ons"):
            assert texts.get(kind, {}).keys() == {item["id"] for item in experience[kind]}
