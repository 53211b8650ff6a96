"""`/`, `/docs` and the assets: content, headers, caching, and that nothing refers to another host."""

import re

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from support.api.api import Api

from booking_server.app import describe
from booking_server.reference import CONTENT_SECURITY_POLICY

pytestmark = pytest.mark.one_database

ASSETS = {
    "icon.svg": "image/svg+xml",
    "index.css": "text/css; charset=utf-8",
    "reference.css": "text/css; charset=utf-8",
    "reference.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
PAGES = ["/", "/docs"]
PATHS = [*PAGES, *(f"/docs/assets/{name}" for name in ASSETS)]
OTHER_HOST = re.compile(r"https?:|[\"'(=]\s*//", re.IGNORECASE)


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """Return the application without a service: no page needs one."""
    return describe()


@pytest.fixture(scope="module")
def client(app: FastAPI) -> TestClient:
    return TestClient(app)


def test_the_index_page_links_to_every_part_of_the_documentation(app: FastAPI, client: TestClient) -> None:
    text = client.get("/").text
    links = {"docs", "docs#guide-conventions", "docs#guide-versioning", "api/v1/openapi.json"}
    assert links <= set(re.findall(r'href="([^"]*)"', text))
    headings = re.findall(r"^## (.+)$", app.openapi()["info"]["description"], re.MULTILINE)
    assert {"Conventions", "Versioning"} <= set(headings)


@pytest.mark.parametrize("page", PAGES)
def test_pages_load_only_served_assets_and_have_no_inline_script(client: TestClient, page: str) -> None:
    html = client.get(page)
    assert html.headers["content-type"] == "text/html; charset=utf-8"
    loaded = re.findall(r'(?:src|href)="docs/assets/([^"]+)"', html.text)
    assert loaded
    assert set(loaded) <= set(ASSETS)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html.text)


@pytest.mark.parametrize(("name", "media_type"), ASSETS.items())
def test_assets_have_their_media_type(client: TestClient, name: str, media_type: str) -> None:
    response = client.get(f"/docs/assets/{name}")
    assert (response.status_code, response.headers["content-type"]) == (200, media_type)


@pytest.mark.parametrize("path", PATHS)
def test_responses_have_the_exact_security_headers_and_are_revalidated_by_etag(client: TestClient, path: str) -> None:
    first = client.get(path)
    again = client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert client.get(path, headers={"if-none-match": 'W/"other"'}).status_code == 200
    for response in (first, again, client.head(path)):
        assert response.headers.get_list("content-security-policy") == [CONTENT_SECURITY_POLICY]
        assert response.headers.get_list("cache-control") == ["no-cache"]
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_policy_allows_nothing_inline_and_no_other_host() -> None:
    allowed = {source for part in CONTENT_SECURITY_POLICY.split("; ") for source in part.split(" ")[1:]}
    assert allowed == {"'none'", "'self'", "data:"}


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_as_get_does_and_other_methods_are_refused(api: Api, path: str) -> None:
    head, get, post = api.client.head(path), api.client.get(path), api.client.post(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-type", "content-length", "etag"):
        assert head.headers[name] == get.headers[name]
    assert not any(name.startswith("x-ratelimit") for name in get.headers)
    assert (post.status_code, post.json()["code"]) == (405, "method_not_allowed")
    assert set(post.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    "path", ["/docs/", "/docs/assets", "/docs/assets/", "/docs/assets/x", "/docs/assets/%2e%2e%2f__init__.py",
             "/docs/assets/..%5cx"]
)  # fmt: skip
def test_other_paths_below_docs_are_not_found(api: Api, path: str) -> None:
    response = api.client.get(path, follow_redirects=False)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_a_browser_with_a_slash_too_many_is_led_to_the_reference(api: Api) -> None:
    accept = {"accept": "text/html"}
    response = api.client.get("/docs/", headers=accept, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (302, "/docs")
    assert "swagger" in api.client.get("/docs/", headers=accept).text


@pytest.mark.parametrize("path", ["/nothing", "/docs/nothing/here", "/demo/pictures/kayak.svg"])
def test_an_unknown_path_answers_html_to_browsers_and_json_to_programs(api: Api, path: str) -> None:
    page = api.client.get(path, headers={"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert page.headers["x-request-id"]
    for loaded in re.findall(r'href="([^"]+)"', page.text):
        assert api.client.get(loaded).status_code == 200
    for accept in ("application/json", "*/*"):
        assert api.client.get(path, headers={"accept": accept}).json()["code"] == "not_found"
    of_api = api.client.get(f"/api/v1{path}", headers={"accept": "text/html"})
    assert (of_api.status_code, of_api.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", [path for path in PATHS if "swagger-ui" not in path])
def test_no_page_or_asset_of_ours_refers_to_another_host(client: TestClient, path: str) -> None:
    text = client.get(path).text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not OTHER_HOST.search(text)


def test_the_style_sheet_of_swagger_ui_loads_nothing(client: TestClient) -> None:
    text = client.get("/docs/assets/swagger-ui.css").text
    assert "@import" not in text
    assert all(target.startswith("data:") for target in re.findall(r"url\([\"']?([^)]{5})", text))


def test_the_pages_are_not_in_the_openapi_document(app: FastAPI) -> None:
    assert not [path for path in app.openapi()["paths"] if not path.startswith("/api/v1/")]
