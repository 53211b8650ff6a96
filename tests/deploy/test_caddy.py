"""Caddy with the configuration of deploy/, in front of `booking serve`: limits, and an unavailable process."""

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import serving
from support.servers import free_port

CADDYFILE = Path(__file__).parents[2] / "deploy" / "proxies" / "Caddyfile"

pytestmark = pytest.mark.skipif(not shutil.which("caddy"), reason="Caddy is not installed: apt-get install caddy")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = serving.started(tmp_path_factory.mktemp("service"), "serve", "--port", "0", "--no-worker")
    with serving.serving(process, is_killed=True) as (address, _):
        yield process, address


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, service: tuple[subprocess.Popen[str], str]) -> Iterator[int]:
    """Run Caddy with the configuration unchanged except for its addresses, and without certificates."""
    port, folder = free_port(), tmp_path_factory.mktemp("caddy")
    text = CADDYFILE.read_text()
    for old, new in (
        ("\n{\n", "\n{\n\tadmin off\n\tauto_https off\n"),
        ("booking.example.com", f"http://127.0.0.1:{port}"),
        ("127.0.0.1:8000", service[1].removeprefix("http://")),
        # The second process does not run, as during its restart.
        ("127.0.0.1:8001", f"127.0.0.1:{free_port()}"),
        ("lb_try_duration 4s", "lb_try_duration 500ms"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "Caddyfile").write_text(text)
    command = ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    own = os.environ | {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with subprocess.Popen(command, env=own, stderr=subprocess.DEVNULL) as caddy:
        try:
            serving.wait_for(f"http://127.0.0.1:{port}")
            yield port
        finally:
            caddy.terminate()


def ask(port: int, path: str, body: bytes | None = None) -> Any:
    """Return the status, the headers and the JSON of a response."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k" * 20, "Authorization": "Bearer svc_live_x"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request("GET" if body is None else "POST", path, body, headers)
        answer = client.getresponse()
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text.startswith(b"{") else text


def test_requests_reach_the_process_that_works_while_the_other_is_away(port: int) -> None:
    answers = [ask(port, path, body) for path, body in (("/api/v1/me", None), ("/api/v1/bookings", b"{}")) * 5]
    assert {(status, body["code"]) for status, _, body in answers} == {(401, "api_key_invalid")}


def test_probes_and_metrics_are_not_served_to_the_outside(port: int) -> None:
    assert {ask(port, path)[0] for path in ("/healthz", "/readyz", "/metrics")} == {404}


@pytest.mark.parametrize("size", [270_000, 300_000, 400_000, 3_000_000])
def test_a_body_that_is_too_large_is_refused_alike_by_the_service_and_by_caddy(port: int, size: int) -> None:
    status, _, body = ask(port, "/api/v1/bookings", b"x" * size)
    assert (status, body["code"]) in ((413, "payload_too_large"), (401, "api_key_invalid"))
    assert size < 300_000 or status == 413


def test_without_the_service_clients_get_503_with_retry_after(
    port: int, service: tuple[subprocess.Popen[str], str]
) -> None:
    service[0].kill()
    service[0].wait()
    status, headers, body = ask(port, "/api/v1/me")
    assert (status, headers["Retry-After"], body["code"]) == (503, "1", "service_unavailable")
    assert body.keys() == {"error", "code", "request_id"}
