"""Negotiation between HTML and JSON."""

import pytest

from booking_server.reference.accept import prefers_json

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/json, text/plain, */*",
        "application/*",
        "text/html;q=0.5, application/json",
        "text/html; q=0, */*",
    ],
)
def test_json_is_preferred(accept: str) -> None:
    assert prefers_json(accept)


@pytest.mark.parametrize(
    "accept",
    [
        BROWSER,
        "*/*",
        "",
        "text/html, application/json",
        "application/json;q=0.9, text/html",
        "application/json;q=0",
        "application/json;q=high",
        "text/plain",
    ],
)
def test_html_is_preferred(accept: str) -> None:
    assert not prefers_json(accept)
