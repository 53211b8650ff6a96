"""An organization sends ten times the load that the service can handle; its clients retry at once after a refusal.

The service is simulated, to count everything. Its connections and their admission are real.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.connections import Connection, SteppedLoop, respond, stepped_loop

from booking_core.base.errors import Unavailable
from booking_server.api.middleware import REFUSALS, RequestContextMiddleware
from booking_server.http import admission as rules
from booking_server.http.admission import Admission, AdmissionMiddleware

TURNS = 8
"""The iterations of the event loop in a tick of the admission; the service makes one booking in each."""
ROOM = 40
"""An organization's places in the queue of the simulated service."""
TICKS_IN_SECOND = round(1 / rules.TICK_S)
SECONDS = 2


class Shop:
    """A service that makes one booking at a time, round-robin by organization, and answers other requests at once."""

    def __init__(self, loop: SteppedLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, deque[Any]] = {}
        self.refused = 0
        """Requests refused because the queue was full."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        key = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        if scope["method"] == "GET":
            await respond(send, b"me")
        elif len(waiting := self._waiting.setdefault(key, deque())) >= ROOM:
            self.refused += 1
            scope[REFUSALS].append(Unavailable(retry_after_s=2, reason="queue"))
            await respond(send, b"full", 503)
        else:
            waiting.append(booked := self._loop.create_future())
            await booked
            await respond(send, b"booked", 201)

    def book(self) -> bool:
        """Make a booking if one waits; return True if it did."""
        for key, waiting in self._waiting.items():
            if waiting:
                waiting.popleft().set_result(None)
                self._waiting[key] = self._waiting.pop(key)  # after the others
                return True
        return False


class Client:
    """A connection that repeats its request as soon as it has the response."""

    def __init__(self, loop: SteppedLoop, app: Any, key: str, method: str = "POST") -> None:
        self._connection = Connection(loop, app)
        self._request = f"{method} /api/v1/bookings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        self._is_waiting = False

    def send(self) -> None:
        """Send the request, unless the previous one is still waiting for its response."""
        if not self._is_waiting:
            self._is_waiting = True
            self._connection.protocol.data_received(self._request)

    def settle(self) -> None:
        """Run the loop until nothing more is ready."""
        self._connection.settle()

    def answers(self) -> list[int]:
        """Return the statuses received since the last call."""
        found = [each.status for each in self._connection.responses]
        self._connection.transport.written.clear()
        self._is_waiting = self._is_waiting and not found
        return found


class World:
    """The service, a number of impatient clients of organization A, and two clients of B: one reads, one books."""

    def __init__(self, loop: SteppedLoop, impatient: int) -> None:
        self._loop = loop
        self.shop = Shop(loop)
        self.admission = Admission(lambda key: key, clock=loop.time)
        app = RequestContextMiddleware(AdmissionMiddleware(self.shop, admission=self.admission))
        self._flood = [Client(loop, app, "A") for _ in range(impatient)]
        self._reader = Client(loop, app, "B", "GET")
        self._booker = Client(loop, app, "B")
        self.of_flood: Counter[int] = Counter()
        self.made: list[bool] = []
        """True for each turn with a booking."""
        self.read: list[list[int]] = []
        """The responses to B's reader in each tick; it sends one request per tick."""
        self.booked: list[list[int]] = []
        for key in ("A", "B"):
            self._ask([known := Client(loop, app, key, "GET")])
            assert known.answers() == [200]

    def forget(self) -> None:
        """Restart the counts."""
        self.shop.refused = 0
        self.of_flood.clear()

    def close(self) -> None:
        """Answer all waiting requests."""
        while self.shop.book():
            self._reader.settle()

    def pass_tick(self) -> None:
        """Run one tick: clients of A send in every turn once they have a response; B sends last in the first turn."""
        for turn in range(TURNS):
            self._ask(self._flood if turn else [*self._flood, self._reader, self._booker])
            self.made.append(self.shop.book())
            self._reader.settle()
            for client in self._flood:
                self.of_flood.update(client.answers())
            if turn == 1:  # a booking of A may precede B's
                self.read.append(self._reader.answers())
                self.booked.append(self._booker.answers())
            self._loop.moved += rules.TICK_S / TURNS
            self._reader.settle()
        self.admission.tick(0.0)

    def _ask(self, clients: Sequence[Client]) -> None:
        for client in clients:
            client.send()
        self._reader.settle()


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    with stepped_loop() as made:
        yield made


@pytest.mark.parametrize("times", [2, 10])
def test_an_overload_costs_neither_bookings_nor_the_neighbour(loop: SteppedLoop, times: int) -> None:
    impatient = ROOM + times * TURNS
    world = World(loop, impatient)
    for _ in range(TICKS_IN_SECOND):  # fills the queue until it refuses
        world.pass_tick()
    world.forget()
    for _ in range(SECONDS * TICKS_IN_SECOND):
        world.pass_tick()
    world.close()
    assert all(world.made)
    assert world.read == [[200]] * len(world.read)
    assert world.booked == [[201]] * len(world.booked)
    assert world.of_flood[503] <= SECONDS * (rules.AT_ONCE * TICKS_IN_SECOND + impatient)
    assert world.shop.refused <= world.of_flood[201] / 8
