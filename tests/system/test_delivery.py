"""Deliveries between real processes: receivers that fail, workers that are killed, secrets that change.

The promises, compared with the database and with the receivers' requests: every delivery succeeds or is dead after its
six attempts, no accepted delivery is lost, and only a kill sends a request twice.
"""

import itertools
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import orjson
import pytest
import standardwebhooks
from support.api.api import booking_body, fresh_key
from support.databases.databases import connect, run
from support.receivers.receivers import (
    CUT_BODY,
    GARBAGE,
    LOCAL,
    OK,
    Answer,
    Receipt,
    Receiver,
    Receivers,
    Worker,
    drip,
    hang,
    plain,
    reset,
    wait_until,
    workers,
)
from support.serving.servers import Service, new_world
from support.world.hooks import Hooks
from support.world.world import World

import webhook_verify
from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.db import tables
from booking_server.worker.queue import SLOTS

# Everything at once ----------------------------------------------------------------------------------------------

EVENTS = int(os.environ.get("BOOKING_TEST_EVENTS", "200"))
"""5000 is the full run; it takes some minutes."""
KILLS = int(os.environ.get("BOOKING_TEST_DELIVERY_KILLS", "4"))
RECEIVERS = 3
FAULTS = 0.3
DOOMED_ONE_IN = 25
"""So many events are never accepted by the last receiver."""
EVENTS_PER_RESOURCE = 5
SETTLED_WITHIN_S = 60 + EVENTS / 10


def faults(elsewhere: str) -> tuple[tuple[Answer, ...], ...]:
    """Return the kinds of faults of a receiver."""
    return (
        (plain(500), plain(503, "Retry-After: 1"), plain(429), plain(404)),
        (reset,),
        (drip,),
        (hang,),
        (plain(302, f"Location: {elsewhere}"), plain(308, f"Location: {elsewhere}")),
        GARBAGE,
    )


def moody(seed: int, elsewhere: str, doomed: Callable[[str], bool] = lambda _: False) -> Callable[[Receipt], Answer]:
    """Accepts seven requests of ten, in one way or another."""
    rng, kinds = random.Random(seed), faults(elsewhere)

    def choose(receipt: Receipt) -> Answer:
        if doomed(receipt.event_id) or rng.random() < FAULTS:
            return rng.choice(rng.choice(kinds))
        return rng.choice((OK, OK, OK, plain(204, body=b""), CUT_BODY))

    return choose


@pytest.mark.exhaustive
def test_every_delivery_succeeds_or_is_dead_after_six_attempts_whoever_is_killed(
    fresh_database_url: str, tmp_path: Path
) -> None:
    crew_size = 1 if fresh_database_url.startswith("sqlite") else 2
    with (
        Receivers() as receivers,
        new_world(fresh_database_url) as world,
        workers(fresh_database_url, tmp_path, crew_size, BOOKING_WEBHOOK_DEADLINE="0.6") as crew,
    ):
        canary = receivers.open()
        doomed: set[str] = set()
        opened = [
            receivers.open(
                moody(number, canary.url, doomed.__contains__ if number == RECEIVERS - 1 else lambda _: False)
            )
            for number in range(RECEIVERS)
        ]
        hooks = Hooks(world)
        endpoints = {hooks.endpoint(url=receiver.url): receiver for receiver in opened}
        published = publish(hooks, EVENTS)
        events = [event for resource in published.values() for event in resource]
        doomed.update(events[::DOOMED_ONE_IN])
        started_at = time.monotonic()
        for worker in crew:
            worker.start()
        kill_in_turn(crew, opened)
        killed_at = time.monotonic()
        wait_until(lambda: queued(fresh_database_url) == 0, "nothing is queued", within_s=SETTLED_WITHIN_S)
        settled_at = time.monotonic()
        assert [worker.stop() for worker in crew] == [0] * crew_size
        assert [worker.log for worker in crew if "Traceback" in worker.log] == []

        lost = check_attempts(world, len(events))
        assert canary.connections == 0
        twice = 0
        for endpoint, receiver in endpoints.items():
            check_receipts(world, receiver, hooks.secrets[endpoint], events)
            check_order(world, endpoint, receiver, published.values())
            twice += check_against_rows(world, endpoint, receiver)
        assert twice <= lost <= KILLS * SLOTS
        states = Counter(row["status"] for row in hooks.deliveries())
        assert states["dead"] >= len(doomed)
        requests = sum(len(receiver.receipts) for receiver in opened)
        print(
            f"\n{len(events)} events x {RECEIVERS}, {crew_size} workers, {KILLS} kills: {dict(states)}, "
            f"{requests} requests, {lost} attempts lost to kills, {twice} accepted twice, "
            f"{killed_at - started_at:.1f} s until the last kill, {settled_at - started_at:.1f} s in all"
        )


