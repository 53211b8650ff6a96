"""The reference in a real browser: it is rendered, sends requests, and loads nothing from another host.

BOOKING_TEST_SCREENSHOTS names a folder for pictures of the pages.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import new_world, served_in_process
from support.world import HOUR, World

from booking_core.db import tables

selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402 - only where it is installed
from selenium.webdriver.chrome.service import Service as Driver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
WAIT_S = 60
PHONE, DESKTOP = (390, 844), (1280, 900)

pytestmark = pytest.mark.skipif(
    not (CHROMIUM.exists() and CHROMEDRIVER.exists()), reason="chromium and its driver are not installed"
)


class Browser:
    """Chromium on the pages of one service, with what it logs and requests."""

    def __init__(self, driver: Any, origin: str) -> None:
        self.driver = driver
        self.origin = origin

    def open(self, path: str) -> None:
        # Another document first: a change of the fragment alone would not load the page again.
        self.driver.get("about:blank")
        self.driver.get(self.origin + path)

    def find(self, selector: str) -> Any:
        """Wait for a visible element and return the first."""
        return WebDriverWait(self.driver, WAIT_S).until(
            lambda _: next((each for each in self.all(selector) if each.is_displayed()), None)
        )

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def click(self, selector: str) -> None:
        # By script, since an element may lie below the edge of the window or still be scrolled to.
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

    def resize(self, size: tuple[int, int]) -> None:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def set_color_scheme(self, value: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def fits(self) -> bool:
        """Return True if nothing lies beyond the right edge of the window."""
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})
        return bool(size["cssContentSize"]["width"] <= size["cssLayoutViewport"]["clientWidth"])

    def console(self) -> list[str]:
        """Return the new lines of the console, among them violations of the Content-Security-Policy."""
        return [line["message"] for line in self.driver.get_log("browser")]

    def requested(self) -> set[str]:
        """Return the addresses that were requested since the last call."""
        events = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        sent = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
        return {url for url in sent if not url.startswith(("chrome:", "data:"))}

    def picture(self, name: str) -> None:
        if folder := os.environ.get("BOOKING_TEST_SCREENSHOTS"):
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    quiet = ("no-first-run", "disable-background-networking", "disable-component-update", "disable-sync")
    for flag in ("headless", "no-sandbox", "disable-gpu", *quiet):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Driver(str(CHROMEDRIVER)))
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
    with new_world(database_url) as made:
        yield made


@pytest.fixture
def browser(driver: Any, origin: str) -> Iterator[Browser]:
    """Yield a browser, then check that its console is empty and that it requested nothing from another host."""
    opened = Browser(driver, origin)
    opened.resize(DESKTOP)
    opened.console(), opened.requested()
    yield opened
    assert opened.console() == []
    assert {url for url in opened.requested() if not url.startswith((f"{origin}/", "about:"))} == set()


def test_the_reference_shows_every_operation_and_every_webhook(browser: Browser) -> None:
    browser.open("/docs")
    browser.find(".opblock")
    document = json.loads(browser.driver.execute_async_script(
        "fetch('/api/v1/openapi.json').then((response) => response.text()).then(arguments[0])"
    ))  # fmt: skip
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(browser.all(".opblock-tag-section .opblock")) == len(operations)
    assert len(browser.all(".webhooks .opblock")) == len(document["webhooks"])
    browser.picture("reference")
    links = len(browser.all("#contents section:not(:first-of-type) a"))
    assert links == len(operations) + len(document["webhooks"])


def test_a_request_is_sent_with_the_key_that_was_entered(browser: Browser, world: World) -> None:
    browser.open("/docs")
    browser.find(".opblock")
    browser.enter_key(world.key())
    operation = "#operations-Me-get_me"
    browser.click("#contents a[href='#/Me/get_me']")
    browser.click(f"{operation} .try-out__btn")
    response = browser.execute(operation)
    browser.picture("reference_executed")
    assert response.startswith("Code Details\n200\n")
    assert world.org in response


def test_a_booking_is_created_with_an_idempotency_key_that_is_filled_in(browser: Browser, world: World) -> None:
    departure = world.departure(world.experience(), starts_at=world.clock() + 100 * HOUR)
    browser.open("/docs#/Bookings/create_booking")
    operation = "#operations-Bookings-create_booking"
    browser.find(f"{operation} .try-out__btn")
    browser.enter_key(world.key())
    browser.click(f"{operation} .try-out__btn")
    body = json.dumps({
        "experience_date_id": departure,
        "guests": [{"tier_id": "adult", "count": 2}],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "payment": "pay_on_site",
    })  # fmt: skip
    browser.fill(f"{operation} textarea.body-param__text", body)
    assert "\n201\n" in browser.execute(operation)
    (booking,) = world.rows(tables.bookings)
    assert booking["id"] in browser.execute(operation)
    assert len(world.rows(tables.bookings)) == 1


def test_the_key_is_forgotten_when_the_page_is_left(browser: Browser, world: World) -> None:
    browser.open("/docs")
    browser.find(".opblock")
    browser.enter_key(world.key())
    stored = "return [localStorage.length, sessionStorage.length, document.cookie]"
    assert browser.driver.execute_script(stored) == [0, 0, ""]


@pytest.mark.parametrize("fragment", ["#/Bookings/create_booking", "#/Gift%20cards/list_gift_cards", "#guide-errors"])
def test_an_address_with_a_fragment_shows_that_part(browser: Browser, fragment: str) -> None:
    browser.open(f"/docs{fragment}")
    part = "#guide-errors" if "guide" in fragment else ".opblock.is-open"
    assert browser.find(part)
    position = f"document.querySelector('{part}').getBoundingClientRect().top"
    WebDriverWait(browser.driver, WAIT_S).until(
        lambda driver: driver.execute_script(f"return Math.abs({position}) < 100")
    )


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_pages_fit_every_window_and_follow_the_color_scheme(browser: Browser, size: tuple[int, int]) -> None:
    browser.resize(size)
    for page, path, part in (("index", "/", "h1"), ("operation", "/docs#/Bookings/create_booking", ".is-open")):
        browser.set_color_scheme("dark")
        browser.open(path)
        browser.find(part)
        for scheme in ("dark", "light"):  # an open page follows the one that is chosen
            browser.set_color_scheme(scheme)
            assert browser.fits()
            background = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (int(background.split("(")[1].split(",")[0]) < 64) == (scheme == "dark")
            browser.picture(f"{page}_{'phone' if size == PHONE else 'desktop'}_{scheme}")


def test_the_contents_of_a_phone_open_and_close(browser: Browser) -> None:
    browser.resize(PHONE)
    browser.open("/docs")
    browser.find(".opblock")
    link = browser.all("#contents a[href='#/Me/get_me']")[0]
    assert not link.is_displayed()
    browser.click("#contents summary")
    assert link.is_displayed()
    browser.click("#contents a[href='#/Me/get_me']")
    assert browser.find(".opblock.is-open")
    assert not link.is_displayed()
