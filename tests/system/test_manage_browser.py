"""The guest's page in a real browser that runs no script, on a phone and on a desktop."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_core_python
import pytest
from support.serving.servers import Service, new_world
from support.world.operations import Operations, guest
from support.world.world import HOUR, World

from booking_core.base.guest_links import ManageLinks, gift_card_link
from booking_core.base.languages import NAMES
from booking_core.db import tables
from booking_core.payments import gift_cards
from booking_core.payments.gift_cards import GiftCardIssue

pytest.importorskip("selenium")

from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import url_to_be
from selenium.webdriver.support.wait import WebDriverWait
from support.browser.browser import DESKTOP, PHONE, chromium, fits, needs_chromium, set_color_scheme, show, take_picture

pytestmark = [needs_chromium, pytest.mark.one_database]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = chromium(tmp_path_factory.mktemp("browser"), runs_scripts=False)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser that runs axe-core, beside pages whose policy allows no script."""
    driver = chromium(tmp_path_factory.mktemp("auditor"))
    yield driver
    driver.quit()


@pytest.fixture
def world(service: Service) -> Iterator[World]:
    with new_world(service.url) as world:
        yield world


@pytest.fixture
def guest_name() -> str:
    """The name of the guest whose page it is; a test may override it."""
    return "Ada Lovelace"


@pytest.fixture
def address(world: World, service: Service, guest_name: str) -> str:
    """The secret link of a booking that a card paid."""
    departure = world.departure(
        world.experience(title="Fjord kayak", address="Simadalsvegen 9, 5783 Eidfjord"),
        starts_at=world.clock() + 100 * HOUR,
    )
    ops = Operations(world)
    booking = ops.check_out(departure, 2, suits=2, customer=guest(name=guest_name))
    ops.pay(booking["id"])
    link = ManageLinks(world.installation, world.org).make(booking["id"], world.installation.secret_keys.first_id)
    assert link is not None
    return f"http://127.0.0.1:{service.ports[0]}/manage/{link.rpartition('/')[2]}"


def text(browser: Any) -> str:
    return str(browser.find_element(By.TAG_NAME, "body").text)


def test_a_guest_looks_and_cancels(browser: Any, address: str, world: World) -> None:
    show(browser, PHONE)
    browser.get(address)
    assert "Fjord kayak" in text(browser)
    assert "Confirmed" in text(browser)
    assert fits(browser)
    take_picture(browser, "manage_phone")
    show(browser, DESKTOP)
    assert fits(browser)
    take_picture(browser, "manage")

    browser.find_element(By.LINK_TEXT, "Cancel this booking").click()
    assert "Cancel this booking?" in text(browser)
    assert "2,080.00 NOK is returned to your card." in text(browser)
    assert fits(browser)
    take_picture(browser, "manage_cancel")
    show(browser, PHONE)
    assert fits(browser)
    take_picture(browser, "manage_cancel_phone")
    browser.find_element(By.LINK_TEXT, "No, keep it").click()
    assert browser.current_url == address
    assert world.rows(tables.bookings)[0]["status"] == "confirmed"

    browser.find_element(By.LINK_TEXT, "Cancel this booking").click()
    browser.find_element(By.CSS_SELECTOR, "button").click()
    WebDriverWait(browser, 30).until(url_to_be(address))
    assert "Cancelled" in text(browser)
    assert "2,080.00 NOK will be returned to you, normally to the card that paid." in text(browser)
    assert fits(browser)
    take_picture(browser, "manage_cancelled_phone")
    (booking,) = world.rows(tables.bookings)
    assert (booking["status"], booking["cancel_reason"]) == ("cancelled", "customer")
    browser.refresh()
    assert world.rows(tables.refunds)[0]["amount_minor"] == 208000


def test_the_page_is_styled_by_what_its_policy_allows(browser: Any, address: str) -> None:
    """If the policy's hash did not match the style, the page would have no style."""
    browser.get(address)
    assert browser.find_element(By.CSS_SELECTOR, ".status").value_of_css_property("font-weight") == "600"


@pytest.mark.parametrize("guest_name", ["<script>document.title = 'taken'</script>"])
def test_a_name_that_is_a_script_is_a_name(browser: Any, address: str) -> None:
    browser.get(address)
    assert "<script>document.title = 'taken'</script>" in text(browser)
    assert browser.title == "Your booking"


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_a_long_title_and_a_link_that_does_not_work_fit_too(
    browser: Any, address: str, world: World, size: tuple[int, int]
) -> None:
    show(browser, size)
    (experience,) = world.rows(tables.experiences)
    world.change(tables.experiences, experience["id"], title="x" * 200, address="שלום " * 40)
    browser.get(address)
    assert fits(browser)
    browser.get(address[:-1])
    assert "This link does not work" in text(browser)
    assert fits(browser)


