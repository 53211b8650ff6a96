"""One organization's slow lists, and a flood of wrong keys, hold no other caller."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from starlette.testclient import TestClient
from support.api.api import Api
from support.browser.guest_pages import Guest
from support.world.lanes import HeldWork, running
from support.world.resources import LISTINGS
from support.world.world import SECRET, World

from booking_core import customers
from booking_core.base.context import Caller
from booking_core.base.errors import ApiKeyInvalid, ApiKeyMissing, Unavailable
from booking_core.base.settings import Settings
from booking_core.catalogue import experiences
from booking_core.db.engine import Database, Tx
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
from booking_core.records.idempotency import Answer
from booking_server.execution import reads as reads_module
from booking_server.execution.authenticator import Credentials
from booking_server.execution.reads import Reads
from booking_server.execution.service import Service

PART = reads_module.LIST_THREADS // 2
"""The lanes that one organization may hold."""
MANY = 12
"""More lists than an organization has lanes."""

MISSING = "0193a000-0000-7000-8000-000000000000"
"""An id that nothing has; the same in every process of a run."""

ENDLESS = {
    "postgresql": "SELECT count(*) FROM pg_sleep(600)",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0",
}


@pytest.fixture
def service(shared_database_url: str, database: Database) -> Iterator[Service]:
    """A service of this test's own, on the test's clock."""
    settings = Settings(database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
    service = Service(settings, Database(shared_database_url, clock=database.clock))
    yield service
    service.close()


QUERIES: dict[str, tuple[Any, bool]] = {
    "me": (lambda client: lambda _, caller: {"id": caller.organization.id}, False),
    "get": (lambda client: lambda tx, caller: experiences.get(tx, caller, client.experience), False),
    "list": (lambda client: lambda tx, caller: customers.find(tx, caller, PageRequest()), True),
}
"""The reads of a client, and whether they are lists."""


class Client:
    """Sends reads with a key of one organization."""

    def __init__(self, service: Service, world: World) -> None:
        self.service = service
        self.key = world.key()
        self.experience = world.experience()

    async def ask(self, name: str) -> Any:
        query, is_list = QUERIES[name]
        return orjson.loads((await self.read(query(self), is_list=is_list)).body)

    async def read(self, run: Callable[[Tx, Caller], object], *, is_list: bool = True) -> Answer:
        return await self.service.reads.read_for(credentials(self.key), run, is_list=is_list)


def credentials(key: str, address: str = "192.0.2.1") -> Credentials:
    return Credentials([(b"authorization", f"Bearer {key}".encode())], address)


async def with_held_lanes(slow: Client, act: Callable[[HeldWork], Awaitable[Any]]) -> Any:
    """Return what `act` returns while an organization holds every lane that it may hold, and more of its lists wait."""
    await slow.ask("me")  # its key is known from now on
    work = HeldWork()
    waiting = [asyncio.ensure_future(slow.read(work)) for _ in range(MANY)]
    await work.wait_for(PART)
    try:
        result = await act(work)
        assert not any(task.done() for task in waiting)
    finally:
        work.free.set()
    assert [answer.status for answer in await asyncio.gather(*waiting)] == [200] * MANY
    return result


@pytest.mark.parametrize(
    ("is_own", "name"),
    [(False, "me"), (False, "get"), (False, "list"), (True, "me"), (True, "get")],
    ids=["me", "get", "list", "own-me", "own-get"],
)
def test_reads_are_answered_while_another_organization_holds_every_lane_that_it_may(
    service: Service, new_world: Callable[..., World], name: str, *, is_own: bool
) -> None:
    """An organization's slow lists do not hold its own reads of one row either."""
    slow, neighbour = Client(service, new_world()), Client(service, new_world())
    client = slow if is_own else neighbour

    async def fifty(work: HeldWork) -> list[Any]:
        answers = [await client.ask(name) for _ in range(25)]
        return answers + list(await asyncio.gather(*(client.ask(name) for _ in range(25))))

    assert len(asyncio.run(with_held_lanes(slow, fifty))) == 50


def test_pages_of_one_organization_s_guests_hold_no_other_organization(
    service: Service, new_world: Callable[..., World]
) -> None:
    """They have the organization's part of the lanes for lists, and its checkouts have its part of the lanes for
    keys."""
    slow, neighbour, work = new_world(), Client(service, new_world()), HeldWork()
    other = new_world()

    async def page(organization_id: str) -> str:
        return await service.reads.read_of(organization_id, lambda tx: str(tx.now()), is_list=True)

    async def scenario() -> None:
        await neighbour.ask("me")
        waiting = [asyncio.ensure_future(service.reads.read_of(slow.org, work, is_list=True)) for _ in range(MANY)]
        await work.wait_for(PART)
        for name in QUERIES:
            assert await neighbour.ask(name)
        assert await page(other.org)
        assert work.running == PART
        assert not any(task.done() for task in waiting)
        work.free.set()
        assert await asyncio.gather(*waiting) == [{}] * MANY

    asyncio.run(scenario())


