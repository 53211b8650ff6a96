"""The worker with its real sender and receivers on sockets: each request that a receiver got is one attempt of the log,
with the receiver's answer. On both databases."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.world.hooks import Hooks
from support.world.world import SECRET, World

from booking_server.adapters.webhook_client import WebhookSender
from booking_server.worker.process import Worker

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EVENTS = 60
STAYS_OPEN = 0.6
"""The number of requests that a receiver answers on a connection that stays open."""


@pytest.fixture
def hooks(alone: World) -> Hooks:
    return Hooks(alone)


def close(call: Any) -> None:
    """End with FIN, or with a TLS alert and FIN."""


def reset(call: Any) -> None:
    call.reset()


def read_until(call: Any, is_enough: Callable[[bytes], bool]) -> None:
    """Read a part of a request, and record it."""
    read = b""
    while not is_enough(read):
        if not (byte := call.conn.recv(1)):
            return
        read += byte
    call.receiver.requests.append(read)


def faulty(seed: int) -> Callable[[Any], None]:
    """Answer some requests and keep the connection; end it elsewhere: before, in the middle of and after a request,
    within and right after an answer."""
    rng = random.Random(seed)

    def read(call: Any) -> bool:
        return bool(call.read())

    def read_head(call: Any) -> bool:
        read_until(call, lambda head: head.endswith(b"\r\n\r\n"))
        return False

    def read_half(call: Any) -> bool:
        read_until(call, lambda half: len(half.partition(b"\r\n\r\n")[2]) > 20)
        return False

    def handle(call: Any) -> None:
        while rng.random() < STAYS_OPEN:
            if not call.read():
                return
            call.send(OK)
        if rng.choice((read, read_head, read_half))(call):
            call.send(rng.choice((b"", b"HTTP/1.1 20", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", OK)))
        rng.choice((close, reset))(call)

    return handle


def settle(hooks: Hooks, settings: Any) -> None:
    """Let the worker make all attempts, each when it is due."""

    async def main() -> None:
        sender = WebhookSender(settings)
        worker = Worker(settings, hooks.database, hooks.world.installation, sender)
        while (due_at := hooks.next_due_at()) is not None:
            hooks.world.clock.at = max(hooks.world.clock.at, due_at)
            await worker.run_once()
        await sender.close()

    asyncio.run(main())


def attempt_ids(requests: list[bytes]) -> list[str]:
    matches = [re.search(rb"Svc-Delivery-Id: (\S+)\r\n", request) for request in requests]
    return [match[1].decode() for match in matches if match]


@pytest.mark.exhaustive(but="sqlite-http]")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_each_request_to_a_faulty_receiver_is_its_own_attempt(
    hooks: Hooks, settings: Any, receive: Any, authority: Any, scheme: str
) -> None:
    tls = authority.server("127.0.0.1") if scheme == "https" else None
    receivers = [receive(faulty(seed), tls=tls) for seed in range(3)]
    endpoints = {hooks.endpoint(url=receiver.url()): receiver for receiver in receivers}
    hooks.publish(times=EVENTS)
    settle(hooks, settings(secret_key=SECRET))
    rows = {row["id"]: row for row in hooks.attempts()}
    deliveries = {row["id"]: row for row in hooks.deliveries()}
    assert {row["status"] for row in deliveries.values()} <= {"succeeded", "dead"}
    for endpoint, receiver in endpoints.items():
        attempts = attempt_ids(receiver.requests)
        assert len(attempts) == len(receiver.requests) >= EVENTS
        assert set(Counter(attempts).values()) == {1}
        assert {deliveries[rows[attempt]["delivery_id"]]["endpoint_id"] for attempt in attempts} == {endpoint}
        logged = {id_ for id_, row in rows.items() if deliveries[row["delivery_id"]]["endpoint_id"] == endpoint}
        never_read = logged - set(attempts)
        assert {rows[id_]["error"] for id_ in never_read} <= {"protocol_error"}
    assert receivers[0].connections < len(receivers[0].requests), "some connections were kept"
    assert {row["error"] for row in rows.values()} == {None, "http_status", "protocol_error"}


@pytest.mark.parametrize("status", [200, 500])
def test_the_response_of_a_receiver_is_in_the_log(hooks: Hooks, settings: Any, receive: Any, status: int) -> None:
    body, excerpt = b"a\0b\x07\xff\xfe" + "🛶".encode() * 2000, "a\ufffdb\ufffd\ufffd\ufffd" + "🛶" * 1018

    def handle(call: Any) -> None:
        call.read()
        call.send(b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
        call.receiver.closing.wait(0.01)
        call.send(body)

    hooks.endpoint(url=receive(handle).url())
    hooks.publish()
    settle(hooks, settings(secret_key=SECRET))
    attempt = hooks.attempts()[0]
    assert (attempt["response_status"], attempt["response_excerpt"]) == (status, excerpt)
