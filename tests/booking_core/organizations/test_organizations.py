"""Organizations: creating them, and every setting of `booking orgs set`."""

from typing import Any

import pytest
from support.world.world import FixedClock, World

from booking_core import organizations
from booking_core.base import tokens
from booking_core.base.context import Organization
from booking_core.base.errors import Conflict, Malformed, NotFound
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.organizations import Organization as WireOrganization


def create(database: Database, clock: FixedClock, **fields: str) -> Organization:
    columns = {"slug": f"tours-{tokens.new_id()}", "name": "Fjord Tours", "timezone": "Europe/Oslo", "currency": "NOK"}
    return database.write(lambda tx: organizations.create(tx, **(columns | fields), now=clock()))


def change(world: World, **changes: str) -> Organization:
    return world.database.write(
        lambda tx: organizations.set_settings(tx, world.organization, changes, now=world.clock())
    )


def fields_of(error: Malformed) -> list[str | None]:
    return [detail.field for detail in error.details]


def test_a_new_organization_has_the_settings_of_the_schema(database: Database, clock: FixedClock) -> None:
    tours = create(database, clock, name="  Fjord Tours ", timezone="America/Santiago", currency="CLP")
    assert (tours.name, tours.timezone, tours.default_currency) == ("Fjord Tours", "America/Santiago", "CLP")
    assert (tours.api_app, tours.plan_api, tours.add_ons_app, tours.notify_staff) == (True, True, True, True)
    assert tours.cancel_under_minimum is False
    assert tours.pending_minutes is None
    assert tours.created_at == tours.updated_at == clock()
    assert database.read(lambda tx: organizations.get(tx, slug=tours.slug)) == tours


def test_a_new_organization_counts_from_zero(database: Database, clock: FixedClock) -> None:
    (counters,) = World(database, clock, create(database, clock)).rows(tables.counters)
    assert (counters["last_booking_number"], counters["last_event_sequence"]) == (0, 0)


def test_a_slug_is_given_once(database: Database, clock: FixedClock) -> None:
    organization = create(database, clock)
    with pytest.raises(Conflict) as refused:
        create(database, clock, slug=organization.slug)
    assert refused.value.reason == "slug_taken"


@pytest.mark.parametrize("slug", ["", "Fjord", "fjord tours", "fjord_tours", "-fjord", "fjord-", "a--b", "å", "a" * 64])
def test_a_slug_is_lower_case_words_and_hyphens(database: Database, clock: FixedClock, slug: str) -> None:
    with pytest.raises(Malformed) as refused:
        create(database, clock, slug=slug)
    assert fields_of(refused.value) == ["slug"]


def test_a_slug_has_at_most_63_characters(database: Database, clock: FixedClock) -> None:
    slug = f"tours-{tokens.new_id()}".ljust(63, "x")
    assert create(database, clock, slug=slug).slug == slug


def test_every_field_that_is_wrong_is_named_at_once(database: Database, clock: FixedClock) -> None:
    with pytest.raises(Malformed) as refused:
        create(database, clock, slug="No", name="\x1b[31m", timezone="Mars/Olympus", currency="nok")
    assert fields_of(refused.value) == ["slug", "name", "timezone", "currency"]


@pytest.mark.parametrize("zone", ["", "../etc/passwd", "/etc/localtime", "Europe", "Europe/Oslo\x00"])
def test_a_zone_is_one_of_the_iana_database(database: Database, clock: FixedClock, zone: str) -> None:
    with pytest.raises(Malformed) as refused:
        create(database, clock, timezone=zone)
    assert fields_of(refused.value) == ["timezone"]


def test_organizations_are_found_by_slug_in_order(database: Database, clock: FixedClock) -> None:
    slugs = {create(database, clock).slug for _ in range(3)}
    listed = [organization.slug for organization in database.read(organizations.find)]
    assert slugs <= set(listed)
    assert listed == sorted(listed)


