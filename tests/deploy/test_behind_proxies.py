"""nginx and Caddy with the configurations of deploy/, in front of `booking serve`: limits, addresses and outages."""

import http.client
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.serving import components, forking, serving
from support.serving.servers import free_port

PROXIES = Path(__file__).parents[2] / "deploy" / "proxies"
LIMITS = {"nginx": 300 * 1024 + 1, "caddy": 300_000}
"""The first sizes of a body that a proxy refuses in any case."""
SENT = {"Content-Type": "application/json", "Idempotency-Key": "k" * 20, "Authorization": "Bearer svc_live_x"}

on_nginx = pytest.mark.parametrize("proxy", ["nginx"], indirect=True)


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxy(request: pytest.FixtureRequest) -> str:
    """The program, which must be installed: apt-get install nginx-light caddy."""
    name = str(request.param)
    return components.program(name, {"nginx": "nginx-light"}.get(name, name))


@pytest.fixture(scope="module")
def folder(proxy: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(Path(proxy).name)


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[tuple[forking.Process, str]]:
    process = serving.started(folder, "serve", "--port", "0", "--no-worker", BOOKING_TRUSTED_PROXIES="127.0.0.1/32")
    with serving.serving(process, is_killed=True) as (address, _):
        yield process, address.removeprefix("http://")


@pytest.fixture(scope="module")
def port(proxy: str, folder: Path, service: tuple[forking.Process, str]) -> Iterator[int]:
    """Run the proxy with its configuration unchanged except for addresses, files, certificates and one short timeout.

    The second process does not run, as during its restart.
    """
    port = free_port()
    processes = {"127.0.0.1:8000": service[1], "127.0.0.1:8001": f"127.0.0.1:{free_port()}"}
    if proxy.endswith("nginx"):
        changes = {"listen 8080": f"listen {port}", "/tmp/": f"{folder}/", "header_timeout 10s": "header_timeout 1s"}
        configure("nginx.conf", folder, changes)
        configure("upstream.conf", folder, processes)
        command = [proxy, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    else:
        changes = {"\n{\n": "\n{\n\tadmin off\n\tauto_https off\n", "booking.example.com": f"http://127.0.0.1:{port}"}
        configure("Caddyfile", folder, changes | processes | {"lb_try_duration 4s": "lb_try_duration 500ms"})
        command = [proxy, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    env = os.environ | {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=env, stderr=log) as running:
        try:
            serving.wait_for(f"http://127.0.0.1:{port}")
            yield port
        finally:
            running.terminate()


def configure(file: str, folder: Path, changes: Mapping[str, str]) -> None:
    """Write a configuration file of deploy/ with these changes."""
    text = (PROXIES / file).read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / file).write_text(text)


def ask(port: int, path: str, *, source: str = "127.0.0.1", body: bytes | None = None, **headers: str) -> Any:
    """Return the status, the headers and the JSON of a response."""
    method = "GET" if body is None else "POST"
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(source, 0))) as client:
        client.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = client.getresponse()
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text.startswith(b"{") else text


def test_requests_reach_the_process_that_works_while_the_other_is_away(port: int) -> None:
    for path, body in (("/api/v1/me", None), ("/api/v1/bookings", b"{}")) * 5:
        status, headers, answer = ask(port, path, body=body, **SENT)
        assert (status, answer["code"]) == (401, "api_key_invalid")
        assert re.fullmatch(r"req_\w+", headers["X-Request-Id"])


def test_probes_and_metrics_are_not_served_to_the_outside(port: int) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        status, headers, _ = ask(port, path)
        assert (status, headers["X-Request-Id"]) == (404, None)


@pytest.mark.parametrize("size", [270_000, 300_000, 400_000, 3_000_000])
def test_service_and_proxy_refuse_a_large_body_alike(port: int, proxy: str, size: int) -> None:
    status, _, body = ask(port, "/api/v1/bookings", body=b"x" * size, **SENT)
    assert (status, body["code"]) in ((413, "payload_too_large"), (401, "api_key_invalid"))
    assert size < LIMITS[Path(proxy).name] or status == 413


@on_nginx
def test_the_refusal_of_a_large_head_has_the_common_error_shape(port: int) -> None:
    status, _, body = ask(port, "/api/v1/me", X_Long="x" * 70_000)
    assert (status, body["code"]) == (431, "headers_too_large")
    assert body.keys() == {"error", "code", "request_id"}


@on_nginx
def test_a_head_that_never_ends_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        while client.recv(4096):
            pass


@on_nginx
def test_addresses_are_limited_by_the_real_client_whatever_it_claims(port: int) -> None:
    wrong = {"Authorization": "Bearer svc_wrong"}
    statuses = [ask(port, "/api/v1/me", source="127.0.0.3", **wrong)[0] for _ in range(60)]
    assert statuses == [401] * 60
    # On a busy machine a second may have passed, which allows one request more.
    assert 429 in (ask(port, "/api/v1/me", source="127.0.0.3", **wrong)[0] for _ in range(60))
    assert ask(port, "/api/v1/me", source="127.0.0.3", X_Forwarded_For="192.0.2.7", **wrong)[0] == 429
    assert ask(port, "/api/v1/me", source="127.0.0.4", **wrong)[0] == 401


def test_without_the_service_clients_get_503_with_retry_after(port: int, service: tuple[forking.Process, str]) -> None:
    service[0].kill()
    service[0].wait()
    status, headers, body = ask(port, "/api/v1/me")
    assert (status, headers["Retry-After"], body["code"]) == (503, "1", "service_unavailable")
    assert body.keys() == {"error", "code", "request_id"}
