"""The examples of the guide run: Python examples receive a delivery, examples in other languages verify one."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import webhook_verify
from webhook_verify import MemorySeenStore, Verifier, sign
from webhook_verify.errors import EXPLANATIONS
from webhook_verify.testing import load_vectors, make_event, signed_request

README = Path(webhook_verify.__file__).with_name("README.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    """Return the text below a heading, up to the next one."""
    return re.split(r"^#+ ", README.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, secret: str) -> Any:
    """Run the first example below a heading, and return its names."""
    monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", secret)

    def run(heading: str, **names: Any) -> dict[str, Any]:
        exec(compile(blocks("python", section(heading))[0], f"README: {heading}", "exec"), names)
        return names

    return run


@pytest.fixture
def request_now(secret: str) -> SimpleNamespace:
    headers, body = signed_request(make_event("booking.created"), secret)
    return SimpleNamespace(headers=headers, body=body)


def test_every_example_in_python_compiles() -> None:
    assert len(blocks("python")) >= 9
    for block in blocks("python"):
        compile(block, "README", "exec")


def test_the_three_lines_at_the_top_verify_a_delivery(example: Any, request_now: SimpleNamespace) -> None:
    names = example("webhook-verify", raw_body=request_now.body, request=request_now)
    assert names["delivery"].event_type == "booking.created"


@pytest.mark.parametrize(
    ("heading", "accepted"), [("FastAPI", 200), ("Starlette, Litestar, anything ASGI", 204)], ids=["FastAPI", "ASGI"]
)
def test_the_examples_for_asgi_receive(
    heading: str, accepted: int, example: Any, request_now: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    client = TestClient(example(heading)["app"])
    for body, status in ((request_now.body, accepted), (b"{}", 400)):
        assert client.post("/webhooks", content=body, headers=request_now.headers).status_code == status
    assert heading != "FastAPI" or capsys.readouterr().out.startswith("booking.created {")


def test_the_example_for_flask_receives(example: Any, request_now: SimpleNamespace) -> None:
    pytest.importorskip("flask")
    client = example("Flask", __name__="receiver")["app"].test_client()
    for body, status in ((request_now.body, 200), (b"{}", 400)):
        assert client.post("/webhooks", data=body, headers=request_now.headers).status_code == status


@pytest.mark.usefixtures("django_settings")
def test_the_example_for_django_receives(example: Any, request_now: SimpleNamespace) -> None:
    from django.test import RequestFactory

    sent = {"data": request_now.body, "content_type": "application/json", "headers": request_now.headers}
    assert example("Django")["receive"](RequestFactory().post("/", **sent)).content == b"ok"


def test_the_example_for_lambda_receives(example: Any, request_now: SimpleNamespace) -> None:
    handler = example("AWS Lambda")["handler"]
    event = {"headers": request_now.headers, "body": request_now.body.decode()}
    assert handler(event, None) == {"statusCode": 200}
    assert handler({**event, "body": "{}"}, None)["statusCode"] == 400


def test_the_example_for_a_transaction_handles_an_event_once(
    example: Any, secret: str, request_now: SimpleNamespace
) -> None:
    handled: list[Any] = []
    names = example("Duplicates", handle=lambda connection, event: handled.append(event))
    connection = sqlite3.connect(":memory:")
    connection.execute(names["seen"].ddl)
    delivery = Verifier(secret).verify(request_now.body, request_now.headers)
    for _ in range(2):
        names["receive"](connection, delivery)
    assert [event["id"] for event in handled] == [delivery.event_id]


def test_the_handler_without_an_adapter_releases_what_it_fails_on(secret: str, request_now: SimpleNamespace) -> None:
    def handle(event: Any) -> None:
        raise LookupError

    store = MemorySeenStore()
    names = {"verifier": Verifier(secret, seen=store), "raw_body": request_now.body, "request": request_now}
    with pytest.raises(LookupError):
        exec(blocks("python", section("Duplicates"))[2], {**names, "handle": handle})
    assert store.claim(request_now.headers["Svc-Event-Id"], 1)


def test_the_examples_for_tests_run(example: Any, secret: str) -> None:
    names = example("Testing", secret=secret)
    assert names["body"]


def test_every_reason_has_a_row_under_troubleshooting() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section("Troubleshooting"), flags=re.MULTILINE)) == set(EXPLANATIONS)


def test_the_command_for_openssl_computes_the_signature(
    tmp_path: Path, body: bytes, secret: str, other_secret: str, now: int
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to compare with")
    (tmp_path / "body.json").write_bytes(body)
    header = sign(body, [other_secret, secret], timestamp=now)
    (command,) = blocks("sh", section("Other languages"))
    result = subprocess.run(
        ["sh", "-ec", command],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HEADER": header, "SECRET": secret},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"v1={result.stdout.split()[-1]}" in header


def test_the_function_for_node_agrees_with_every_vector(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no Node to run the function with")
    (function,) = blocks("js", section("Other languages"))
    (tmp_path / "verify.mjs").write_text(function, encoding="utf-8")
    (tmp_path / "run.mjs").write_text(RUN_IN_NODE, encoding="utf-8")
    beyond = ("body_too_large", "header_body_mismatch", "invalid_json")
    vectors = [vector for vector in load_vectors() if vector.get("reason") not in beyond]
    result = subprocess.run(
        ["node", "run.mjs"], cwd=tmp_path, input=json.dumps(vectors), capture_output=True, text=True, check=True
    )
    verdicts = {vector["name"]: verdict for vector, verdict in zip(vectors, json.loads(result.stdout))}  # noqa: B905
    assert verdicts == {vector["name"]: vector["expect"] for vector in vectors}


RUN_IN_NODE = """
import { readFileSync } from "node:fs";
import { isValid } from "./verify.mjs";

const bodyOf = ({ text, base64, repeat, times }) =>
  base64 !== undefined ? Buffer.from(base64, "base64") : Buffer.from(text ?? repeat.repeat(times));
const verdicts = JSON.parse(readFileSync(0, "utf8")).map((vector) => {
  const [, header] = vector.headers.find(([name]) => name.toLowerCase() === "svc-signature") ?? [];
  const tolerance = vector.tolerance ?? Infinity;
  return isValid(bodyOf(vector.body), header, vector.secrets, { tolerance, now: vector.now }) ? "accept" : "reject";
});
console.log(JSON.stringify(verdicts));
"""
