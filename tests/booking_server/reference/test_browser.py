"""The reference in a real browser: it is rendered, sends requests, and loads nothing from another host."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.api.endpoints import DOCUMENT
from support.serving.servers import new_world, served_in_process
from support.world.world import HOUR, World

from booking_core.db import tables
from booking_server.app import describe
from docsite.build import write_api

pytest.importorskip("selenium")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait
from support.browser.browser import DESKTOP, PHONE, chromium, fits, needs_chromium, set_color_scheme, show, take_picture

WAIT_S = 60
CREATE = "#operations-Bookings-create_booking"

pytestmark = needs_chromium


class Browser:
    """Chromium on the pages of one service."""

    def __init__(self, driver: Any, origin: str) -> None:
        self.driver = driver
        self.origin = origin

    def open(self, path: str) -> None:
        # Another document first: a change of the fragment alone would not load the page again.
        self.driver.get("about:blank")
        self.driver.get(self.origin + path)
        self.find("h1, .opblock")

    def find(self, selector: str) -> Any:
        """Wait for a visible element and return the first."""
        return WebDriverWait(self.driver, WAIT_S).until(
            lambda _: next((element for element in self.all(selector) if element.is_displayed()), None)
        )

    def all(self, selector: str) -> list[Any]:
        elements: list[Any] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return elements

    def click(self, selector: str) -> None:
        # By script, since an element may be below the edge of the window.
        self.driver.execute_script("arguments[0].click()", self.find(selector))

    def fill(self, selector: str, text: str) -> None:
        """Replace a field's text at once: the page is rendered again for every key that is typed."""
        self.driver.execute_script("arguments[0].focus(); arguments[0].select()", self.find(selector))
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def enter_key(self, key: str) -> None:
        self.click("#contents button")
        self.fill(".auth-container input", key)
        self.click(".auth-container .authorize")
        self.click(".auth-container .btn-done")

    def execute(self, operation: str) -> str:
        """Press Execute and return the text of the response that the page shows."""
        self.click(f"{operation} .execute")
        return str(self.find(f"{operation} .live-responses-table").text)

    def requested(self) -> set[str]:
        """Return the addresses that were requested since the last call."""
        events = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return {url for url in sent if not url.startswith(("chrome:", "data:", "about:", "file:"))}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    started = chromium(tmp_path_factory.mktemp("browser"))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def database_url(new_database_url: Callable[[str], str]) -> str:
    """Make an SQLite database only: the pages do not depend on the database, and a browser is slow."""
    return new_database_url("sqlite")


@pytest.fixture(scope="module")
def origin(database_url: str) -> Iterator[str]:
    """Start the service and yield its address."""
    with served_in_process(database_url) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with new_world(database_url) as world:
        yield world


@pytest.fixture
def browser(driver: Any, origin: str) -> Iterator[Browser]:
    """Yield a browser, then check that its console is empty and that it requested nothing from another host."""
    opened = Browser(driver, origin)
    show(driver, DESKTOP)
    set_color_scheme(driver, "dark")
    driver.get_log("browser"), opened.requested()
    yield opened
    assert driver.get_log("browser") == []  # violations of the Content-Security-Policy are among its lines
    assert {url for url in opened.requested() if not url.startswith(f"{origin}/")} == set()


def shows_all_of(document: dict[str, Any], browser: Browser) -> None:
    operations = sum(map(len, document["paths"].values()))
    assert len(browser.all(".opblock-tag-section .opblock")) == operations
    assert len(browser.all(".webhooks .opblock")) == len(document["webhooks"])
    links = len(browser.all("#contents section:not(:first-of-type) a"))
    assert links == operations + len(document["webhooks"])


def test_a_page_of_a_few_operations_shows_each_of_them(browser: Browser, tmp_path: Path) -> None:
    """A browser needs ten seconds for all of them."""
    few = DOCUMENT | {name: dict([*DOCUMENT[name].items()][:3]) for name in ("paths", "webhooks")}
    write_api(tmp_path / "api", few)
    in_folder = Browser(browser.driver, (tmp_path / "api").as_uri())
    in_folder.open("/index.html")
    shows_all_of(few, in_folder)


@pytest.mark.exhaustive
def test_the_reference_shows_every_operation_and_every_webhook(browser: Browser) -> None:
    browser.open("/docs")
    document = json.loads(
        browser.driver.execute_async_script(
            "fetch('/api/v1/openapi.json').then((response) => response.text()).then(arguments[0])"
        )
    )
    shows_all_of(document, browser)


