"""`booking orgs`: organizations and their settings."""

from support.serving.commands import Booking, Result

from booking_core.organizations.rules import SETTINGS


def create(booking: Booking, *argv: str, **changes: str) -> Result:
    isla = {"slug": "isla-tours", "name": "Isla Tours", "timezone": "America/Santiago", "currency": "CLP"}
    options = [word for name, value in (isla | changes).items() for word in (f"--{name}", value)]
    return booking("orgs", "create", *options, *argv)


def test_an_organization_is_created_shown_and_listed(fjord_on_both: Booking) -> None:
    made = create(fjord_on_both, "-o", "json").json
    named = {"id": made["id"], "slug": "isla-tours", "name": "Isla Tours"}
    assert made == named | {"timezone": "America/Santiago", "default_currency": "CLP"}
    assert fjord_on_both("orgs", "show", "isla-tours", "-o", "json").json.items() >= made.items()
    listed = fjord_on_both("orgs", "list", "-o", "json").json
    assert [each["slug"] for each in listed["data"]] == ["fjord-tours", "isla-tours"]
    assert listed["data"][1] == made
    assert (listed["has_more"], listed["next_cursor"]) == (False, None)


def test_a_slug_that_is_taken_exits_7(fjord_on_both: Booking) -> None:
    refused = create(fjord_on_both, "-o", "json", slug="fjord-tours")
    assert (*refused.refusal, refused.error["hint"]) == (7, "conflict", "booking orgs list")
    assert (refused.error["details"][0]["reason"], refused.out) == ("slug_taken", "")


def test_every_bad_field_is_reported_at_once(stored: Booking) -> None:
    refused = create(stored, "-o", "json", timezone="Mars", currency="XXX")
    assert (refused.code, [each["field"] for each in refused.error["details"]]) == (8, ["timezone", "currency"])
    assert len(create(stored, "-q", timezone="Mars", currency="XXX").err.splitlines()) == 1


def test_settings_are_set_and_shown(fjord_on_both: Booking) -> None:
    changes = ("add_ons_app=off", "pending_minutes=45", "staff_email=staff@fjord.example", "name=Fjord & Fjell = 1")
    changed = fjord_on_both("orgs", "set", "fjord-tours", *changes, "-o", "json").json
    assert (changed["add_ons_app"], changed["pending_minutes"]) == (False, 45)
    assert changed["name"] == "Fjord & Fjell = 1"
    assert fjord_on_both("orgs", "show", "fjord-tours", "-o", "json").json == changed
    assert fjord_on_both("orgs", "set", "fjord-tours", "pending_minutes=", "--json").json["pending_minutes"] is None


def test_a_change_without_an_equals_sign_exits_2(fjord: Booking) -> None:
    assert fjord("orgs", "set", "fjord-tours", "name").code == 2


def test_the_help_of_set_names_every_setting(booking: Booking) -> None:
    shown = booking("orgs", "set", "--help").out
    assert all(key in shown for key in SETTINGS)


def test_the_address_for_notices_to_staff_is_set_shown_and_removed(fjord_on_both: Booking) -> None:
    def said(*words: str) -> object:
        return fjord_on_both("orgs", "notify-email", "fjord-tours", *words, "-o", "json").json

    named = {"slug": "fjord-tours", "staff_email": "office@fjord.example"}
    assert said("office@fjord.example") == named | {"notify_staff": True}
    assert said("--off") == said() == named | {"notify_staff": False}
    assert said("quay@fjord.example") == named | {"staff_email": "quay@fjord.example", "notify_staff": True}


def test_a_bad_address_for_staff_changes_nothing(fjord_on_both: Booking) -> None:
    before = fjord_on_both("orgs", "show", "fjord-tours", "-o", "json").json
    refused = fjord_on_both("orgs", "notify-email", "fjord-tours", "nobody", "-o", "json")
    assert (refused.code, refused.error["details"][0]["field"]) == (8, "staff_email")
    assert fjord_on_both("orgs", "notify-email", "fjord-tours", "a@b.example", "--off").code == 2
    assert fjord_on_both("orgs", "show", "fjord-tours", "-o", "json").json == before
