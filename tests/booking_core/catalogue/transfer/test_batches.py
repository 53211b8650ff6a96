"""A catalogue is written in short transactions that come to the same as one long one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.world.catalogue import Document, counts, exported, load, money
from support.world.operations import Operations
from support.world.world import DAY, World

from booking_core.catalogue import transfer
from booking_core.catalogue.transfer import ImportSummary, ImportTally, InvalidCatalogue, batches
from booking_core.db import tables

TABLES = (tables.experiences, tables.departures, tables.gift_cards, tables.customers)


def tour(slug: str, count: int, **keys: Any) -> Document:
    departures = [{"starts_at": f"2027-01-{1 + n // 20:02}T{n % 20:02}:00:00", "seats_total": 2} for n in range(count)]
    return {"slug": slug, "title": slug, "duration_minutes": 60, "departures": departures} | keys


def load_in_batches(world: World, document: object, **keys: Any) -> ImportSummary:
    plan = transfer.validate(document, organization=world.organization)
    return transfer.import_in_batches(world.database, world.organization, world.installation, plan, **keys)


def exported_without_ids(world: World) -> Document:
    """Return the catalogue without generated ids, nor the order that comes from them."""
    document = exported(world)
    document["customers"].sort(key=lambda customer: str(customer["email"]))
    document["gift_cards"].sort(key=lambda card: str(card["code"]))
    return json.loads(json.dumps(document), object_hook=lambda item: {k: v for k, v in item.items() if k != "id"})


@pytest.mark.parametrize("sizes", [(), (0, 0, 0), (1, 2, 3), (9, 10, 11), (35, 0, 1), (4,) * 9, (100,), (1,) * 40])
@pytest.mark.parametrize("inseparable", [(), (0,), (1, 2)])
def test_every_entry_is_in_one_batch_with_its_experience(sizes: tuple[int, ...], inseparable: tuple[int, ...]) -> None:
    document = {
        "experiences": [tour(f"tour-{n}", size) for n, size in enumerate(sizes)],
        "customers": [{"email": f"{n}@example.com", "name": "Ada"} for n in range(sum(sizes))],
        "gift_cards": [{"code": f"GIFT{n}", "initial_amount": money(1)} for n in range(25)],
    }
    plan, tally = transfer.validate(document), ImportTally()
    tally.expect(plan)
    every_batch = list(batches.split(plan, inseparable, size=10))
    for batch in every_batch:
        tally.add(batch)
        tours = [plan.experiences.index(entry) for entry in batch.plan.experiences]
        assert len(batch.plan.departures) <= 10 or set(tours) & set(inseparable)
        for entry in batch.plan.departures:
            (original,) = [departure for departure in plan.departures if departure.pointer == entry.pointer]
            assert batch.plan.experiences[entry.experience] is plan.experiences[original.experience]
    assert tally.imported == tally.total
    for kind in ("departures", "customers", "gift_cards"):
        pointers = [entry.pointer for batch in every_batch for entry in getattr(batch.plan, kind)]
        assert pointers == [entry.pointer for entry in getattr(plan, kind)]
    for position in set(inseparable) & set(range(len(sizes))):
        first = plan.experiences[position]
        assert sum(first in batch.plan.experiences for batch in every_batch) == 1


@pytest.mark.one_database
def test_batches_come_to_the_same_as_one_transaction(new_world: Callable[..., World], example_dir: Path) -> None:
    one, many = new_world(), new_world()
    document = transfer.parse((example_dir / "fjord-tours.json").read_bytes())
    progress: list[tuple[int, int]] = []
    summary = load_in_batches(many, document, progress=lambda count, total: progress.append((count, total)))
    assert summary == load(one, document)
    assert exported_without_ids(many) == exported_without_ids(one)
    assert len(progress) > 5
    assert progress == sorted(set(progress))
    assert progress[-1][0] == progress[-1][1] == sum(kind.created for kind in counts(summary))
    again = load_in_batches(many, document)
    assert again == load(one, document)
    assert all(kind.created == kind.updated == 0 for kind in counts(again))


class Stop(Exception):
    """The import is ended between two batches."""


@pytest.mark.exhaustive(but=("sqlite-1]", "postgresql-3]"))
@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_a_stopped_import_counts_its_rows_and_its_repetition_completes_it(world: World, after: int) -> None:
    document = {
        "experiences": [tour("long", 1520), tour("short", 3)],
        "customers": [{"email": f"{n}@example.com", "name": "Ada"} for n in range(600)],
    }
    # Days of January hold 20 departures each; the long one goes on in the months after it.
    for n, departure in enumerate(document["experiences"][0]["departures"]):
        departure["starts_at"] = f"2027-{1 + n // 400:02}-{1 + n % 400 // 20:02}T{n % 20:02}:00:00"
    tally, calls = ImportTally(), iter(range(after))

    def before_batch() -> None:
        if next(calls, None) is None:
            raise Stop

    with pytest.raises(Stop):
        load_in_batches(world, document, tally=tally, before_batch=before_batch)
    assert {table.name: len(world.rows(table)) for table in TABLES} == tally.imported
    assert tally.has_begun == (after > 0)
    assert tally.imported != tally.total
    summary = load_in_batches(world, document)
    assert summary.departures.unchanged + summary.departures.created == 1523
    assert {table.name: len(world.rows(table)) for table in TABLES} == tally.total
    assert world.examine() == []


def test_between_two_batches_everybody_can_book(world: World) -> None:
    departure = world.departure(world.experience(slug="tour-0"), seats=50)
    ops, documents = Operations(world), {"experiences": [tour(f"tour-{n}", 300) for n in range(4)]}
    booked: list[str] = []
    summary = load_in_batches(world, documents, before_batch=lambda: booked.append(ops.book(departure)["id"]))
    assert (len(booked), ops.seats_taken(departure)) == (4, 4)
    assert (summary.experiences, summary.departures.created) == (transfer.Counts(3, 1, 0), 1200)
    assert world.examine() == []


def test_a_last_entry_that_contradicts_a_stored_row_undoes_all(world: World) -> None:
    stays = world.experience(slug="stays")
    stored_id = world.departure(stays)
    document = {"experiences": [tour("first", 60), tour("second", 1)]}
    document["experiences"][1]["departures"][0]["id"] = stored_id
    with pytest.raises(InvalidCatalogue) as refused:
        load_in_batches(world, document)
    assert [problem.pointer for problem in refused.value.problems] == ["/experiences/1/departures/0/id"]
    assert "nothing was imported" in str(refused.value)
    assert len(world.rows(tables.experiences)) == 1


def transactions_of(world: World, document: object) -> int:
    """Import a file, and return the number of its transactions."""
    progress: list[int] = []
    load_in_batches(world, document, progress=lambda count, total: progress.append(count))
    return len(progress)


def test_what_changes_prices_or_moves_departures_is_written_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No booking is to be charged by half of a change, and departures that change places need each other's."""
    monkeypatch.setattr(batches.split, "__defaults__", ((), 10))
    first = {"experiences": [tour("kayak", 40, price_from=money(1000))]}
    load_in_batches(world, first)
    assert transactions_of(world, first) == 4
    dearer = {"experiences": [tour("kayak", 40, price_from=money(2000))]}
    assert transactions_of(world, dearer) == 1
    ids = {row["starts_at"]: row["id"] for row in world.rows(tables.departures)}
    ordered = [ids[start] for start in sorted(ids)]
    turned = {"experiences": [tour("kayak", 40, price_from=money(2000))]}
    for departure, stored_id in zip(turned["experiences"][0]["departures"], reversed(ordered), strict=True):
        departure["id"] = stored_id
    assert transactions_of(world, turned) == 1
    assert {row["id"] for row in world.rows(tables.departures)} == set(ordered)
    world.clock.advance(DAY)
    assert load_in_batches(world, turned).departures.unchanged == 40