def test_look_ups_of_one_network_alternate_with_other_networks(
    service: Service, new_world: Callable[..., World]
) -> None:
    """A flood from one network: a request from another network is in the first batch after the running batch, in second
    place."""
    neighbour, work, order = Client(service, new_world()), HeldWork(), []

    def look_up(name: str) -> Callable[[Tx], None]:
        return lambda _: order.append(name)

    async def scenario() -> None:
        await neighbour.ask("me")
        first = asyncio.ensure_future(service.reads.read_from("192.0.2.1", work))
        await work.wait_for(1)
        flood = [asyncio.ensure_future(service.reads.read_from("192.0.2.1", look_up("flood"))) for _ in range(100)]
        other = asyncio.ensure_future(service.reads.read_from("198.51.100.1", look_up("other")))
        assert await neighbour.ask("me")
        work.free.set()
        await asyncio.gather(first, *flood, other)

    asyncio.run(scenario())
    assert order[:2] == ["flood", "other"]


def test_two_organizations_with_slow_lists_have_equal_parts_of_the_lanes(
    service: Service, new_world: Callable[..., World]
) -> None:
    first, second = Client(service, new_world()), Client(service, new_world())

    async def second_too(work: HeldWork) -> tuple[int, int]:
        async def running(other: HeldWork) -> tuple[int, int]:
            return work.running, other.running

        return tuple(await with_held_lanes(second, running))  # type: ignore[return-value]

    assert asyncio.run(with_held_lanes(first, second_too)) == (PART, PART)


