"""A file that was written for another organization is refused, unless it is meant."""

from collections.abc import Callable
from typing import Any

import pytest
from support.world.catalogue import Document, cards, departure, exported, load, money, tier, tours
from support.world.world import HOUR, World

from booking_core.catalogue import transfer
from booking_core.catalogue.transfer import InvalidCatalogue


def tour(*starts: str, **keys: Any) -> Document:
    """Return a file with an experience that has no price, and departures with these starts."""
    entry = {"slug": "kayak", "title": "Kayak", "duration_minutes": 60}
    return tours(entry | {"departures": [departure(starts_at=start) for start in starts]} | keys)


def problems(document: object, world: World | None = None, **keys: bool) -> dict[str, str]:
    """Return the document's problems, and check that an import refuses the same and writes nothing."""
    organization = world.organization if world else None
    with pytest.raises(InvalidCatalogue) as refused:
        transfer.validate(document, organization=organization, **keys)
    if world:
        with pytest.raises(InvalidCatalogue) as also:
            load(world, document, **keys)
        assert also.value.problems == refused.value.problems
    return dict(refused.value.problems)


CHF = money(1000, "CHF")


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (tour(price_from=CHF), "/experiences/0/price_from/currency"),
        (tour(price_tiers=[tier("adult", 1000, "CHF")]), "/experiences/0/price_tiers/0/price/currency"),
        (tour(add_ons=[{"id": "suit", "label": "Suit", "price": CHF}]), "/experiences/0/add_ons/0/price/currency"),
        (tour(departures=[departure(price=CHF)]), "/experiences/0/departures/0/price/currency"),
        (cards({"initial_amount": CHF}), "/gift_cards/0/initial_amount/currency"),
    ],
)
def test_any_money_in_another_currency_is_refused_unless_it_is_meant(
    world: World, document: Document, pointer: str
) -> None:
    messages = problems(document, world)
    assert list(messages) == [pointer]
    assert messages[pointer].startswith("is CHF, and the organization's currency is NOK (one such amount)")
    assert "--other-currency" in messages[pointer]
    assert transfer.validate(document, organization=world.organization, other_currency=True)
    assert transfer.validate(document)


def test_each_other_currency_is_reported_once_with_how_often_it_occurs(world: World) -> None:
    codes = enumerate(("NOK", "CHF", "SEK", "CHF"))
    messages = problems(cards(*({"code": f"GIFT{i}", "initial_amount": money(1000, code)} for i, code in codes)), world)
    assert [(pointer, message.partition(";")[0]) for pointer, message in messages.items()] == [
        ("/gift_cards/1/initial_amount/currency", "is CHF, and the organization's currency is NOK (2 such amounts)"),
        ("/gift_cards/2/initial_amount/currency", "is SEK, and the organization's currency is NOK (one such amount)"),
    ]


def test_a_file_that_names_another_zone_is_refused_unless_it_is_meant(world: World) -> None:
    document = tour("2026-12-24T10:00:00", "2026-12-25T10:00:00-03:00") | {"timezone": "America/Santiago"}
    messages = problems(document, world)
    assert list(messages) == ["/timezone"]
    assert messages["/timezone"].startswith("is America/Santiago, and the organization's time zone is Europe/Oslo;")
    plan = transfer.validate(document, organization=world.organization, other_timezone=True)
    wall, offset = (entry.values["starts_at"] for entry in plan.departures)
    assert world.organization.zone.iso(wall) == "2026-12-24T10:00:00+01:00"
    assert world.organization.zone.iso(offset) == "2026-12-25T14:00:00+01:00"


def test_an_offset_that_the_zone_never_has_then_needs_an_option(world: World) -> None:
    summer, winter = "2027-07-01T10:00:00+01:00", "2026-12-24T10:00:00+02:00"
    for wrong in (summer, winter, "2026-12-24T10:00:00-0300", "2026-12-24T10:00:00 02:00"):
        messages = problems(tour("2026-12-24T10:00:00+01:00", wrong), world)
        assert messages == {
            "/experiences/0/departures/1/starts_at": "has an offset that Europe/Oslo does not have then;"
            " --other-timezone imports the file all the same"
        }
        assert transfer.validate(tour(wrong), organization=world.organization, other_timezone=True)
    many = problems(tour(summer, winter) | cards({"expires_at": winter}), world)
    (message,) = many.values()
    assert message.startswith("3 timestamps have an offset that Europe/Oslo does not have then, this is the first;")


@pytest.mark.parametrize(
    "start",
    ["2026-12-24T10:00:00", "2026-12-24T09:00:00Z", "2026-12-24T09:00:00+00:00", "2027-07-01T10:00:00.5+02:00"],
)
def test_wall_time_utc_and_the_zones_offset_need_no_option(world: World, start: str) -> None:
    assert transfer.validate(tour(start), organization=world.organization)
    assert transfer.validate(tour(start) | {"timezone": "Europe/Oslo"}, organization=world.organization)


def test_a_zone_that_does_not_exist_is_reported(world: World) -> None:
    for wrong in ("Europe/Olso", "", 1, "../etc/passwd"):
        assert list(problems({"timezone": wrong}, world)) == ["/timezone"]
        assert list(problems({"timezone": wrong})) == ["/timezone"]


def test_without_an_organization_a_file_has_the_zone_that_it_names(world: World) -> None:
    document = tour("2026-12-24T10:00:00")
    (utc,) = transfer.validate(document).departures
    (oslo,) = transfer.validate(document | {"timezone": "Europe/Oslo"}).departures
    assert utc.values["starts_at"] - oslo.values["starts_at"] == HOUR
    wrong = tour("2026-12-24T10:00:00+02:00") | {"timezone": "Europe/Oslo"}
    assert list(problems(wrong)) == ["/experiences/0/departures/0/starts_at"]
    assert transfer.validate(wrong, other_timezone=True)


def test_an_export_of_another_zone_needs_an_option(world: World, new_world: Callable[..., World]) -> None:
    chile = new_world(timezone="America/Santiago", default_currency="CLP")
    world.departure(world.experience())
    document = exported(world)
    assert document["timezone"] == "Europe/Oslo"
    assert set(problems(document, chile)) == {"/timezone", "/experiences/0/price_from/currency"}
    transfer.validate(document, organization=chile.organization, other_currency=True, other_timezone=True)
    transfer.validate(document, organization=world.organization)


def test_what_is_of_the_wrong_shape_is_reported_and_breaks_nothing(world: World) -> None:
    for document in ([], {"experiences": [1]}, {"experiences": {"a": 1}}, {"gift_cards": [{"expires_at": 5}]}):
        assert problems(document, world)
    odd = tour("2026-12-24T10:00:00+99:00", "0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00", "+02:00")
    assert len(problems(odd, world)) == 4
