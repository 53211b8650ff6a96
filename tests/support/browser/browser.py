"""Chromium, for tests of pages. BOOKING_TEST_SCREENSHOTS names a folder for pictures of the pages."""

import base64
import math
import os
from pathlib import Path
from typing import Any

import pytest

selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402 - only where it is installed
from selenium.webdriver.chrome.service import Service as Driver  # noqa: E402

CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
PHONE, DESKTOP = (390, 844), (1280, 900)
_ROUNDING = 0.5
"""Of boxes at fractions of a pixel."""

needs_chromium = pytest.mark.component("chromium", "chromedriver", package="chromium-driver")


def chromium(profile: Path, *, runs_scripts: bool = True) -> Any:
    """Start a browser that logs its console and its requests."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    quiet = ("no-first-run", "disable-background-networking", "disable-component-update", "disable-sync")
    for flag in ("headless", "no-sandbox", "disable-gpu", *quiet):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if not runs_scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    return webdriver.Chrome(options=options, service=Driver(str(CHROMEDRIVER)))


def show(browser: Any, size: tuple[int, int]) -> None:
    """Give the window a size."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def set_color_scheme(browser: Any, value: str) -> None:
    """Let the browser prefer `light` or `dark` pages."""
    features = [{"name": "prefers-color-scheme", "value": value}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def fits(browser: Any) -> bool:
    """Return True if no box extends beyond the right edge of the window, or of a box that cuts it off.

    The size of the content does not show it: on a phone the viewport grows with it, and what is cut off does not count.
    """
    snapshot = browser.execute_cdp_cmd("DOMSnapshot.captureSnapshot", {"computedStyles": ["overflow-x"]})
    document, strings = snapshot["documents"][0], snapshot["strings"]
    parents, layout = document["nodes"]["parentIndex"], document["layout"]
    boxes = list(zip(layout["nodeIndex"], layout["bounds"], layout["styles"], strict=True))[1:]  # without the document
    edges: dict[int, float] = {}
    """The right edge for what is in a node. The window is as wide as the outermost element."""
    for node, (x, _, width, _), styles in boxes:
        parent, right = parents[node], x + width
        while parent > 0 and parent not in edges:  # an element without a box
            parent = parents[parent]
        edge = edges.get(parent, right)
        if right > edge + _ROUNDING:
            return False
        edges[node] = _edge_within(strings[styles[0]] if styles else "visible", edge, x, right)
    return True


def _edge_within(overflow: str, edge: float, left: float, right: float) -> float:
    is_invisible = left == right  # as the symbols of an SVG, which are drawn elsewhere
    if overflow in ("auto", "scroll") or (overflow in ("hidden", "clip") and is_invisible):
        return math.inf
    return min(edge, right) if overflow in ("hidden", "clip") else edge


def take_picture(browser: Any, name: str) -> None:
    """Save a picture of the whole page, if a folder for pictures is named."""
    if folder := os.environ.get("BOOKING_TEST_SCREENSHOTS"):
        picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(picture["data"]))
