"""nginx with the configuration of deploy/, in front of `booking serve`: limits, addresses and outages."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import serving
from support.servers import free_port

PROXIES = Path(__file__).parents[2] / "deploy" / "proxies"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin") or ""

pytestmark = pytest.mark.skipif(not NGINX, reason="nginx is not installed: apt-get install nginx-light")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nginx")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = serving.started(folder, "serve", "--port", "0", "--no-worker", BOOKING_TRUSTED_PROXIES="127.0.0.1/32")
    with serving.serving(process, is_killed=True) as (address, _):
        yield process, address


@pytest.fixture(scope="module")
def port(folder: Path, service: tuple[subprocess.Popen[str], str]) -> Iterator[int]:
    """Run nginx with the configuration unchanged except for its port, its files, and a shorter timeout for heads."""
    port = free_port()
    text = (PROXIES / "nginx.conf").read_text()
    for old, new in (
        ("listen 8080", f"listen {port}"),
        ("/tmp/", f"{folder}/"),
        ("header_timeout 10s", "header_timeout 1s"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text)
    upstream = (PROXIES / "upstream.conf").read_text()
    upstream = upstream.replace("127.0.0.1:8000", service[1].removeprefix("http://"))
    # The second process does not run, as during its restart.
    (folder / "upstream.conf").write_text(upstream.replace("127.0.0.1:8001", f"127.0.0.1:{free_port()}"))
    command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    with subprocess.Popen(command) as nginx:
        try:
            serving.wait_for(f"http://127.0.0.1:{port}")
            yield port
        finally:
            nginx.send_signal(signal.SIGQUIT)


def ask(port: int, path: str, *, source: str = "127.0.0.1", body: bytes | None = None, **headers: str) -> Any:
    """Return the status, the headers and the JSON of a response."""
    method = "GET" if body is None else "POST"
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(source, 0))) as client:
        client.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = client.getresponse()
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text.startswith(b"{") else text


def test_requests_reach_the_service(port: int) -> None:
    status, headers, body = ask(port, "/api/v1/me")
    assert (status, body["code"]) == (401, "api_key_missing")
    assert re.fullmatch(r"req_\w+", headers["X-Request-Id"])


def test_a_head_that_is_too_large_is_refused_in_the_shape_of_every_error(port: int) -> None:
    status, _, body = ask(port, "/api/v1/me", X_Long="x" * 70_000)
    assert (status, body["code"]) == (431, "headers_too_large")
    assert body.keys() == {"error", "code", "request_id"}


@pytest.mark.parametrize("size", [270_000, 400_000])
def test_a_body_that_is_too_large_is_refused_alike_by_the_service_and_by_nginx(port: int, size: int) -> None:
    sent = {"Content_Type": "application/json", "Idempotency_Key": "k" * 20, "Authorization": "Bearer svc_live_x"}
    status, _, body = ask(port, "/api/v1/bookings", body=b"x" * size, **sent)
    assert (status, body["code"]) in ((413, "payload_too_large"), (401, "api_key_invalid"))
    assert size < 300_000 or status == 413


def test_probes_and_metrics_are_not_served_to_the_outside(port: int) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        status, headers, _ = ask(port, path)
        assert status == 404
        assert "X-Request-Id" not in headers


def test_a_head_that_never_ends_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        while client.recv(4096):
            pass


def test_addresses_are_limited_by_the_real_client_whatever_it_claims(port: int) -> None:
    wrong = {"Authorization": "Bearer svc_wrong"}
    statuses = [ask(port, "/api/v1/me", source="127.0.0.3", **wrong)[0] for _ in range(60)]
    assert statuses == [401] * 60
    # On a busy machine a second may have passed, which allows one request more.
    assert 429 in (ask(port, "/api/v1/me", source="127.0.0.3", **wrong)[0] for _ in range(60))
    assert ask(port, "/api/v1/me", source="127.0.0.3", X_Forwarded_For="192.0.2.7", **wrong)[0] == 429
    assert ask(port, "/api/v1/me", source="127.0.0.4", **wrong)[0] == 401


def test_without_the_service_clients_get_503_with_retry_after(
    port: int, service: tuple[subprocess.Popen[str], str]
) -> None:
    service[0].kill()
    service[0].wait()
    status, headers, body = ask(port, "/api/v1/me")
    assert (status, headers["Retry-After"], body["code"]) == (503, "1", "service_unavailable")
