"""The limits of the example proxies are no tighter than the service's, and the proxies close idle connections first."""

import re
from pathlib import Path

import pytest

from booking_cli.operator import service
from booking_core.models.limits import REQUEST_BODY_BYTES_MAX, REQUEST_HEAD_BYTES_MAX
from booking_server.adapters import stripe_intents
from booking_server.transport.protocol import Deadlines

PROXIES = Path(__file__).parents[2] / "deploy" / "proxies"
_UNITS = {"": 1, "k": 1024, "KB": 1000}
_CADDY = {
    "head": r"max_header_size (\d+)(KB)",
    "body": r"max_size (\d+)(KB)",
    "head_s": r"read_header (\d+)()s",
    "body_s": r"read_body (\d+)()s",
    "answer_s": r"response_header_timeout (\d+)()s",
    "upstream_s": r"keepalive (\d+)()s",
}
_NGINX = {
    "head": r"large_client_header_buffers 4 (\d+)(k)",
    "body": r"client_max_body_size (\d+)(k)",
    "head_s": r"client_header_timeout (\d+)()s",
    "body_s": r"client_body_timeout (\d+)()s",
    "answer_s": r"proxy_read_timeout (\d+)()s",
    "upstream_s": r"keepalive 64;\s+keepalive_timeout (\d+)()s",
}


@pytest.mark.parametrize(("file", "names", "buffers"), [("Caddyfile", _CADDY, 1), ("nginx.conf", _NGINX, 4)])
def test_the_service_decides_what_is_too_large_or_too_slow(file: str, names: dict[str, str], buffers: int) -> None:
    text = (PROXIES / file).read_text()
    limits = {}
    for name, pattern in names.items():
        match = re.search(pattern, text)
        assert match is not None, name
        limits[name] = int(match[1]) * _UNITS[match[2]]
    assert limits["head"] * buffers >= REQUEST_HEAD_BYTES_MAX
    assert limits["body"] > REQUEST_BODY_BYTES_MAX
    assert (limits["head_s"], limits["body_s"]) >= (Deadlines().head_s, Deadlines().body_s)
    assert limits["answer_s"] > stripe_intents.TIMEOUT_S
    assert limits["answer_s"] > service._SHUTDOWN_S
    assert limits["upstream_s"] < service._KEEP_ALIVE_S


@pytest.mark.parametrize("file", ["Caddyfile", "nginx.conf"])
def test_the_proxy_hides_probes_and_metrics_but_not_stripe_webhooks(file: str) -> None:
    text = (PROXIES / file).read_text()
    assert all(path in text for path in ("/healthz", "/readyz", "/metrics"))
    assert "/stripe" not in text
