"""An import brings what is stored to what the catalogue says, once, and touches nothing that was sold or spent."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, bindparam, func, select
from support.world import DAY, HOUR, NOON, SECRET, World

from booking_core.base import tokens
from booking_core.base.clock import zone
from booking_core.base.context import Installation
from booking_core.base.errors import Conflict
from booking_core.catalogue import catalog, departures, experiences
from booking_core.catalogue.catalog import Counts, InvalidCatalogue, Summary
from booking_core.db import tables
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
from booking_core.db.tables import Id

TABLES = (tables.experiences, tables.departures, tables.customers, tables.gift_cards, tables.gift_card_entries)
START = "2026-12-24T10:00:00"


def load(world: World, document: object, **keys: Any) -> Summary:
    return world.database.write(
        lambda tx: catalog.import_document(
            tx, world.organization, world.installation, document, now=world.clock(), **keys
        )
    )


def counts(done: Summary) -> tuple[Counts, ...]:
    return done.experiences, done.departures, done.customers, done.gift_cards


def problems(world: World, document: object, **keys: Any) -> dict[str, str]:
    with pytest.raises(InvalidCatalogue) as refused:
        load(world, document, **keys)
    return dict(refused.value.problems)


def stored(world: World, table: Table) -> list[dict[str, Any]]:
    """Return every row of the organization, by id."""
    query = select(table).where(table.c.organization_id == bindparam("o", type_=Id)).order_by(table.c.id)
    found = world.database.read(lambda tx: tx.all(Statement(query), o=world.org))
    return [dict(zip(table.c.keys(), row, strict=True)) for row in found]


def everything(world: World) -> str:
    return json.dumps([stored(world, table) for table in TABLES])


def events(world: World) -> int:
    query = select(func.count()).where(tables.events.c.organization_id == bindparam("o", type_=Id))
    row = world.database.read(lambda tx: tx.first(Statement(query), o=world.org))
    assert row is not None
    return int(row[0])


def tour(**keys: Any) -> dict[str, Any]:
    return {
        "slug": "kayak",
        "title": "Kayak",
        "duration_minutes": 150,
        "price_from": {"amount_minor": 89000, "currency": "NOK"},
    } | keys


def departure(**keys: Any) -> dict[str, Any]:
    return {"starts_at": START, "seats_total": 12} | keys


def with_departures(*items: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"experiences": [tour(departures=list(items), **keys)]}


def card(**keys: Any) -> dict[str, Any]:
    return {"code": "GIFT-ABCD-1234", "initial_amount": {"amount_minor": 50000, "currency": "NOK"}} | keys


def cards(*items: dict[str, Any]) -> dict[str, Any]:
    return {"gift_cards": list(items)}


# The examples ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=[("fjord-tours.json", "Europe/Oslo", "NOK"), ("isla-tours.json", "America/Santiago", "CLP")])
def example(
    request: pytest.FixtureRequest, example_dir: Path, new_world: Callable[..., World]
) -> tuple[World, dict[str, Any], str]:
    name, timezone, currency = request.param
    world = new_world(timezone=timezone, default_currency=currency)
    return world, catalog.parse((example_dir / name).read_bytes()), name


COUNTED = {"fjord-tours.json": (14, 2581, 13, 6), "isla-tours.json": (12, 1695, 12, 5)}
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


def test_an_example_is_imported_whole_and_a_second_time_changes_nothing(
    example: tuple[World, dict[str, Any], str],
) -> None:
    world, document, name = example
    done = load(world, document)
    assert counts(done) == tuple(Counts(count, 0, 0) for count in COUNTED[name])
    assert tuple(len(stored(world, table)) for table in TABLES[:4]) == COUNTED[name]
    assert {note.message.rpartition(" ")[2] for note in done.notes} == CLOCK_CHANGES[name]
    before = everything(world)
    world.clock.advance(DAY)
    again = load(world, document)
    assert counts(again) == tuple(Counts(0, 0, count) for count in COUNTED[name])
    assert again.notes == done.notes
    assert everything(world) == before
    assert events(world) == 0


def test_an_example_is_exported_to_a_document_that_imports_to_the_same(
    example: tuple[World, dict[str, Any], str], new_world: Callable[..., World]
) -> None:
    world, document, name = example
    load(world, document)
    exported = world.database.read(lambda tx: catalog.export(tx, world.organization, world.installation))
    assert json.loads(json.dumps(exported)) == exported
    before = everything(world)
    again = load(world, exported)
    assert counts(again) == tuple(Counts(0, 0, count) for count in COUNTED[name])
    assert again.notes == ()
    assert everything(world) == before
    copy = new_world(timezone=world.organization.timezone, default_currency=world.organization.default_currency)
    assert counts(load(copy, exported)) == tuple(Counts(count, 0, 0) for count in COUNTED[name])
    assert copy.database.read(lambda tx: catalog.export(tx, copy.organization, copy.installation)) == exported


def test_an_import_is_reported_while_it_runs(example: tuple[World, dict[str, Any], str]) -> None:
    world, document, name = example
    seen: list[tuple[int, int]] = []
    load(world, document, progress=lambda done, total: seen.append((done, total)))
    total = sum(COUNTED[name])
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    assert seen == sorted(set(seen))


def test_an_import_costs_a_handful_of_statements_whatever_its_size(
    example: tuple[World, dict[str, Any], str], statements: list[str]
) -> None:
    world, document, _ = example
    load(world, document)
    assert len(statements) <= 12
    statements.clear()
    load(world, document)
    assert len(statements) <= 7


# All or nothing --------------------------------------------------------------------------------------------------


def test_one_bad_entry_and_nothing_is_written(world: World) -> None:
    document = with_departures(departure(), departure(starts_at="soon")) | cards(card())
    assert set(problems(world, document)) == {"/experiences/0/departures/1/starts_at"}
    assert [stored(world, table) for table in TABLES] == [[]] * len(TABLES)


def test_what_stands_against_stored_rows_is_reported_all_at_once_and_nothing_is_written(world: World) -> None:
    ids = [tokens.new_id() for _ in range(5)]
    load(
        world,
        {
            "experiences": [
                tour(id=ids[0], departures=[departure(id=ids[1])]),
                tour(slug="other", departures=[departure(), departure(id=ids[2], starts_at="2026-12-25T10:00:00")]),
            ],
            "customers": [{"id": ids[3], "email": "a@example.com", "name": "A"}],
            "gift_cards": [card(), card(id=ids[4], code="OTHER")],
        },
    )
    before = everything(world)
    found = problems(
        world,
        {
            "experiences": [
                tour(id=ids[0], slug="other", departures=[departure(id=ids[2])]),
                tour(slug="new", departures=[departure(id=ids[1])]),
            ],
            "customers": [{"id": ids[3], "email": "b@example.com", "name": "B"}],
            "gift_cards": [card(id=ids[4])],
        },
    )
    assert set(found) == {
        "/experiences/0/slug",
        "/experiences/0/departures/0/id",
        "/experiences/1/departures/0/id",
        "/customers/0/id",
        "/gift_cards/0/code",
    }
    assert everything(world) == before


def test_a_dry_run_says_what_would_be_done_and_a_reading_connection_is_enough(world: World) -> None:
    document = with_departures(departure()) | cards(card())
    done = world.database.read(
        lambda tx: catalog.import_document(tx, world.organization, world.installation, document, now=NOON, dry_run=True)
    )
    assert counts(done) == (Counts(1, 0, 0), Counts(1, 0, 0), Counts(0, 0, 0), Counts(1, 0, 0))
    assert [stored(world, table) for table in TABLES] == [[]] * len(TABLES)


def test_another_organization_is_neither_seen_nor_touched(world: World, new_world: Callable[[], World]) -> None:
    document = with_departures(departure(id=tokens.new_id()), id=tokens.new_id()) | cards(card(id=tokens.new_id()))
    document["customers"] = [{"id": tokens.new_id(), "email": "a@example.com", "name": "A"}]
    other = new_world()
    load(other, document)
    before = everything(other)
    changed = json.loads(json.dumps(document).replace("Kayak", "Canoe"))
    assert counts(load(world, changed)) == (Counts(1, 0, 0),) * 4
    assert everything(other) == before


# Experiences -----------------------------------------------------------------------------------------------------


def shown(world: World) -> list[dict[str, Any]]:
    page = world.database.read(lambda tx: experiences.find(tx, world.caller(), PageRequest()))
    return list(page["data"])


def test_an_experience_arrives_with_everything_that_was_written(world: World) -> None:
    tier = {"id": "adult", "name": "Adult", "price": {"amount_minor": 89000, "currency": "NOK"}, "seats_per_unit": 2}
    written = tour(
        id=tokens.new_id(),
        is_published=False,
        excerpt="Two\nlines.",
        difficulty="easy",
        address="Eidfjord",
        latitude=60,
        longitude=7.07,
        image_url="https://images.example.com/a.jpg",
        languages=["nb", "en"],
        tags=["water"],
        price_tiers=[tier],
        min_participants=2,
        hours_before_booking_closes=4,
    )
    load(world, {"experiences": [written]})
    (found,) = shown(world)
    assert {key: found[key] for key in written} == written


def test_what_guests_need_arrives_and_leaves_as_it_was_written(world: World) -> None:
    needed = {
        "meeting_point": "At the boathouse.\nParking is free.",
        "what_to_bring": ["A towel"],
        "terms": "Be early.",
    }
    load(world, {"experiences": [tour(**needed), tour(slug="bare")]})
    bare, full = sorted(stored(world, tables.experiences), key=lambda row: row["terms"] or "")
    assert (full["meeting_point"], full["what_to_bring"], full["terms"]) == (
        needed["meeting_point"],
        '["A towel"]',
        "Be early.",
    )
    assert (bare["meeting_point"], bare["what_to_bring"], bare["terms"]) == (None, None, None)
    exported = world.database.read(lambda tx: catalog.export(tx, world.organization, world.installation))
    assert [{key: each[key] for key in needed} for each in exported["experiences"] if each["slug"] == "kayak"] == [
        needed
    ]
    assert load(world, {"experiences": exported["experiences"]}).experiences == Counts(0, 0, 2)


def test_what_a_new_experience_leaves_out_is_empty_and_it_is_published(world: World) -> None:
    load(world, {"experiences": [{"slug": "bare", "title": "Bare"}]})
    (row,) = stored(world, tables.experiences)
    assert (row["currency"], row["languages"], row["price_tiers"], row["excerpt"]) == ("NOK", "[]", "[]", None)
    assert shown(world)[0]["is_published"] is True


def test_an_experience_is_matched_by_id_then_by_slug(world: World) -> None:
    first, second = tokens.new_id(), tokens.new_id()
    load(world, {"experiences": [tour(id=first, slug="one"), tour(id=second, slug="two")]})
    world.clock.advance(HOUR)
    done = load(world, {"experiences": [tour(id=first, slug="uno"), tour(slug="two", title="Two")]})
    assert done.experiences == Counts(0, 2, 0)
    assert {row["id"]: (row["slug"], row["title"]) for row in stored(world, tables.experiences)} == {
        first: ("uno", "Kayak"),
        second: ("two", "Two"),
    }


def test_an_id_that_is_not_the_stored_one_of_that_slug_is_left_and_reported(world: World) -> None:
    stays = world.experience(slug="kayak")
    done = load(world, {"experiences": [tour(id=tokens.new_id())]})
    assert [row["id"] for row in stored(world, tables.experiences)] == [stays]
    assert done.notes == (("/experiences/0/id", f"is stored as {stays}, and stays so"),)


def test_a_key_that_is_left_out_stays_and_one_that_is_null_is_emptied(world: World) -> None:
    load(world, {"experiences": [tour(excerpt="Flat water.", address="Eidfjord", tags=["water"])]})
    world.clock.advance(HOUR)
    done = load(world, {"experiences": [{"slug": "kayak", "title": "Kayak", "address": None}]})
    assert done.experiences == Counts(0, 1, 0)
    (row,) = stored(world, tables.experiences)
    assert (row["excerpt"], row["address"], row["tags"], row["price_from_minor"]) == (
        "Flat water.",
        None,
        '["water"]',
        89000,
    )
    assert (row["created_at"], row["updated_at"]) == (NOON, NOON + HOUR)


def test_only_what_changed_is_updated(world: World) -> None:
    load(world, {"experiences": [tour(slug="one"), tour(slug="two")]})
    world.clock.advance(HOUR)
    done = load(world, {"experiences": [tour(slug="one"), tour(slug="two", title="Changed")]})
    assert done.experiences == Counts(0, 1, 1)
    assert {row["slug"]: row["updated_at"] - NOON for row in stored(world, tables.experiences)} == {
        "one": 0,
        "two": HOUR,
    }


def test_lists_are_compared_by_what_they_hold_not_by_how_they_were_written(world: World) -> None:
    world.experience(slug="kayak", title="Kayak", languages='["nb",   "en"]')
    done = load(world, {"experiences": [{"slug": "kayak", "title": "Kayak", "languages": ["nb", "en"]}]})
    assert done.experiences == Counts(0, 0, 1)


def test_an_experience_changes_its_currency_only_as_a_whole(world: World) -> None:
    world.experience(slug="kayak", title="Kayak")
    euro = {"amount_minor": 9000, "currency": "EUR"}
    document = {"experiences": [{"slug": "kayak", "title": "Kayak", "price_from": euro}]}
    assert set(problems(world, document, other_currency=True)) == {"/experiences/0"}
    document["experiences"][0] |= {"price_tiers": [], "add_ons": []}
    assert load(world, document, other_currency=True).experiences == Counts(0, 1, 0)


def test_a_currency_is_not_changed_under_stored_prices_of_departures(world: World) -> None:
    load(world, with_departures(departure(price={"amount_minor": 1, "currency": "NOK"})))
    euro = {"amount_minor": 9000, "currency": "EUR"}
    whole = {"price_from": euro, "price_tiers": [], "add_ons": []}
    assert set(problems(world, {"experiences": [tour(**whole)]}, other_currency=True)) == {"/experiences/0"}
    done = load(world, with_departures(departure(price=euro), **whole), other_currency=True)
    assert done.departures == Counts(0, 1, 0)


def test_a_duration_is_not_taken_from_under_stored_departures(world: World) -> None:
    load(world, with_departures(departure(), departure(starts_at="2026-12-25T10:00:00")))
    found = problems(world, {"experiences": [tour(duration_minutes=None)]})
    assert found == {
        "/experiences/0/duration_minutes": "is needed by 2 stored departures that have no end of their own"
    }
    ended = [departure(starts_at=f"2026-12-{day}T10:00:00", ends_at=f"2026-12-{day}T12:00:00") for day in (24, 25)]
    assert load(world, with_departures(*ended, duration_minutes=None)).departures == Counts(0, 2, 0)


# Departures ------------------------------------------------------------------------------------------------------


def test_imported_departures_are_available(world: World) -> None:
    load(
        world,
        with_departures(
            departure(price={"amount_minor": 119000, "currency": "NOK"}),
            departure(starts_at="2026-12-25T10:00:00+01:00", ends_at="2026-12-25T18:00:00", status="closed"),
        ),
    )
    page = world.database.read(lambda tx: departures.find_available(tx, world.caller(), date_from=date(2026, 12, 24)))
    assert [
        (item["starts_at"], item["ends_at"], item["seats_available"], item["price"]["amount_minor"], item["status"])
        for item in page["data"]
    ] == [
        ("2026-12-24T10:00:00+01:00", "2026-12-24T12:30:00+01:00", 12, 119000, "open"),
        ("2026-12-25T10:00:00+01:00", "2026-12-25T18:00:00+01:00", 12, 89000, "closed"),
    ]


def test_a_departure_is_matched_by_id_then_by_start(world: World) -> None:
    known = tokens.new_id()
    load(world, with_departures(departure(id=known), departure(starts_at="2026-12-25T10:00:00")))
    world.clock.advance(HOUR)
    done = load(
        world,
        with_departures(
            departure(id=known, starts_at="2026-12-24T11:00:00"),
            departure(starts_at="2026-12-25T10:00:00", seats_total=20),
            departure(seats_total=3),
        ),
    )
    assert done.departures == Counts(1, 2, 0)
    rows = {row["starts_at"]: row for row in stored(world, tables.departures)}
    oslo = zone("Europe/Oslo")
    assert rows[oslo.parse("2026-12-24T11:00:00")]["id"] == known
    assert rows[oslo.parse("2026-12-24T10:00:00")]["seats_total"] == 3
    assert rows[oslo.parse("2026-12-25T10:00:00")]["seats_total"] == 20


def test_departures_can_all_move_by_one_place(world: World) -> None:
    ids = [tokens.new_id() for _ in range(3)]
    load(
        world, with_departures(*(departure(id=each, starts_at=f"2026-12-24T1{i}:00:00") for i, each in enumerate(ids)))
    )
    moved = [departure(id=each, starts_at=f"2026-12-24T1{i + 1}:00:00") for i, each in enumerate(ids)]
    new = departure(starts_at="2026-12-24T10:00:00", seats_total=1)
    assert load(world, with_departures(*moved, new)).departures == Counts(1, 3, 0)
    starts = {row["id"]: row["starts_at"] for row in stored(world, tables.departures)}
    at = zone("Europe/Oslo").parse("2026-12-24T11:00:00")
    assert [starts[each] for each in ids] == [at, at + HOUR, at + 2 * HOUR]
    around = [departure(id=each, starts_at=f"2026-12-24T1{(i + 1) % 3 + 1}:00:00") for i, each in enumerate(ids)]
    assert load(world, with_departures(*around)).departures == Counts(0, 3, 0)


def test_a_start_that_another_stored_departure_keeps_is_refused(world: World) -> None:
    known = tokens.new_id()
    load(world, with_departures(departure(id=known), departure(starts_at="2026-12-25T10:00:00")))
    found = problems(world, with_departures(departure(id=known, starts_at="2026-12-25T10:00:00")))
    assert set(found) == {"/experiences/0/departures/0/starts_at"}


def test_a_start_is_not_moved_behind_its_stored_end(world: World) -> None:
    known = tokens.new_id()
    load(world, with_departures(departure(id=known, ends_at="2026-12-24T12:00:00")))
    late = departure(id=known, starts_at="2026-12-24T13:00:00")
    assert set(problems(world, with_departures(late))) == {"/experiences/0/departures/0/starts_at"}
    assert load(world, with_departures(late | {"ends_at": None})).departures == Counts(0, 1, 0)


def test_a_departure_keeps_what_was_sold_and_what_staff_set_where_the_catalogue_is_silent(world: World) -> None:
    tours = world.experience(slug="kayak")
    at = zone("Europe/Oslo").parse(START)
    world.departure(tours, starts_at=at, seats_taken=5, status="closed", price_minor=1, ends_at=at + HOUR, seats=12)
    schedule = {"weekdays": ["thu"], "times": ["10:00"], "from": "2026-12-24", "to": "2026-12-24", "seats_total": 14}
    done = load(world, {"experiences": [tour(schedules=[schedule])]})
    assert done.departures == Counts(0, 1, 0)
    (row,) = stored(world, tables.departures)
    assert (row["seats_total"], row["seats_ceiling"], row["seats_taken"]) == (14, 14, 5)
    assert (row["status"], row["price_minor"], row["ends_at"]) == ("closed", 1, at + HOUR)


def test_a_total_lowered_under_what_is_sold_leaves_no_seat_to_sell(world: World) -> None:
    tours = world.experience(slug="kayak")
    world.departure(tours, starts_at=zone("Europe/Oslo").parse(START), seats_taken=9)
    done = load(world, with_departures(departure(seats_total=5)))
    assert done.notes == (("/experiences/0/departures/0/seats_total", "9 seats are sold already"),)
    (row,) = stored(world, tables.departures)
    assert (row["seats_total"], row["seats_ceiling"], row["seats_taken"]) == (5, 9, 9)
    assert load(world, with_departures(departure(seats_total=5))).notes == ()
    load(world, with_departures(departure(seats_total=20)))
    (row,) = stored(world, tables.departures)
    assert (row["seats_total"], row["seats_ceiling"], row["seats_taken"]) == (20, 20, 9)


def test_moving_or_cancelling_under_guests_is_reported(world: World) -> None:
    known = world.departure(world.experience(slug="kayak"), starts_at=zone("Europe/Oslo").parse(START), seats_taken=2)
    done = load(world, with_departures(departure(id=known, starts_at="2026-12-24T11:00:00", status="cancelled")))
    assert [note.pointer for note in done.notes] == [
        "/experiences/0/departures/0/starts_at",
        "/experiences/0/departures/0/status",
    ]


def test_a_departure_that_is_for_sale_again_cancels_no_more_bookings(world: World) -> None:
    load(world, with_departures(departure()))
    (row,) = stored(world, tables.departures)
    world.change(tables.departures, row["id"], status="cancelled", cancelling="admin")
    load(world, with_departures(departure(status="cancelled")))
    load(world, with_departures({"starts_at": START, "seats_total": 13}))
    assert stored(world, tables.departures)[0]["cancelling"] == "admin"
    load(world, with_departures(departure(status="open")))
    load(world, with_departures(departure(status="cancelled")))
    (row,) = stored(world, tables.departures)
    assert (row["status"], row["cancelling"]) == ("cancelled", None)


def test_the_participants_of_a_departure_that_is_moved_are_counted_again(world: World) -> None:
    load(world, with_departures(departure()))
    (row,) = stored(world, tables.departures)
    world.change(tables.departures, row["id"], minimum_checked_at=NOON)
    load(world, with_departures(departure(seats_total=13)))
    assert stored(world, tables.departures)[0]["minimum_checked_at"] == NOON
    load(world, with_departures(departure(id=row["id"], starts_at="2026-12-31T10:00:00")))
    assert stored(world, tables.departures)[0]["minimum_checked_at"] is None


def test_nothing_that_the_catalogue_does_not_name_is_deleted(world: World) -> None:
    load(world, with_departures(departure(), departure(starts_at="2026-12-25T10:00:00")))
    done = load(world, with_departures(departure()))
    assert done.departures == Counts(0, 0, 1)
    assert len(stored(world, tables.departures)) == 2


# Customers -------------------------------------------------------------------------------------------------------


def test_a_customer_is_matched_by_the_identity_of_the_address(world: World) -> None:
    load(world, {"customers": [{"email": "Renée@Example.com", "name": "Renée", "tags": ["vip"]}]})
    world.clock.advance(HOUR)
    again = {"email": "rene\u0301e@example.com", "name": "Renée Roy", "email_subscription": True}
    assert load(world, {"customers": [again]}).customers == Counts(0, 1, 0)
    (row,) = stored(world, tables.customers)
    assert (row["email"], row["name"], row["tags"], bool(row["email_subscription"])) == (
        "Renée@Example.com",
        "Renée Roy",
        '["vip"]',
        True,
    )
    assert row["updated_at"] == NOON + HOUR


def test_consent_is_neither_assumed_nor_withdrawn_by_silence(world: World) -> None:
    load(world, {"customers": [{"email": "a@example.com", "name": "A"}]})
    assert not stored(world, tables.customers)[0]["email_subscription"]
    load(world, {"customers": [{"email": "a@example.com", "name": "A", "email_subscription": True}]})
    load(world, {"customers": [{"email": "a@example.com", "name": "A"}]})
    assert stored(world, tables.customers)[0]["email_subscription"]


# Gift cards ------------------------------------------------------------------------------------------------------


def test_a_gift_card_is_sealed_hashed_and_whole(world: World) -> None:
    load(world, cards(card(code=" gift-abcd-1234 ", recipient={"name": "B", "email": "b@example.com"})))
    (row,) = stored(world, tables.gift_cards)
    keys = world.installation.secret_keys
    message = f"{world.org}:GIFT-ABCD-1234".encode()
    assert row["code_hash"] == keys.sign("gift_card_code_hash", message).hex()
    assert keys.open("gift_card_code", row["code_sealed"], world.org, row["id"]) == b"GIFT-ABCD-1234"
    assert (row["code_last4"], row["balance_minor"], row["initial_minor"]) == ("1234", 50000, 50000)
    assert (row["recipient_email"], row["purchaser_email"], row["deactivated_at"]) == ("b@example.com", None, None)
    assert "GIFT-ABCD-1234" not in everything(world)
    assert stored(world, tables.gift_card_entries) == []


def test_the_ledger_of_a_card_that_arrives_partly_spent_adds_up(world: World) -> None:
    load(world, cards(card(balance={"amount_minor": 12000, "currency": "NOK"})))
    (row,) = stored(world, tables.gift_cards)
    (entry,) = stored(world, tables.gift_card_entries)
    assert (entry["gift_card_id"], entry["kind"], entry["booking_id"]) == (row["id"], "adjust", None)
    assert row["initial_minor"] + entry["amount_minor"] == row["balance_minor"] == 12000


def test_an_import_gives_no_money_back_to_a_card_that_was_spent_since(world: World) -> None:
    document = cards(card(balance={"amount_minor": 40000, "currency": "NOK"}))
    load(world, document)
    (row,) = stored(world, tables.gift_cards)
    spent = tables.gift_cards.update().values(balance_minor=10000)
    world.database.write(
        lambda tx: tx.run(Statement(spent.where(tables.gift_cards.c.id == bindparam("i", type_=Id))), i=row["id"])
    )
    done = load(world, document)
    assert done.gift_cards == Counts(0, 0, 1)
    assert done.notes == (("/gift_cards/0/balance", "stays 10000, as it is stored"),)
    raised = load(world, cards(card(initial_amount={"amount_minor": 90000, "currency": "NOK"})))
    assert raised.gift_cards == Counts(0, 0, 1)
    assert [note.pointer for note in raised.notes] == ["/gift_cards/0/initial_amount"]
    assert stored(world, tables.gift_cards)[0]["balance_minor"] == 10000
    assert len(stored(world, tables.gift_card_entries)) == 1


def test_a_gift_card_is_deactivated_and_reactivated_only_by_its_key(world: World) -> None:
    load(world, cards(card(is_active=False)))
    assert stored(world, tables.gift_cards)[0]["deactivated_at"] == NOON
    world.clock.advance(HOUR)
    assert load(world, cards(card(is_active=False))).gift_cards == Counts(0, 0, 1)
    assert load(world, cards(card())).gift_cards == Counts(0, 0, 1)
    assert stored(world, tables.gift_cards)[0]["deactivated_at"] == NOON
    assert load(world, cards(card(is_active=True))).gift_cards == Counts(0, 1, 0)
    assert stored(world, tables.gift_cards)[0]["deactivated_at"] is None


def test_a_gift_card_changes_its_code_contact_and_validity_by_id(world: World) -> None:
    known = tokens.new_id()
    load(world, cards(card(id=known, purchaser={"name": "A", "email": "a@example.com"})))
    done = load(
        world,
        cards(
            card(
                id=known,
                code="NEW-CODE",
                purchaser=None,
                valid_from="2027-01-01T00:00:00",
                expires_at="2028-01-01T00:00:00Z",
            )
        ),
    )
    assert done.gift_cards == Counts(0, 1, 0)
    (row,) = stored(world, tables.gift_cards)
    assert (row["id"], row["code_last4"], row["purchaser_name"], row["purchaser_email"]) == (known, "CODE", None, None)
    assert zone("UTC").iso(row["valid_from"]) == "2026-12-31T23:00:00+00:00"
    assert load(world, cards(card(code="new-code"))).gift_cards == Counts(0, 0, 1)


def test_a_code_hashed_with_a_former_key_is_found_and_left_as_it_is(world: World) -> None:
    load(world, cards(card()))
    before = everything(world)
    world.installation = Installation(tokens.SecretKeys("a newer key", SECRET))
    assert load(world, cards(card())).gift_cards == Counts(0, 0, 1)
    assert everything(world) == before


# Beside the import -----------------------------------------------------------------------------------------------


def test_a_file_is_judged_without_an_organization_and_timed_with_one(world: World) -> None:
    document = with_departures(departure())
    (alone,) = catalog.validate(document).departures
    (in_oslo,) = catalog.validate(document, organization=world.organization).departures
    assert alone.given["starts_at"] - in_oslo.given["starts_at"] == HOUR


def test_two_imports_at_once_come_to_the_same_as_one_after_the_other(world: World) -> None:
    document = with_departures(*(departure(starts_at=f"2026-12-24T{hour:02}:00:00") for hour in range(24)))
    document["customers"] = [{"email": f"guest{i}@example.com", "name": "Guest"} for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: load(world, document), range(4)))
    assert sum(each.departures.created for each in done) == 24
    assert sum(each.departures.unchanged for each in done) == 3 * 24
    assert len(stored(world, tables.departures)) == len(stored(world, tables.customers)) == 24


def test_an_export_without_the_key_of_a_code_is_refused_by_name(world: World) -> None:
    load(world, cards(card()))
    world.installation = Installation(tokens.SecretKeys("another key"))
    with pytest.raises(Conflict) as refused:
        world.database.read(lambda tx: catalog.export(tx, world.organization, world.installation))
    assert refused.value.reason == "secret_key_missing"
    assert "GIFT" not in str(refused.value)


def test_an_export_reads_four_tables_and_keeps_every_microsecond(world: World, statements: list[str]) -> None:
    tours = world.experience()
    world.departure(tours, starts_at=NOON + 1)
    statements.clear()
    exported = world.database.read(lambda tx: catalog.export(tx, world.organization, world.installation))
    assert len(statements) == 4
    assert exported["experiences"][0]["departures"][0]["starts_at"] == "2026-11-21T13:00:00.000001+01:00"
    assert load(world, exported).departures == Counts(0, 0, 1)