@pytest.mark.exhaustive(but="sqlite-de")  # the longest words
@pytest.mark.parametrize("hours", [0, 101, None], ids=["in time", "late", "never"])
@pytest.mark.parametrize("code", NAMES)
def test_the_deadlines_of_guests_fit_in_every_language(
    browser: Any, address: str, world: World, code: str, hours: int | None
) -> None:
    deadlines = {"guest_cancel_until_hours": hours, "guest_move_until_hours": hours}
    world.change(tables.organizations, world.org, **deadlines, contact_phone="+47 55 12 34 56")
    for name, size in (("phone", PHONE), ("desktop", DESKTOP)):
        show(browser, size)
        browser.get(f"{address}?lang={code}")
        assert len(browser.find_elements(By.CSS_SELECTOR, ".actions")) == (2 if hours == 0 else 1)
        assert fits(browser)
        take_picture(browser, f"manage_deadlines_{code}_{hours}_{name}")


PAGE = "<!doctype html><meta name=viewport content='width=device-width, initial-scale=1'><body style='margin:0'>"
TOO_WIDE = {
    "a box beyond the window": "<div style='width:600px'>x</div>",
    "a word beyond the window": "<p>" + "x" * 200,
    "a box that is cut off": "<div style='overflow:hidden; padding:20px'><div style='width:375px'>x</div></div>",
    "a word that is cut off": "<div style='overflow:hidden'>" + "x" * 200,
}


@pytest.mark.parametrize(
    ("body", "is_narrow"),
    [
        *((body, False) for body in TOO_WIDE.values()),
        ("<div style='overflow:auto'>" + "x" * 200, True),
        ("<p style='overflow-wrap:anywhere'>" + "x" * 200, True),
    ],
    ids=[*TOO_WIDE, "a word that scrolls", "a word that is broken"],
)
def test_a_page_fits_if_nothing_is_cut_off_on_a_phone(browser: Any, tmp_path: Path, body: str, is_narrow: bool) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGE + body)
    show(browser, PHONE)
    browser.get(page.as_uri())
    assert fits(browser) is is_narrow


# Accessible in every state ---------------------------------------------------------------------------------------

AXE = Path(axe_core_python.__file__).parent / "axe.min.js"
AUDIT = "const done = arguments[arguments.length - 1]; axe.run().then(found => done(found.violations.map(v => v.id)))"


@pytest.fixture
def pages(world: World, service: Service) -> dict[str, str]:
    """Return the address of the page in each state, with everything that it can show."""
    identity = {"brand_color": "#0f766e", "contact_phone": "+47 55 12 34 56", "website": "https://fjord.example"}
    world.change(tables.organizations, world.org, **identity, guest_move_until_hours=24)
    details = {"meeting_point": "At the boathouse.", "what_to_bring": '["A towel"]', "terms": "Children with an adult."}
    german = {"title": "Mit dem Seekajak durch den Fjord", "price_tiers": {"adult": "Jugendliche (10–15 Jahre)"}}
    details["translations"] = json.dumps({"de": german})
    experience = world.experience(address="Simadalsvegen 9", latitude=60.4, longitude=7.0, **details)
    departure = world.departure(experience, starts_at=world.clock() + 100 * HOUR)
    other = world.departure(experience, starts_at=world.clock() + 130 * HOUR)
    ops = Operations(world)
    confirmed, pending, cancelled = (ops.check_out(departure, 1, suits=1)["id"] for _ in range(3))
    for paid in (confirmed, cancelled):
        ops.pay(paid, f"pi_{paid}")
    ops.cancel(cancelled)
    assert other
    issued = GiftCardIssue(amount_minor=50000, recipient_name="Grace")
    card = json.loads(ops.act(lambda tx, actor: gift_cards.issue(tx, actor, issued))[0])["id"]
    links = {
        "confirmed": manage_link(world, confirmed),
        "pending": manage_link(world, pending),
        "cancelled": manage_link(world, cancelled),
        "gift": gift_card_link(world.installation, world.org, card),
    }
    base = f"http://127.0.0.1:{service.ports[0]}"
    addresses = {name: base + urlsplit(link).path for name, link in links.items()}
    page = addresses["confirmed"]
    below = {name: f"{page}/{name}" for name in ("cancel", "move", "receipt")}
    return addresses | below | {"moved": f"{page}?moved=1", "german": f"{page}?lang=de", "wrong": page[:-1]}


def manage_link(world: World, booking_id: str) -> str:
    link = ManageLinks(world.installation, world.org).make(booking_id, world.installation.secret_keys.first_id)
    assert link is not None
    return link


PAGES = "confirmed", "pending", "cancelled", "gift", "cancel", "move", "receipt", "moved", "german", "wrong"
LIGHT = "confirmed", "cancelled", "cancel", "gift"
"""The pages that are also looked at in the light scheme: together they have every element of the others."""


@pytest.mark.exhaustive(but=("sqlite-confirmed-phone", "sqlite-gift-desktop"))
@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        *(pytest.param(name, PHONE, "dark", id=f"{name}-phone in the dark") for name in PAGES),
        *(pytest.param(name, DESKTOP, "light", id=f"{name}-desktop in the light") for name in LIGHT),
    ],
)
def test_every_page_is_accessible_and_fits_in_both_color_schemes(
    auditor: Any, pages: dict[str, str], name: str, size: tuple[int, int], scheme: str
) -> None:
    show(auditor, size)
    set_color_scheme(auditor, scheme)
    auditor.get(pages[name])
    assert pages.keys() == set(PAGES)
    assert fits(auditor)
    auditor.execute_script(AXE.read_text())
    assert auditor.execute_async_script(AUDIT) == []
