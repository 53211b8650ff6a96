"""An import changes the stored rows to the catalogue once, and touches nothing that was sold or spent."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from support.serving.threads import together
from support.world.catalogue import (
    TABLES,
    Document,
    cards,
    counts,
    departure,
    departures,
    everything,
    exported,
    load,
    money,
    refused,
    stored,
    tier,
    tour,
    tours,
)
from support.world.world import DAY, HOUR, NOON, SECRET, World

from booking_core.base import tokens
from booking_core.base.clock import zone
from booking_core.base.context import Installation
from booking_core.base.errors import Conflict
from booking_core.catalogue import experiences, transfer
from booking_core.catalogue.transfer import Counts
from booking_core.db import tables
from booking_core.db.paging import PageRequest

A, B, C, D, E = (f"00000000-0000-4000-8000-00000000000{n}" for n in range(5))
START = zone("Europe/Oslo").parse("2026-12-24T10:00:00")


# The examples ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=[("fjord-tours.json", "Europe/Oslo", "NOK"), ("isla-tours.json", "America/Santiago", "CLP")])
def example(
    request: pytest.FixtureRequest, example_dir: Path, new_world: Callable[..., World]
) -> tuple[World, dict[str, Any], str]:
    name, timezone, currency = request.param
    world = new_world(timezone=timezone, default_currency=currency)
    return world, transfer.parse((example_dir / name).read_bytes()), name


COUNTED = {"fjord-tours.json": (14, 2635, 13, 6), "isla-tours.json": (12, 1695, 12, 5)}
CLOCK_CHANGES = {
    "fjord-tours.json": {"2027-03-28T03:30:00+02:00", "2027-10-31T02:30:00+02:00"},
    "isla-tours.json": {
        "2026-09-06T01:00:00-03:00",
        "2026-09-06T01:30:00-03:00",
        "2027-04-03T23:30:00-03:00",
        "2027-09-05T01:00:00-03:00",
        "2027-09-05T01:30:00-03:00",
    },
}


@pytest.mark.one_database
def test_a_second_import_of_an_example_or_its_export_changes_nothing(
    example: tuple[World, dict[str, Any], str], new_world: Callable[..., World], statements: list[str]
) -> None:
    world, document, name = example
    created = tuple(Counts(count, 0, 0) for count in COUNTED[name])
    unchanged = tuple(Counts(0, 0, count) for count in COUNTED[name])
    progress: list[tuple[int, int]] = []
    statements.clear()
    summary = load(world, document, progress=lambda count, total: progress.append((count, total)))
    assert len(statements) <= 12
    total = sum(COUNTED[name])
    assert (progress[0], progress[-1], progress) == ((0, total), (total, total), sorted(set(progress)))
    assert counts(summary) == created
    assert tuple(len(stored(world, table)) for table in TABLES[:4]) == COUNTED[name]
    unpriced = [note for note in summary.notes if note.message.startswith("has no price")]
    assert len(unpriced) == 1
    assert {note.message.rpartition(" ")[2] for note in summary.notes if note not in unpriced} == CLOCK_CHANGES[name]
    before = everything(world)
    world.clock.advance(DAY)
    statements.clear()
    again = load(world, document)
    assert len(statements) <= 7
    export = exported(world)
    assert json.loads(json.dumps(export)) == export
    of_export = load(world, export)
    assert counts(again) == counts(of_export) == unchanged
    assert again.notes == summary.notes
    assert [note.message for note in of_export.notes] == [note.message for note in unpriced]
    assert everything(world) == before
    assert world.rows(tables.events) == []
    copy = new_world(timezone=world.organization.timezone, default_currency=world.organization.default_currency)
    assert counts(load(copy, export)) == created
    assert exported(copy) == export


# Before and after ------------------------------------------------------------------------------------------------

EUR = {"price_from": money(9000, "EUR"), "price_tiers": [], "add_ons": []}
ADULT, CHILD = tier("adult", 89000), tier("child", 45000)
TIERS = {"price_tiers": [ADULT, CHILD]}
GERMAN = {
    "title": "Fjordkajak",
    "excerpt": "Zwei Stunden auf dem Wasser.",
    "meeting_point": "Am Bootshaus.\nParken ist frei.",
    "what_to_bring": ["Ein Handtuch"],
    "terms": "Kinder nur mit Erwachsenen.",
    "price_tiers": {"adult": "Erwachsene"},
    "add_ons": {"suit": "Trockenanzug"},
}
TRANSLATED = {
    "price_tiers": [ADULT],
    "add_ons": [{"id": "suit", "label": "Dry suit", "price": money(89000)}],
    "translations": {"de": GERMAN, "pt-BR": {"title": "Caiaque"}},
}
HOURS = ("10", "11", "12", "13")


def at(hour: str, **keys: Any) -> Document:
    return departure(starts_at=f"2026-12-24T{hour}:00:00", **keys)


def customer(**keys: Any) -> Document:
    """Return a file with one customer."""
    return {"customers": [{"email": "a@example.com", "name": "A"} | keys]}


@dataclass(frozen=True)
class Import:
    """A file that is imported after another."""

    before: Document
    after: Document
    counts: dict[str, tuple[int, int, int]]
    """Created, updated and unchanged entries by kind."""
    export: Document = field(default_factory=dict)
    """The parts of the export afterwards that the row is about."""
    notes: dict[str, str] = field(default_factory=dict)


def export_with(**keys: Any) -> Document:
    return tours(keys)


def shown_departures(*items: Document) -> Document:
    """Return departures as an export shows them, with the offset of Oslo in winter."""
    times = ("starts_at", "ends_at")
    return export_with(
        departures=[item | {key: f"{item[key]}+01:00" for key in times if item.get(key)} for item in items]
    )


def of_tour(
    before: Document, after: Document, *, updated: int = 1, notes: dict[str, str] | None = None, **keys: Any
) -> Import:
    """Return two files with one experience, and keys that the export then shows of it."""
    files = tours(tour(**before)), tours(tour(**after))
    return Import(*files, {"experiences": (0, updated, 1 - updated)}, export_with(**keys), notes or {})


STANDARD = {"translations": {"de": {"price_tiers": {"standard": "Person"}}}}
STORED = {"translations": TRANSLATED["translations"]}
REPLACED = {"translations": {"de": {"title": "Kajak"}}}
IMPORTS = {
    "a new experience is published and empty": Import(
        {},
        tours({"slug": "bare", "title": "Bare"}),
        {"experiences": (1, 0, 0)},
        export_with(
            is_published=True, languages=[], price_tiers=[], price_from=None, what_to_bring=None, translations={}
        ),
    ),
    "an experience is matched by id, then by slug": Import(
        tours(tour(id=A, slug="one"), tour(id=B, slug="two")),
        tours(tour(id=A, slug="uno"), tour(slug="two", title="Two")),
        {"experiences": (0, 2, 0)},
        tours({"id": A, "slug": "uno", "title": "Kayak"}, {"id": B, "slug": "two", "title": "Two"}),
    ),
    "an id that is not the stored one of that slug is reported": Import(
        tours(tour(id=A)),
        tours(tour(id=B)),
        {"experiences": (0, 0, 1)},
        export_with(id=A),
        {"/experiences/0/id": f"is stored as {A}, and stays so"},
    ),
    "a key that is left out stays, and a null is emptied": Import(
        tours(tour(excerpt="Flat water.", address="Eidfjord", tags=["water"])),
        tours({"slug": "kayak", "title": "Kayak", "address": None}),
        {"experiences": (0, 1, 0)},
        export_with(excerpt="Flat water.", address=None, tags=["water"], price_from=money(89000)),
    ),
    "a duration is removed from departures with ends": Import(
        departures(departure(24), departure(25)),
        departures(*(departure(day, ends_at=f"2026-12-{day}T12:00:00") for day in (24, 25)), duration_minutes=None),
        {"experiences": (0, 1, 0), "departures": (0, 2, 0)},
    ),
    "departures of every kind": Import(
        {},
        departures(
            departure(24, price=money(119000)),
            departure(starts_at="2026-12-25T10:00:00+01:00", ends_at="2026-12-25T18:00:00", status="closed"),
        ),
        {"departures": (2, 0, 0)},
        shown_departures(
            departure(24, price=money(119000), ends_at=None, status="open"),
            departure(25, price=None, ends_at="2026-12-25T18:00:00", status="closed"),
        ),
    ),
    "a departure is matched by id, then by start": Import(
        departures(departure(24, id=A), departure(25)),
        departures(at("11", id=A), departure(25, seats_total=20), departure(24, seats_total=3)),
        {"departures": (1, 2, 0)},
        shown_departures(departure(24, seats_total=3), at("11", id=A), departure(25, seats_total=20)),
    ),
    "departures all move by one place": Import(
        departures(*(at(hour, id=key) for hour, key in zip(HOURS, (A, B, C), strict=False))),
        departures(*(at(hour, id=key) for hour, key in zip(HOURS[1:], (A, B, C), strict=True)), at("10")),
        {"departures": (1, 3, 0)},
        shown_departures(at("10"), at("11", id=A), at("12", id=B), at("13", id=C)),
    ),
    "departures move in a circle": Import(
        departures(*(at(hour, id=key) for hour, key in zip(HOURS, (A, B, C), strict=False))),
        departures(at("11", id=A), at("12", id=B), at("10", id=C)),
        {"departures": (0, 3, 0)},
        shown_departures(at("10", id=C), at("11", id=A), at("12", id=B)),
    ),
    "a departure moves after its stored end together with the end": Import(
        departures(departure(id=A, ends_at="2026-12-24T12:00:00")),
        departures(at("13", id=A, ends_at=None)),
        {"departures": (0, 1, 0)},
    ),
    "a departure that is left out is not deleted": Import(
        departures(departure(24), departure(25)),
        departures(departure(24)),
        {"departures": (0, 0, 1)},
        shown_departures(departure(24), departure(25)),
    ),
    "a price for a tier is an amount or a number of minor units": Import(
        {},
        departures(departure(prices={"adult": money(99000), "child": 40000}), **TIERS),
        {"departures": (1, 0, 0)},
        shown_departures({"price": None, "prices": {"adult": money(99000), "child": money(40000)}}),
    ),
    "prices that are left out stay": Import(
        departures(departure(prices={"child": 40000}), **TIERS),
        departures(departure(), **TIERS),
        {"departures": (0, 0, 1)},
        shown_departures({"prices": {"child": money(40000)}}),
    ),
    **{
        f"prices that are {nothing} are emptied": Import(
            departures(departure(prices={"child": 40000}), **TIERS),
            departures(departure(prices=nothing), **TIERS),
            {"departures": (0, 1, 0)},
            shown_departures({"prices": None}),
        )
        for nothing in (None, {})
    },
    "prices of departures to come for a removed tier are noted": Import(
        departures(
            departure(starts_at="2026-11-01T10:00:00", prices={"child": 1}),
            departure(prices={"adult": 70000, "child": 30000}),
            **TIERS,
        ),
        tours(tour(price_tiers=[ADULT])),
        {"experiences": (0, 1, 0)},
        shown_departures({"prices": None}, {"prices": {"adult": money(70000)}}),
        {"/experiences/0/price_tiers": "1 stored departures have prices for removed tiers (child), which are ignored"},
    ),
    "departures without a tier and a price are noted": Import(
        departures(departure(price=money(70000))),
        departures(departure(price=None), departure(25), departure(26, status="closed"), price_from=None),
        {"experiences": (0, 1, 0), "departures": (2, 1, 0)},
        shown_departures({"price": None}, {"price": None}, {"price": None}),
        {"/experiences/0": "has no price, so 2 departures without one are closed for booking"},
    ),
    "tiers are added with prices for them": Import(
        departures(departure(price=money(70000))),
        departures(departure(prices={"adult": 70000}), **TIERS),
        {"departures": (0, 1, 0)},
        shown_departures({"price": None, "prices": {"adult": money(70000)}}),
    ),
    "translations arrive and leave as they were written": Import(
        {}, tours(tour(**TRANSLATED)), {"experiences": (1, 0, 0)}, export_with(**STORED)
    ),
    "translations that are left out stay": of_tour(TRANSLATED, {}, updated=0, **STORED),
    "translations are replaced whole": of_tour(TRANSLATED, REPLACED, **REPLACED),
    **{
        f"translations that are {empty} are none": of_tour(TRANSLATED, {"translations": empty}, translations={})
        for empty in (None, {}, {"de": {}}, {"de": {"title": None, "add_ons": {}}})
    },
    "an experience without tiers has a name for the standard one": of_tour(
        {"price_tiers": []}, {"price_tiers": [], **STANDARD}, **STANDARD
    ),
    "translations alone are compared with the stored tiers and add-ons": of_tour(
        TRANSLATED | {"translations": None}, {"translations": {"de": GERMAN}}, translations={"de": GERMAN}
    ),
    "names of a tier that is removed are noted, and not exported": of_tour(
        TRANSLATED,
        {"price_tiers": [CHILD]},
        notes={
            "/experiences/0/translations/de/price_tiers/adult": "is no price tier of its experience, and is ignored"
        },
        translations=STORED["translations"] | {"de": {key: GERMAN[key] for key in GERMAN if key != "price_tiers"}},
    ),
    "a customer is matched by the identity of the address": Import(
        customer(email="Renée@Example.com", name="Renée", tags=["vip"]),
        customer(email="rene\u0301e@example.com", name="Renée Roy", email_subscription=True),
        {"customers": (0, 1, 0)},
        customer(email="Renée@Example.com", name="Renée Roy", tags=["vip"], email_subscription=True),
    ),
    "consent is not assumed": Import(
        {}, customer(), {"customers": (1, 0, 0)}, {"customers": [{"email_subscription": False}]}
    ),
    "consent is not withdrawn by silence": Import(
        customer(email_subscription=True),
        customer(),
        {"customers": (0, 0, 1)},
        {"customers": [{"email_subscription": True}]},
    ),
    "a gift card changes its code, contact and validity by id": Import(
        cards({"id": A, "purchaser": {"name": "A", "email": "a@example.com"}}),
        cards(
            {
                "id": A,
                "code": "new-code",
                "purchaser": None,
                "valid_from": "2027-01-01T00:00:00",
                "expires_at": "2028-01-01T00:00:00Z",
            }
        ),
        {"gift_cards": (0, 1, 0)},
        {
            "gift_cards": [
                {
                    "id": A,
                    "code": "NEW-CODE",
                    "purchaser": {"name": None, "email": None},
                    "valid_from": "2027-01-01T00:00:00+01:00",
                    "expires_at": "2028-01-01T01:00:00+01:00",
                }
            ]
        },
    ),
    "a gift card stays deactivated by silence": Import(
        cards({"is_active": False}), cards({}), {"gift_cards": (0, 0, 1)}, {"gift_cards": [{"is_active": False}]}
    ),
    "a gift card is activated by its key": Import(
        cards({"is_active": False}),
        cards({"is_active": True}),
        {"gift_cards": (0, 1, 0)},
        {"gift_cards": [{"is_active": True}]},
    ),
}


def covers(document: Any, part: Any) -> bool:
    """Return whether a document has everything of a part; a list has as many items."""
    if isinstance(part, dict):
        return all(key in document and covers(document[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(document) == len(part) and all(map(covers, document, part))
    return bool(document == part)


@pytest.mark.parametrize("case", IMPORTS.values(), ids=IMPORTS)
def test_a_file_changes_what_it_names_and_a_second_time_nothing(world: World, case: Import) -> None:
    load(world, case.before)
    world.clock.advance(HOUR)
    summary = load(world, case.after)
    assert {kind: getattr(summary, kind) for kind in case.counts} == case.counts
    assert dict(summary.notes) == case.notes
    export = exported(world)
    assert covers(export, case.export), export
    before = everything(world)
    for document in [case.after] if case.notes else [case.after, export]:
        assert all(kind.created == kind.updated == 0 for kind in counts(load(world, document)))
    assert everything(world) == before


REFUSALS: dict[str, tuple[Document, Document, dict[str, Any]]] = {
    "one bad entry": (
        {},
        departures(departure(24), departure(starts_at="soon")) | cards({}),
        {"/experiences/0/departures/1/starts_at": "must be an ISO 8601 timestamp"},
    ),
    "all conflicts with stored rows": (
        tours(
            tour(id=A, departures=[departure(24, id=B)]),
            tour(slug="other", departures=[departure(24), departure(25, id=C)]),
        )
        | customer(id=D)
        | cards({}, {"id": E, "code": "OTHER"}),
        tours(
            tour(id=A, slug="other", departures=[departure(24, id=C)]),
            tour(slug="new", departures=[departure(24, id=B)]),
        )
        | customer(id=D, email="b@example.com")
        | cards({"id": E}),
        {
            "/experiences/0/slug": ANY,
            "/experiences/0/departures/0/id": "is a departure of another experience",
            "/experiences/1/departures/0/id": "is a departure of another experience",
            "/customers/0/id": ANY,
            "/gift_cards/0/code": ANY,
        },
    ),
    "another currency beside stored prices": (
        tours(tour(price_tiers=[ADULT])),
        tours({"slug": "kayak", "title": "Kayak", "price_from": EUR["price_from"]}),
        {"/experiences/0": "is in EUR, and keeps prices in NOK that it leaves out here"},
    ),
    "another currency under prices of departures": (
        departures(departure(price=money(1))),
        tours(tour(**EUR)),
        {"/experiences/0": "is in EUR, and 1 stored departures have a price in NOK"},
    ),
    "another currency under prices of departures for tiers": (
        departures(departure(prices={"adult": 1}), price_tiers=[ADULT]),
        tours(tour(price_from=EUR["price_from"], price_tiers=[tier("adult", 9000, "EUR")])),
        {"/experiences/0": "is in EUR, and 1 stored departures have a price in NOK"},
    ),
    "no duration under departures without an end": (
        departures(departure(24), departure(25)),
        tours(tour(duration_minutes=None)),
        {"/experiences/0/duration_minutes": "is needed by 2 stored departures without an end"},
    ),
    "the start of another departure": (
        departures(departure(24, id=A), departure(25, id=B)),
        departures(departure(25, id=A)),
        {"/experiences/0/departures/0/starts_at": f"is the start of the departure {B}"},
    ),
    "a start after the stored end": (
        departures(departure(id=A, ends_at="2026-12-24T12:00:00")),
        departures(at("13", id=A)),
        {"/experiences/0/departures/0/starts_at": ANY},
    ),
    "a single price of an experience with stored tiers": (
        departures(departure(), price_tiers=[ADULT]),
        departures(departure(price=money(1))),
        {"/experiences/0/departures/0/price": ANY},
    ),
    "tiers over single prices of departures to come": (
        departures(departure(starts_at="2026-11-01T10:00:00", price=money(1)), departure(price=money(70000))),
        tours(tour(**TIERS)),
        {
            "/experiences/0/price_tiers": "cannot be added while 1 stored departures have a single price: give each"
            " prices, or price null"
        },
    ),
    "a translated name of a tier that is not stored": (
        tours(tour(**TRANSLATED)),
        tours(tour(translations={"de": {"price_tiers": {"child": "Kind"}}})),
        {"/experiences/0/translations/de/price_tiers/child": "is no price tier of its experience"},
    ),
}


@pytest.mark.one_database
@pytest.mark.parametrize(("before", "after", "problems"), REFUSALS.values(), ids=REFUSALS)
def test_a_file_is_refused_for_what_stands_against_it(
    world: World, before: Document, after: Document, problems: dict[str, Any]
) -> None:
    load(world, before)
    assert refused(world, after, other_currency=True) == problems


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tours(tour()), tours(tour(**EUR))),
        (departures(departure(price=money(1))), departures(departure(price=money(9000, "EUR")), **EUR)),
    ],
    ids=["of the experience", "of its departures too"],
)
def test_a_currency_is_changed_with_all_prices(world: World, before: Document, after: Document) -> None:
    load(world, before)
    assert load(world, after, other_currency=True).experiences == Counts(0, 1, 0)


# All or nothing --------------------------------------------------------------------------------------------------


def test_a_dry_run_counts_the_changes_and_needs_only_to_read(world: World) -> None:
    document = departures(departure()) | cards({})
    plan = transfer.validate(document, organization=world.organization)
    summary = world.database.read(
        lambda tx: transfer.import_plan(tx, world.organization, world.installation, plan, now=NOON, dry_run=True)
    )
    assert counts(summary) == (Counts(1, 0, 0), Counts(1, 0, 0), Counts(0, 0, 0), Counts(1, 0, 0))
    assert [stored(world, table) for table in TABLES] == [[]] * len(TABLES)


def test_another_organization_is_neither_seen_nor_touched(world: World, new_world: Callable[[], World]) -> None:
    document = departures(departure(id=A), id=B) | cards({"id": C}) | customer(id=D)
    other = new_world()
    load(other, document)
    before = everything(other)
    changed = json.loads(json.dumps(document).replace("Kayak", "Canoe"))
    assert counts(load(world, changed)) == (Counts(1, 0, 0),) * 4
    assert everything(other) == before


def test_two_concurrent_imports_have_the_result_of_two_successive_ones(world: World) -> None:
    document = departures(*(at(f"{hour:02}") for hour in range(24)))
    document["customers"] = [{"email": f"guest{i}@example.com", "name": "Guest"} for i in range(24)]
    summaries = together(*[partial(load, world, document)] * 4)
    assert sum(summary.departures.created for summary in summaries) == 24
    assert sum(summary.departures.unchanged for summary in summaries) == 3 * 24
    assert len(stored(world, tables.departures)) == len(stored(world, tables.customers)) == 24


# Experiences -----------------------------------------------------------------------------------------------------


def test_an_experience_arrives_and_leaves_with_everything_that_was_written(world: World) -> None:
    written = tour(
        id=A,
        is_published=False,
        excerpt="Two\nlines.",
        difficulty="easy",
        address="Eidfjord",
        latitude=60,
        longitude=7.07,
        image_url="https://images.example.com/a.jpg",
        languages=["nb", "en"],
        tags=["water"],
        price_tiers=[ADULT | {"seats_per_unit": 2}],
        min_participants=2,
        hours_before_booking_closes=4,
        meeting_point="At the boathouse.\nParking is free.",
        what_to_bring=["A towel"],
        terms="Be early.",
    )
    load(world, tours(written, tour(slug="german", **TRANSLATED)))
    page = world.database.read(lambda tx: experiences.find(tx, world.caller(), PageRequest()))
    for experience in (*page["data"], *exported(world)["experiences"]):
        assert experience["slug"] == "german" or {key: experience[key] for key in written} == written
    assert world.examine() == []


def test_the_type_of_a_tier_in_octo_arrives_and_leaves_with_it(world: World) -> None:
    load(world, tours(tour(slug="kayak", price_tiers=[ADULT | {"octo_unit_type": "SENIOR"}, CHILD])))
    document = exported(world)
    first, second = document["experiences"][0]["price_tiers"]
    assert (first["octo_unit_type"], "octo_unit_type" in second) == ("SENIOR", False)
    assert load(world, document).experiences == Counts(0, 0, 1)
    (kinds,) = world.database.read(lambda tx: experiences.unit_types(tx, world.caller())).values()
    assert kinds == {"adult": "SENIOR"}


def test_only_what_changed_is_updated(world: World) -> None:
    load(world, tours(tour(slug="one"), tour(slug="two")))
    world.clock.advance(HOUR)
    assert load(world, tours(tour(slug="one"), tour(slug="two", title="Changed"))).experiences == Counts(0, 1, 1)
    updated = {row["slug"]: row["updated_at"] - row["created_at"] for row in stored(world, tables.experiences)}
    assert updated == {"one": 0, "two": HOUR}


def test_lists_are_compared_by_their_values_not_by_their_text(world: World) -> None:
    world.experience(slug="kayak", title="Kayak", languages='["nb",   "en"]')
    summary = load(world, tours({"slug": "kayak", "title": "Kayak", "languages": ["nb", "en"]}))
    assert summary.experiences == Counts(0, 0, 1)


# Departures ------------------------------------------------------------------------------------------------------


def only(world: World, table: Any, *names: str) -> Any:
    """Return columns of the only row of a table."""
    (row,) = stored(world, table)
    return row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)


def test_an_import_keeps_sold_seats_and_fields_that_it_does_not_name(world: World) -> None:
    experience = world.experience(slug="kayak")
    world.departure(
        experience, starts_at=START, seats_taken=5, status="closed", price_minor=1, ends_at=START + HOUR, seats=12
    )
    schedule = {"weekdays": ["thu"], "times": ["10:00"], "from": "2026-12-24", "to": "2026-12-24", "seats_total": 14}
    assert load(world, tours(tour(schedules=[schedule]))).departures == Counts(0, 1, 0)
    assert only(world, tables.departures, "seats_total", "seats_ceiling", "seats_taken") == (14, 14, 5)
    assert only(world, tables.departures, "status", "price_minor", "ends_at") == ("closed", 1, START + HOUR)


def test_a_total_lowered_under_what_is_sold_leaves_no_seat_to_sell(world: World) -> None:
    world.departure(world.experience(slug="kayak"), starts_at=START, seats_taken=9)
    summary = load(world, departures(departure(seats_total=5)))
    assert summary.notes == (("/experiences/0/departures/0/seats_total", "9 seats are sold already"),)
    assert only(world, tables.departures, "seats_total", "seats_ceiling", "seats_taken") == (5, 9, 9)
    assert load(world, departures(departure(seats_total=5))).notes == ()
    load(world, departures(departure(seats_total=20)))
    assert only(world, tables.departures, "seats_total", "seats_ceiling", "seats_taken") == (20, 20, 9)


def test_moving_or_cancelling_under_guests_is_reported(world: World) -> None:
    stored_id = world.departure(world.experience(slug="kayak"), starts_at=START, seats_taken=2)
    summary = load(world, departures(at("11", id=stored_id, status="cancelled")))
    moved = "/experiences/0/departures/0"
    assert [note.pointer for note in summary.notes] == [f"{moved}/starts_at", f"{moved}/status"]


def test_a_departure_that_is_for_sale_again_cancels_no_more_bookings(world: World) -> None:
    load(world, departures(departure(id=A)))
    world.change(tables.departures, A, status="cancelled", cancelling="admin")
    load(world, departures(departure(status="cancelled")))
    load(world, departures(departure(seats_total=13)))
    assert only(world, tables.departures, "cancelling") == "admin"
    load(world, departures(departure(status="open")))
    load(world, departures(departure(status="cancelled")))
    assert only(world, tables.departures, "status", "cancelling") == ("cancelled", None)


def test_the_participants_of_a_departure_that_is_moved_are_counted_again(world: World) -> None:
    load(world, departures(departure(id=A)))
    world.change(tables.departures, A, minimum_checked_at=NOON)
    load(world, departures(departure(seats_total=13)))
    assert only(world, tables.departures, "minimum_checked_at") == NOON
    load(world, departures(departure(31, id=A)))
    assert only(world, tables.departures, "minimum_checked_at") is None


# Gift cards ------------------------------------------------------------------------------------------------------


def test_a_gift_card_is_sealed_hashed_and_whole(world: World) -> None:
    load(world, cards({"code": " gift-abcd-1234 ", "recipient": {"name": "B", "email": "b@example.com"}}))
    (row,) = stored(world, tables.gift_cards)
    keys = world.installation.secret_keys
    message = f"{world.org}:GIFT-ABCD-1234".encode()
    assert row["code_hash"] == keys.sign("gift_card_code_hash", message).hex()
    assert keys.open("gift_card_code", row["code_sealed"], world.org, row["id"]) == b"GIFT-ABCD-1234"
    assert (row["code_last4"], row["balance_minor"], row["initial_minor"]) == ("1234", 50000, 50000)
    assert (row["recipient_email"], row["purchaser_email"], row["deactivated_at"]) == ("b@example.com", None, None)
    assert "GIFT-ABCD-1234" not in everything(world)
    assert ledger(world) == [("issue", 50000, 50000)]


def test_the_ledger_of_a_card_that_arrives_partly_spent_adds_up(world: World) -> None:
    load(world, cards({"balance": money(12000)}))
    assert ledger(world) == [("issue", 50000, 50000), ("adjust", -38000, 12000)]
    assert only(world, tables.gift_cards, "balance_minor") == 12000
    assert world.examine() == []


def ledger(world: World) -> list[tuple[str, int, int]]:
    """Return the kind, the amount and the balance of each line, in order."""
    lines = sorted(stored(world, tables.gift_card_entries), key=lambda row: row["id"])
    return [(row["kind"], row["amount_minor"], row["balance_minor"]) for row in lines]


def test_an_import_returns_no_money_to_a_spent_gift_card(world: World) -> None:
    document = cards({"id": A, "balance": money(40000)})
    load(world, document)
    world.change(tables.gift_cards, A, balance_minor=10000)
    summary = load(world, document)
    assert summary.gift_cards == Counts(0, 0, 1)
    assert summary.notes == (("/gift_cards/0/balance", "stays 10000, as it is stored"),)
    raised = load(world, cards({"initial_amount": money(90000)}))
    assert raised.gift_cards == Counts(0, 0, 1)
    assert [note.pointer for note in raised.notes] == ["/gift_cards/0/initial_amount"]
    assert only(world, tables.gift_cards, "balance_minor") == 10000
    assert ledger(world) == [("issue", 50000, 50000), ("adjust", -10000, 40000)]


def test_a_gift_card_that_is_deactivated_again_keeps_its_instant(world: World) -> None:
    load(world, cards({"is_active": False}))
    world.clock.advance(HOUR)
    assert load(world, cards({"is_active": False})).gift_cards == Counts(0, 0, 1)
    assert only(world, tables.gift_cards, "deactivated_at") == NOON


def test_a_code_hashed_with_a_former_key_is_found_and_stays(world: World) -> None:
    load(world, cards({}))
    before = everything(world)
    world.installation = Installation(tokens.SecretKeys("a newer key", SECRET))
    assert load(world, cards({})).gift_cards == Counts(0, 0, 1)
    assert everything(world) == before


# Exports ---------------------------------------------------------------------------------------------------------


def test_an_export_without_the_key_of_a_code_is_refused_by_name(world: World) -> None:
    load(world, cards({}))
    world.installation = Installation(tokens.SecretKeys("another key"))
    with pytest.raises(Conflict) as error:
        exported(world)
    assert error.value.reason == "secret_key_missing"
    assert "GIFT" not in str(error.value)


def test_an_export_after_a_tier_was_removed_imports(world: World) -> None:
    load(world, tours(tour(**TRANSLATED)))
    load(world, tours(tour(price_tiers=[CHILD])))
    export = exported(world)
    assert load(world, export).notes == ()
    assert load(world, export).experiences == Counts(0, 0, 1)
    assert exported(world) == export


def test_names_of_a_removed_tier_return_with_it(world: World) -> None:
    load(world, tours(tour(**TRANSLATED)))
    load(world, tours(tour(price_tiers=[CHILD])))
    load(world, tours(tour(price_tiers=[ADULT])))
    assert exported(world)["experiences"][0]["translations"] == TRANSLATED["translations"]


def test_an_export_reads_four_tables_and_keeps_every_microsecond(world: World, statements: list[str]) -> None:
    world.departure(world.experience(), starts_at=NOON + 1)
    statements.clear()
    export = exported(world)
    assert len(statements) == 4
    assert export["experiences"][0]["departures"][0]["starts_at"] == "2026-11-21T13:00:00.000001+01:00"
    assert load(world, export).departures == Counts(0, 0, 1)
