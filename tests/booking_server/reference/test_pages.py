"""`/`, `/docs` and the assets: content, headers, caching, and that nothing refers to another host."""

import gzip
import html
import re

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from support.api import Api
from support.world import SECRET

from booking_core.base.settings import RateLimit, Settings
from booking_core.db.engine import Database
from booking_core.models.limits import API_VERSION
from booking_server.api.openapi.changelog import CHANGES
from booking_server.app import create_app
from booking_server.reference import assets, router

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
ASSETS = {
    "icon.svg": "image/svg+xml",
    "index.css": "text/css; charset=utf-8",
    "reference.css": "text/css; charset=utf-8",
    "reference.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
PATHS = ["/", "/docs", *(f"/docs/assets/{name}" for name in ASSETS)]
OTHER_HOST = re.compile(r"https?:|[\"'(=]\s*//", re.IGNORECASE)


def get(api: Api, path: str, **headers: str) -> httpx.Response:
    """Send a GET without a key; an underscore in a header's name stands for a hyphen."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    response: httpx.Response = api.client.get(path, headers=sent, follow_redirects=False)
    return response


def test_the_index_page_links_to_the_reference_the_openapi_document_and_the_changelog(api: Api) -> None:
    response = get(api, "/", accept="text/html")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert {'href="docs"', 'href="api/v1/openapi.json"', 'href="#changelog"'} <= set(
        re.findall(r'href="[^"]*"', response.text)
    )
    assert 'id="changelog"' in response.text
    assert API_VERSION in response.text


def test_the_index_page_lists_every_change_of_the_api_newest_first(api: Api) -> None:
    text = html.unescape(re.sub(r"<[^>]*>", "", get(api, "/").text))
    found = [text.index(f"{change.text.replace('`', '')}\n") for change in reversed(CHANGES)]
    assert found == sorted(found)


def test_clients_that_prefer_json_get_the_index_as_json(api: Api) -> None:
    response = get(api, "/", accept="application/json")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "name": "Booking Service API",
        "description": response.json()["description"],
        "api_version": API_VERSION,
        "documentation": "/docs",
        "openapi": "/api/v1/openapi.json",
        "changelog": "/api/v1/openapi.json#/info/x-changelog",
    }


def test_the_json_index_points_at_what_is_served(api: Api) -> None:
    index = get(api, "/", accept="application/json").json()
    assert get(api, index["documentation"]).status_code == 200
    path, _, pointer = index["changelog"].partition("#")
    document = get(api, path).json()
    assert document["info"]["version"] == index["api_version"]
    assert pointer == "/info/x-changelog"
    assert len(document["info"]["x-changelog"]) == len(CHANGES)


def test_the_json_index_includes_the_root_path_of_a_mounted_application() -> None:
    app = FastAPI()
    app.include_router(router)
    client = TestClient(app, root_path="/booking")
    index = client.get("/booking/", headers={"accept": "application/json"}).json()
    assert index["documentation"] == "/booking/docs"
    assert index["openapi"] == "/booking/api/v1/openapi.json"


def test_the_reference_loads_only_assets_that_are_served(api: Api) -> None:
    for page in ("/", "/docs"):
        for name in re.findall(r'(?:src|href)="docs/assets/([^"]+)"', get(api, page).text):
            assert get(api, f"/docs/assets/{name}").status_code == 200
    assert set(ASSETS) == assets.NAMES


@pytest.mark.parametrize(("name", "media_type"), ASSETS.items())
def test_assets_have_their_media_type(api: Api, name: str, media_type: str) -> None:
    response = get(api, f"/docs/assets/{name}")
    assert response.status_code == 200
    assert response.headers["content-type"] == media_type
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PATHS)
def test_every_response_has_the_exact_security_headers(api: Api, path: str) -> None:
    headers = get(api, path).headers
    assert headers.get_list("content-security-policy") == [POLICY]
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("path", PATHS)
def test_responses_are_revalidated_by_etag(api: Api, path: str) -> None:
    first = get(api, path)
    assert first.headers.get_list("cache-control") == ["no-cache"]
    assert first.headers["vary"] == "Accept, Accept-Encoding"
    etag = first.headers["etag"]
    for held in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        again = get(api, path, if_none_match=held)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["content-security-policy"] == POLICY
    assert get(api, path, if_none_match='W/"other"').status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_responses_are_compressed_for_clients_that_accept_it(api: Api, path: str) -> None:
    plain = get(api, path, accept_encoding="identity")
    assert "content-encoding" not in plain.headers
    with api.client.stream("GET", path, headers={"accept-encoding": "gzip, br"}) as compressed:
        assert compressed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(compressed.iter_raw())) == plain.content


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_as_get_does(api: Api, path: str) -> None:
    head = api.client.head(path)
    assert head.status_code == 200
    for name in ("content-type", "content-length", "etag", "content-security-policy"):
        assert head.headers[name] == get(api, path).headers[name]


@pytest.mark.parametrize("path", PATHS)
def test_other_methods_are_refused(api: Api, path: str) -> None:
    response = api.client.post(path)
    assert response.status_code == 405
    assert response.json()["code"] == "method_not_allowed"
    assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    "path", ["/docs/", "/docs/assets", "/docs/assets/", "/docs/assets/docs.html", "/docs/assets/x"]
)
def test_other_paths_below_docs_are_not_found(api: Api, path: str) -> None:
    response = get(api, path)
    assert response.status_code == 404
    assert response.json()["code"] == "not_found"


@pytest.mark.parametrize("path", ["/docs/assets/../pages.py", "/docs/assets/%2e%2e%2fpages.py", "/docs/assets/..%5cx"])
def test_no_file_outside_the_list_is_served(api: Api, path: str) -> None:
    assert get(api, path).status_code == 404


def test_requests_need_no_key_and_are_not_rate_limited(shared_database_url: str, database: Database) -> None:
    settings = Settings(
        database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=RateLimit(1, 60)
    )
    with TestClient(create_app(settings, database=database)) as client:
        for _ in range(70):
            response = client.get("/docs")
            assert response.status_code == 200
    assert not any(name.startswith("x-ratelimit") for name in response.headers)


def test_no_page_or_asset_of_ours_refers_to_another_host(api: Api) -> None:
    for path in PATHS:
        if "swagger-ui" not in path:
            text = get(api, path).text.replace('xmlns="http://www.w3.org/2000/svg"', "")
            assert not OTHER_HOST.search(text), path


def test_the_style_sheet_of_swagger_ui_loads_nothing(api: Api) -> None:
    text = get(api, "/docs/assets/swagger-ui.css").text
    assert "@import" not in text
    assert all(target.startswith("data:") for target in re.findall(r"url\([\"']?([^)]{5})", text))


def test_the_pages_have_no_inline_script_or_style(api: Api) -> None:
    for path in ("/", "/docs"):
        html = get(api, path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", html)


def test_the_pages_are_not_in_the_openapi_document(api: Api) -> None:
    assert not [path for path in get(api, "/api/v1/openapi.json").json()["paths"] if not path.startswith("/api/v1/")]