def test_an_unknown_slug_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        database.read(lambda tx: organizations.get(tx, slug="nobody"))


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("name", " Fjord & Fjell ", "Fjord & Fjell"),
        ("name", "x", "x"),
        ("name", "x" * 200, "x" * 200),
        ("timezone", "America/Santiago", "America/Santiago"),
        ("default_currency", "CLP", "CLP"),
        ("api_app", "off", False),
        ("plan_api", "off", False),
        ("add_ons_app", "off", False),
        ("hours_before_booking_closes", "48", 48),
        ("hours_before_booking_closes", "0", 0),
        ("hours_before_booking_closes", "0" * 20 + "8784", 8_784),
        ("pending_minutes", "1", 1),
        ("pending_minutes", "10080", 10_080),
        ("pending_minutes", "", None),
        ("refund_full_until_hours", "0", 0),
        ("refund_late_percent", "0", 0),
        ("notify_staff", "off", False),
        ("staff_email", "bookings@fjord.example", "bookings@fjord.example"),
        ("staff_email", "", None),
        (
            "staff_email",
            f"{'x' * 50}@{'y' * 63}.{'y' * 63}.{'y' * 13}.example",
            f"{'x' * 50}@{'y' * 63}.{'y' * 63}.{'y' * 13}.example",
        ),
        ("on_site_fee_percent", "2.5", 2.5),
        ("on_site_fee_percent", "0", 0.0),
        ("on_site_fee_percent", "0.5", 0.5),
        ("on_site_fee_percent", "100", 100.0),
        ("cancel_under_minimum", "on", True),
        ("language", "de", "de"),
        ("language", "fr-CH", "fr-CH"),
        ("language", "", None),
        ("logo_url", "https://cdn.example:8443/a/logo.png?v=1&w=2", "https://cdn.example:8443/a/logo.png?v=1&w=2"),
        ("logo_url", f"https://cdn.example/{'x' * 2028}", f"https://cdn.example/{'x' * 2028}"),
        ("logo_url", "", None),
        ("brand_color", "#0F766E", "#0f766e"),
        ("website", "https://fjord.example", "https://fjord.example"),
        ("contact_email", "hei@fjord.example", "hei@fjord.example"),
        ("contact_phone", "+47 55 12 34 56", "+47 55 12 34 56"),
        ("reply_to_email", "svar@fjord.example", "svar@fjord.example"),
        ("guest_cancel_until_hours", "8784", 8784),
        ("guest_cancel_until_hours", "0", 0),
        ("guest_cancel_until_hours", "", None),
        ("guest_move_until_hours", "0", 0),
        ("guest_move_until_hours", "", None),
    ],
)
def test_each_setting_is_set_and_read_back(world: World, key: str, text: str, value: Any) -> None:
    world.clock.advance(1)
    changed = change(world, **{key: text})
    assert getattr(changed, key) == value
    assert type(getattr(changed, key)) is type(value)
    assert changed.updated_at == world.clock()
    assert organizations.present_settings(changed)[key] == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("name", " "),
        ("name", "x" * 201),
        ("name", "two\nlines"),
        ("timezone", "Oslo"),
        ("default_currency", "XYZ"),
        ("api_app", "yes"),
        ("api_app", "ON"),
        ("add_ons_app", ""),
        ("hours_before_booking_closes", "-1"),
        ("hours_before_booking_closes", "4.5"),
        ("hours_before_booking_closes", "9" * 400),
        ("hours_before_booking_closes", "0" * 9 + "99999999"),
        ("hours_before_booking_closes", "0" * 8 + "19999"),
        ("pending_minutes", "0"),
        ("pending_minutes", "10081"),
        ("pending_minutes", "٣"),
        ("refund_full_until_hours", ""),
        ("refund_late_percent", "101"),
        ("refund_late_percent", "0" * 9 + "101"),
        ("notify_staff", "1"),
        ("staff_email", "two@x.example, three@x.example"),
        ("staff_email", f"{'x' * 51}@{'y' * 63}.{'y' * 63}.{'y' * 13}.example"),
        ("on_site_fee_percent", "much"),
        ("on_site_fee_percent", "nan"),
        ("on_site_fee_percent", "Infinity"),
        ("on_site_fee_percent", "1e99999"),
        ("on_site_fee_percent", "100.01"),
        ("cancel_under_minimum", "maybe"),
        ("language", "sv"),
        ("language", "de_AT"),
        ("language", "deutsch"),
        ("logo_url", "http://cdn.example/logo.png"),
        ("logo_url", "https://user@cdn.example/logo.png"),
        ("logo_url", "https://cdn.example;script-src/logo.png"),
        ("logo_url", 'https://cdn.example/"onerror=x'),
        ("logo_url", "https://cdn.example/lo go.png"),
        ("logo_url", f"https://cdn.example/{'x' * 2029}"),
        ("website", "javascript:alert(1)"),
        ("brand_color", "red"),
        ("brand_color", "#12345"),
        ("brand_color", "#12345g"),
        ("contact_email", "nobody"),
        ("contact_phone", "call us"),
        ("contact_phone", "+47\n55"),
        ("reply_to_email", "a@b.example, c@d.example"),
        ("guest_cancel_until_hours", "8785"),
        ("guest_cancel_until_hours", "never"),
        ("guest_move_until_hours", "-1"),
        ("slug", "another"),
        ("id", "1"),
    ],
)
def test_a_bad_setting_is_named_and_nothing_is_changed(world: World, key: str, text: str) -> None:
    with pytest.raises(Malformed) as refused:
        change(world, **{"refund_late_percent": "10"} | {key: text})
    assert fields_of(refused.value) == [key]
    stored = world.database.read(lambda tx: organizations.get(tx, slug=world.organization.slug))
    assert stored == world.organization


def test_no_change_leaves_the_organization_as_it_is(world: World) -> None:
    world.clock.advance(1)
    assert change(world) == world.organization


def test_one_organization_is_changed_and_no_other(world: World, new_world: Any) -> None:
    other = new_world()
    change(world, name="Another name")
    assert other.database.read(lambda tx: organizations.get(tx, slug=other.organization.slug)) == other.organization


def test_an_organization_is_shown_as_the_wire_has_it(world: World) -> None:
    body = organizations.present(world.organization)
    assert WireOrganization.model_validate(body).to_json() == body
    assert set(body) == set(WireOrganization.model_fields)