def publish(hooks: Hooks, count: int) -> dict[str, list[str]]:
    """Publish that many events and return their ids, in order, by their resources."""
    published: dict[str, list[str]] = defaultdict(list)
    resources = [tokens.new_id() for _ in range(count // EVENTS_PER_RESOURCE)]
    for _ in range(EVENTS_PER_RESOURCE):
        for resource in resources:
            published[resource] += hooks.publish(resource)
    return published


def kill_in_turn(crew: Sequence[Worker], opened: Sequence[Receiver]) -> None:
    """Kills one worker after the other while there is much to do, and starts it again at once."""
    expected = 0
    for number in range(KILLS):
        expected += EVENTS * RECEIVERS // (KILLS + 1)
        wait_until(
            lambda count=expected: sum(len(receiver.receipts) for receiver in opened) >= count,  # type: ignore[misc]
            f"{expected} requests",
            within_s=SETTLED_WITHIN_S,
        )
        worker = crew[number % len(crew)]
        worker.kill()
        worker.start()


def queued(url: str) -> int:
    """Return the number of queued deliveries, and of events that are no deliveries yet."""
    with connect(url) as connection:
        query = """
            SELECT (SELECT count(*) FROM deliveries WHERE status = 'queued')
                 + (SELECT count(*) FROM webhook_cursors c
                      JOIN webhook_subscriptions s
                        ON s.organization_id = c.organization_id AND s.endpoint_id = c.endpoint_id
                      JOIN events v ON v.organization_id = c.organization_id AND v.type = s.event_type
                       AND v.sequence > c.served_sequence AND v.sequence > s.from_sequence)"""
        return int(connection.execute(query).fetchone()[0])


def check_attempts(world: World, events: int) -> int:
    """Check that each delivery ended after one success or six failures; return the number of attempts that were lost
    with their worker."""
    deliveries, attempts = world.rows(tables.deliveries), world.rows(tables.attempts)
    by_delivery: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda row: row["number"]):
        by_delivery[attempt["delivery_id"]].append(attempt)
    assert len(deliveries) == events * RECEIVERS
    for delivery in deliveries:
        history = by_delivery[delivery["id"]]
        assert [attempt["number"] for attempt in history] == list(range(1, len(history) + 1))
        recorded = [attempt for attempt in history if not is_lost(attempt)]
        assert delivery["attempt_count"] == len(recorded) + counted_losses(history)
        assert delivery["lease_until"] is None
        if delivery["status"] == "succeeded":
            assert [attempt["error"] is None for attempt in recorded] == [False] * (len(recorded) - 1) + [True]
        else:
            assert (delivery["status"], delivery["attempt_count"]) == ("dead", 6)
            assert None not in {attempt["error"] for attempt in recorded}
    return sum(is_lost(attempt) for attempt in attempts)


def is_lost(attempt: Mapping[str, Any]) -> bool:
    """Return True if the worker was killed before it recorded the result."""
    return attempt["duration_ms"] is None


def counted_losses(attempts: Sequence[Mapping[str, Any]]) -> int:
    """Count every third of the attempts that were lost in a row: it counts as failed."""
    runs = ((lost, len(list(run_))) for lost, run_ in itertools.groupby(attempts, key=is_lost))
    return sum(length // 3 for lost, length in runs if lost)


def check_receipts(world: World, receiver: Receiver, secret: str, events: Sequence[str]) -> None:
    """Check that each request is a separate attempt and holds one of the events, with a new signature and the same
    bytes every time."""
    assert len({receipt.attempt_id for receipt in receiver.receipts}) == len(receiver.receipts)
    began = {row["id"]: row["started_at"] / SECOND for row in world.rows(tables.attempts)}
    bodies: dict[str, bytes] = {}
    for receipt in receiver.receipts:
        now = began[receipt.attempt_id]
        verified = webhook_verify.verify(receipt.body, receipt.headers, secret, tolerance=1, now=now)
        assert verified.event_id == receipt.event_id
        assert bodies.setdefault(receipt.event_id, receipt.body) == receipt.body
    assert bodies.keys() == set(events)


def check_order(world: World, endpoint: str, receiver: Receiver, published: Iterable[Sequence[str]]) -> None:
    """Check that no event is sent before the first attempt of an earlier one of its resource, and that they arrive in
    order.

    At the arrival that is true of every event but one whose first attempt timed out: its bytes wait at the receiver,
    which may still read them when the next event has come, and no sender can take them back. Deliveries that were lost
    with their worker are no exception. The lease holds the later events back until it has been sent once more. A lost
    attempt may never have begun: its worker held it until the end of the earlier one.
    """
    arrived: dict[str, int] = {}
    for place, receipt in enumerate(receiver.receipts):
        arrived.setdefault(receipt.event_id, place)
    attempts = attempts_by_event(world, endpoint)
    for of_resource in published:
        for earlier, later in itertools.combinations(of_resource, 2):
            tried = first_that_counted(attempts[earlier])
            ended_at = tried["started_at"] + (tried["duration_ms"] or 0) * 1000
            # Durations are written in whole milliseconds.
            assert attempts[later][0]["started_at"] >= ended_at - 1000 or is_lost(attempts[later][0])
            assert arrived[earlier] < arrived[later] or tried["error"] == "timeout" or is_lost(tried)


def attempts_by_event(world: World, endpoint: str) -> dict[str, list[dict[str, Any]]]:
    """Return the attempts of each event's delivery to that endpoint, the first one first."""
    event_of = {row["id"]: row["event_id"] for row in world.rows(tables.deliveries) if row["endpoint_id"] == endpoint}
    by_event: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for attempt in sorted(world.rows(tables.attempts), key=lambda row: row["number"]):
        if attempt["delivery_id"] in event_of:
            by_event[event_of[attempt["delivery_id"]]].append(attempt)
    return by_event


def first_that_counted(attempts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the first attempt with a recorded result, or the third of three that were lost in a row."""
    first_three = attempts[:3]
    return next((attempt for attempt in first_three if not is_lost(attempt)), first_three[-1])


def check_against_rows(world: World, endpoint: str, receiver: Receiver) -> int:
    """Check that each request has its attempt in the log and each success was accepted; return the number of events
    that were accepted more than once, which only a kill excuses."""
    deliveries = {row["id"]: row for row in world.rows(tables.deliveries) if row["endpoint_id"] == endpoint}
    attempts = {row["id"]: row for row in world.rows(tables.attempts) if row["delivery_id"] in deliveries}
    event_of = {id_: deliveries[row["delivery_id"]]["event_id"] for id_, row in attempts.items()}
    assert all(event_of[receipt.attempt_id] == receipt.event_id for receipt in receiver.receipts)
    accepted = {receipt.attempt_id for receipt in receiver.accepted}
    succeeded = {id_ for id_, row in attempts.items() if not is_lost(row) and row["error"] is None}
    assert succeeded <= accepted
    # Accepted requests that did not succeed: no process was left for the answer, or it came after the deadline.
    assert all(is_lost(attempts[id_]) or attempts[id_]["error"] == "timeout" for id_ in accepted - succeeded)
    ended_well = {row["event_id"] for row in deliveries.values() if row["status"] == "succeeded"}
    assert {event_of[id_] for id_ in succeeded} == ended_well
    times = Counter(event_of[id_] for id_ in accepted if id_ in succeeded or is_lost(attempts[id_]))
    return sum(count - 1 for count in times.values())


# One receiver does not suffer from the others --------------------------------------------------------------------

HANGS_FOR_S = 60
HANGING_ELSEWHERE = 50
BOOKINGS = int(os.environ.get("BOOKING_TEST_BOOKINGS", "40"))
WITH_WORKER = "booking_server.app:create_app_with_worker"


@dataclass
class RunningService:
    """A client of the service with its worker, with the key of one organization."""

    client: httpx.Client
    world: World

    def post(self, path: str, body: object, *, status: int = 201) -> Any:
        answer = self.client.post(path, json=body, headers={"Idempotency-Key": fresh_key()})
        assert answer.status_code == status, answer.text
        return answer.json()

    def endpoint(self, receiver: Receiver) -> Any:
        return self.post("/webhooks", {"url": receiver.url, "event_types": ["booking.created"]})

    def departure(self) -> str:
        return self.world.departure(self.world.experience(), seats=BOOKINGS)

    def book(self, departure: str) -> str:
        return str(self.post("/bookings", booking_body(departure))["id"])


@contextmanager
def serving(url: str, folder: Path, **settings: str) -> Iterator[RunningService]:
    service = Service(url, folder / "service.log", **(LOCAL | settings)).start(WITH_WORKER)
    try:
        base = f"http://127.0.0.1:{service.ports[0]}/api/v1"
        with new_world(url) as world:
            headers = {"Authorization": f"Bearer {world.key()}"}
            with httpx.Client(base_url=base, headers=headers, timeout=60) as client:
                yield RunningService(client, world)
    finally:
        service.kill()


def book_and_wait(service: RunningService, healthy: Receiver) -> None:
    """Create many bookings, and wait until the receiver has their events."""
    departure, committed = service.departure(), {}
    for _ in range(BOOKINGS):
        booking = service.book(departure)
        committed[booking] = time.time()
    healthy.wait_for(BOOKINGS, within_s=HANGS_FOR_S - 15)
    assert {booking_of(receipt) for receipt in healthy.receipts} == set(committed)
    waits = [1000 * (receipt.at - committed[booking_of(receipt)]) for receipt in healthy.receipts]
    print(f"\nanswer to receipt: median {median(waits):.0f} ms, p99 {quantiles(waits, n=100)[98]:.0f} ms")


def booking_of(receipt: Receipt) -> str:
    return str(orjson.loads(receipt.body)["data"]["object"]["id"])


@pytest.mark.exhaustive(but="sqlite")
def test_a_healthy_receiver_gets_everything_while_fifty_of_others_hang(fresh_database_url: str, tmp_path: Path) -> None:
    with Receivers() as receivers:
        hanging = receivers.open(lambda _: hang)
        for _ in range(HANGING_ELSEWHERE // 10):
            with new_world(fresh_database_url) as world:
                hooks = Hooks(world)
                for _ in range(10):
                    hooks.endpoint(url=hanging.url)
                hooks.publish(times=20)
        settings = {"BOOKING_WEBHOOK_DEADLINE": str(HANGS_FOR_S)}
        with serving(fresh_database_url, tmp_path, **settings) as service:
            hanging.wait_for(HANGING_ELSEWHERE)
            healthy = receivers.open()
            service.endpoint(healthy)
            book_and_wait(service, healthy)
            assert hanging.hanging >= HANGING_ELSEWHERE


@pytest.mark.exhaustive(but="sqlite")
def test_what_a_delivery_tells_of_is_there_when_its_receiver_asks(fresh_database_url: str, tmp_path: Path) -> None:
    with Receivers() as receivers, serving(fresh_database_url, tmp_path) as service:
        answers: list[httpx.Response] = []

        def ask(receipt: Receipt) -> Answer:
            answers.append(service.client.get(f"/bookings/{booking_of(receipt)}"))
            return OK

        receiver = receivers.open(ask)
        service.endpoint(receiver)
        booking = service.book(service.departure())
        receiver.wait_for(1)
        assert [(answer.status_code, answer.json()["id"]) for answer in answers] == [(200, booking)]


# Secrets ---------------------------------------------------------------------------------------------------------


def by_webhook_verify(receipt: Receipt, secret: str) -> bool:
    return webhook_verify.is_valid(receipt.body, receipt.headers, secret, now=receipt.at)


def by_standardwebhooks(receipt: Receipt, secret: str) -> bool:
    try:
        standardwebhooks.Webhook(secret).verify(receipt.body, dict(receipt.headers))
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


@pytest.mark.exhaustive(but="sqlite")
def test_a_rotation_is_seen_by_every_verifier(fresh_database_url: str, tmp_path: Path) -> None:
    """Deliveries come before, during and after the overlap of two secrets."""
    with Receivers() as receivers, serving(fresh_database_url, tmp_path) as service:
        receiver, departure = receivers.open(), service.departure()
        endpoint = service.endpoint(receiver)
        service.book(departure)
        receiver.wait_for(1)
        rotation = {"overlap_seconds": 3600}
        new = service.post(f"/webhooks/{endpoint['id']}/rotate-secret", rotation, status=200)["secret"]
        service.book(departure)
        receiver.wait_for(2)
        run(fresh_database_url, "UPDATE webhook_secrets SET expires_at = 1 WHERE expires_at IS NOT NULL")
        service.book(departure)
        receiver.wait_for(3)
    for verifies in (by_webhook_verify, by_standardwebhooks):
        assert [verifies(receipt, endpoint["secret"]) for receipt in receiver.receipts] == [True, True, False]
        assert [verifies(receipt, new) for receipt in receiver.receipts] == [False, True, True]
    assert [receipt.headers["svc-signature"].count("v1=") for receipt in receiver.receipts] == [1, 2, 1]