def test_another_organization_has_the_next_turn_after_a_list_that_took_one(
    service: Service, new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists that wait together run in one batch as long as a turn lasts. One of two threads is held all the time."""
    monkeypatch.setattr(reads_module, "LIST_THREADS", 2)
    at_s, order, works = [100.0], list[str](), (HeldWork(), HeldWork())
    reads = Reads(service.database, service.authenticator, clock=lambda: at_s[0])

    def listing(name: str, lasts_s: float) -> Callable[[Tx], None]:
        def run(_: Tx) -> None:
            order.append(name)
            at_s[0] += lasts_s

        return run

    async def scenario() -> None:
        holders = [asyncio.ensure_future(reads.read_of(new_world().org, work, is_list=True)) for work in works]
        for work in works:
            await work.wait_for(1)
        slow, quick, neighbour = (new_world().org for _ in range(3))
        turn_s = reads_module.LIST_TURN_S
        waiting = [
            asyncio.ensure_future(reads.read_of(organization_id, listing(name, lasts_s), is_list=True))
            for organization_id, name, lasts_s, count in (
                (slow, "slow", turn_s, 3),
                (quick, "quick", 0.0, 3),
                (neighbour, "neighbour", 0.0, 1),
            )
            for _ in range(count)
        ]
        await asyncio.sleep(0)
        works[0].free.set()
        await asyncio.gather(*waiting)
        works[1].free.set()
        await asyncio.gather(*holders)

    asyncio.run(scenario())
    reads.close()
    assert order == ["slow", "quick", "quick", "quick", "neighbour", "slow", "slow"]


def test_wrong_keys_do_not_hold_callers_whose_keys_are_known(
    service: Service, new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour, work = Client(service, new_world()), HeldWork()
    authenticate = service.authenticator.authenticate

    def slow_for_wrong_keys(tx: Tx, requests: Any) -> Any:
        if any("wrong" in str(credentials.key) for credentials in requests):
            work()
        return authenticate(tx, requests)

    monkeypatch.setattr(service.authenticator, "authenticate", slow_for_wrong_keys)

    async def scenario() -> tuple[list[Any], list[Any]]:
        await neighbour.ask("me")
        flood = [
            asyncio.ensure_future(service.reads.authenticate(credentials(f"svc_wrong{n}", f"192.0.2.{n}")))
            for n in range(200)
        ]
        booked = asyncio.ensure_future(
            service.create_booking(credentials("svc_wrong", "192.0.2.1"), lambda _: pytest.fail("no caller"), size=9)
        )
        await work.wait_for(1)
        answers = [await neighbour.ask(name) for name in QUERIES for _ in range(10)]
        assert not any(task.done() for task in (*flood, booked))
        work.free.set()
        return answers, await asyncio.gather(*flood, booked, return_exceptions=True)

    answers, refusals = asyncio.run(scenario())
    assert len(answers) == 30
    assert {type(refusal) for refusal in refusals} == {ApiKeyInvalid}


def test_the_lane_of_new_keys_pauses_for_each_wrong_one(service: Service, new_world: Callable[..., World]) -> None:
    at_s, paused = [100.0], []

    def pause(seconds: float) -> None:
        paused.append(round(seconds, 6))
        at_s[0] += seconds

    reads = Reads(service.database, service.authenticator, clock=lambda: at_s[0], pause=pause)
    each_s = reads_module.WRONG_KEY_PAUSE_S

    async def ask(*keys: str) -> list[type]:
        attempts = (reads.authenticate(credentials(key)) for key in keys)
        return [type(result) for result in await asyncio.gather(*attempts, return_exceptions=True)]

    async def scenario() -> None:
        assert await ask("") == [ApiKeyMissing]
        assert paused == []  # the first one is answered at once
        assert await ask(new_world().key()) == [Caller]
        assert paused == [each_s]  # who comes next waits for it
        assert await ask(new_world().key()) == [Caller]
        assert paused == [each_s]  # a valid key costs no pause
        assert await ask("svc_wrong") == [ApiKeyInvalid]
        at_s[0] += each_s
        assert await ask("svc_wrong") == [ApiKeyInvalid]
        assert paused == [each_s]  # guesses that are as rare cost none either
        refused = await ask(*(f"svc_wrong{n}" for n in range(200)))
        assert refused == [ApiKeyInvalid] * 200

    asyncio.run(scenario())
    reads.close()
    # All but the last batch's, at most as many as a batch has.
    assert 200 - 32 <= round(sum(paused[1:]) / each_s) <= 201


def test_a_list_that_takes_too_long_is_refused_with_the_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "LIST_TIMEOUT_S", 0.1)
    endless = Statement(text(ENDLESS[world.database.dialect.name]))

    async def scenario() -> tuple[Any, Any]:
        async with running(world) as service:
            slow = Client(service, world)
            with pytest.raises(Unavailable) as raised:
                await slow.read(lambda tx, _: tx.all(endless))
            return raised.value, await slow.ask("list")

    error, following = asyncio.run(scenario())
    assert "took longer than 2 seconds" in str(error)
    assert error.retry_after_s == 2
    assert not error.for_all
    assert following["data"] == []


# Where each request runs ---------------------------------------------------------------------------------------------


@pytest.fixture
def calls(session_app: TestClient, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, bool]]:
    """Return a list that takes the first argument of each read of the application, and whether it is a list."""
    reads = session_app.app.state.service.reads  # type: ignore[attr-defined]
    calls: list[tuple[Any, bool]] = []

    def noted(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            calls.append((arguments[0], keywords.get("is_list", False)))
            return read(*arguments, **keywords)

        return call

    for name in ("read_for", "read_of", "read_from"):
        monkeypatch.setattr(reads, name, noted(getattr(reads, name)))
    return calls


@pytest.mark.parametrize(
    ("path", "is_list"),
    [
        ("/me", False),
        *((f"{listing.path}/{MISSING}", False) for listing in LISTINGS),
        *((listing.path, True) for listing in LISTINGS),
        ("/availability?from=2026-11-20", True),
        ("/webhooks", True),
        (f"/webhooks/{MISSING}/deliveries", True),
    ],
)
def test_what_costs_one_row_runs_in_the_lanes_of_keys(
    api: Api, calls: list[tuple[Any, bool]], path: str, is_list: bool
) -> None:
    api.get(path)
    assert [flag for _, flag in calls] == [is_list]


def test_a_guest_s_page_is_read_in_its_organization_s_turn(api: Api, calls: list[tuple[Any, bool]]) -> None:
    guest = Guest(api)
    calls.clear()
    for after in ("", "/cancel", "/move", "/receipt"):
        assert guest.open(after).status_code == 200
    assert calls == [(api.world.org, True)] * 4


def test_an_event_of_stripe_is_looked_up_like_unknown_clients(
    session_app: TestClient, api: Api, calls: list[tuple[Any, bool]]
) -> None:
    session_app.post(f"/stripe/webhooks/{api.world.org}", content=b"{}", headers={"Stripe-Signature": "t=1,v1=00"})
    assert calls == [("testclient", False)]