@pytest.mark.exhaustive
def test_a_booking_has_the_entered_key_and_a_generated_idempotency_key(browser: Browser, world: World) -> None:
    departure = world.departure(world.experience(), starts_at=world.clock() + 100 * HOUR)
    browser.open("/docs")
    browser.enter_key(world.key())
    browser.click("#contents a[href='#/Bookings/create_booking']")
    browser.click(f"{CREATE} .try-out__btn")
    body = {
        "departure_id": departure,
        "guests": [{"tier_id": "adult", "count": 2}],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "payment": "pay_on_site",
    }
    browser.fill(f"{CREATE} textarea.body-param__text", json.dumps(body))
    response = browser.execute(CREATE)
    fits_in_both_color_schemes(browser, "reference_executed")
    (booking,) = world.rows(tables.bookings)
    assert response.startswith("Code Details\n201\n")
    assert booking["id"] in response
    stored = "return [localStorage.length, sessionStorage.length, document.cookie]"
    assert browser.driver.execute_script(stored) == [0, 0, ""]  # the key is forgotten when the page is left


@pytest.mark.exhaustive(but="desktop")
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_index_fits_every_window_and_follows_the_color_scheme(browser: Browser, size: tuple[int, int]) -> None:
    show(browser.driver, size)
    browser.open("/")
    fits_in_both_color_schemes(browser, f"index_{size[0]}")


@pytest.mark.exhaustive
def test_an_address_of_a_guide_shows_it_on_a_desktop(browser: Browser) -> None:
    browser.open("/docs#guide-errors")
    wait_until_shown(browser, "#guide-errors")
    fits_in_both_color_schemes(browser, "guide_desktop")


@pytest.mark.exhaustive
def test_an_operations_address_shows_it_on_a_phone(browser: Browser) -> None:
    show(browser.driver, PHONE)
    browser.open("/docs#/Gift%20cards/list_gift_cards")
    wait_until_shown(browser, ".opblock.is-open")
    link = browser.all("#contents a[href='#/Bookings/create_booking']")[0]
    assert not link.is_displayed()
    browser.click("#contents summary")
    assert link.is_displayed()
    browser.click("#contents a[href='#/Bookings/create_booking']")
    assert browser.find(f"{CREATE}.is-open")
    assert not link.is_displayed()
    fits_in_both_color_schemes(browser, "operation_phone")


def links(browser: Browser) -> list[str]:
    """Return the texts of the contents that are shown."""
    return [link.text for link in browser.all("#contents li a") if link.is_displayed()]


@pytest.mark.exhaustive
def test_the_search_matches_words_or_paths_and_enter_opens_the_first(browser: Browser) -> None:
    browser.open("/docs")
    every = links(browser)
    search = browser.find("#contents input")
    search.send_keys("/BOOKINGS/{id} check")
    assert links(browser) == ["POST\nCheck in the guests of a booking"]
    fits_in_both_color_schemes(browser, "search_desktop")
    search.send_keys(Keys.ENTER)
    assert browser.find("#operations-Bookings-check_in_booking.is-open")
    search.send_keys(Keys.CONTROL, "a", Keys.DELETE)
    assert links(browser) == every


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_documentation_page_is_the_same_without_a_service(
    browser: Browser, size: tuple[int, int], tmp_path: Path
) -> None:
    document = describe().openapi()
    write_api(tmp_path / "api", document)
    show(browser.driver, size)
    in_folder = Browser(browser.driver, (tmp_path / "api").as_uri())
    in_folder.open("/index.html#/Bookings/create_booking")
    assert in_folder.find(f"{CREATE}.is-open")
    of_requests = in_folder.all(".try-out, .btn.authorize, .authorization__btn, #contents button, .servers")
    assert not [element for element in of_requests if element.is_displayed()]
    assert in_folder.find(f"{CREATE} .responses-table .highlight-code")  # a reference was resolved
    assert not in_folder.all(".errors-wrapper")
    fits_in_both_color_schemes(in_folder, f"site_{size[0]}")
    assert browser.driver.execute_script("return innerWidth") == size[0]
    if size == PHONE:
        in_folder.click("#contents summary")
    titles = [element.text for element in in_folder.all("#contents li a")]
    browser.open("/docs")
    browser.find("#contents li a" if size == DESKTOP else "#contents summary").click()
    assert titles == [element.text for element in browser.all("#contents li a")]


def wait_until_shown(browser: Browser, part: str) -> None:
    """Wait until a part of the page is at the top of the window."""
    assert browser.find(part)
    position = f"document.querySelector('{part}').getBoundingClientRect().top"
    WebDriverWait(browser.driver, WAIT_S).until(
        lambda driver: driver.execute_script(f"return Math.abs({position}) < 100")
    )


def fits_in_both_color_schemes(browser: Browser, picture: str) -> None:
    """Check a page that was opened dark, and follows the chosen color scheme."""
    for scheme in ("dark", "light"):
        set_color_scheme(browser.driver, scheme)
        assert fits(browser.driver)
        background = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (int(background.split("(")[1].split(",")[0]) < 64) == (scheme == "dark")
        take_picture(browser.driver, f"{picture}_{scheme}")
