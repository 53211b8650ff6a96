"""The worker: deliveries on their way, and the chores beside them.

A delivery is three acts: prepared in a short transaction that leases it, sent while none is open, recorded in another.
A worker that dies leaves leases that run out; what it had sent may be sent once more, with the same event id. Any
number of workers may run beside one PostgreSQL.

`run_once` is the whole truth of a turn, for tests and for the command line; `run` keeps turns of many deliveries going
at once, so that a slow receiver holds up nobody but itself.
"""

import asyncio
import contextlib
import logging
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import webhook_verify
from booking_core import secret_keys, webhooks
from booking_core.clock import SECOND, has_passed
from booking_core.context import Installation
from booking_core.db.engine import Database, Tx
from booking_core.db.sqlite import SqliteDriver
from booking_core.errors import BookingError, Unavailable
from booking_core.repeated_log import RepeatedLog
from booking_core.settings import Settings
from booking_core.webhooks import Attempted, Claimed
from booking_server import gc_tuning
from booking_server.adapters.webhook_client import Sent, WebhookSender
from booking_server.worker.clock_watch import ClockWatch
from booking_server.worker.jobs.periodic import Chore, chores_of
from booking_server.worker.notifier import listening

log = logging.getLogger("booking.worker")

T = TypeVar("T")

SLOTS = 512
"""Attempts in flight at once, in one process."""
CLAIMED_AT_ONCE = 128
"""Of a claim and of what is recorded together a good part costs the same for one as for a hundred; more than this, and
on SQLite, which has one writer, bookings would feel it."""
SLOW_SLOTS = SLOTS // 2
"""Of them for endpoints whose last attempt timed out: however many hang, half of the slots stay for the others."""
PER_ENDPOINT = 16
FREE_PER_ENDPOINT = 4
"""An endpoint has at most one attempt in flight for so many free slots. The fewer are left, the less anybody may add
to what it has already, so that many which hang, and are not known to yet, never hold all of them."""
PER_ORGANIZATION = 10 * PER_ENDPOINT
"""Room for each of its endpoints: with less, nine that hang would keep the tenth waiting."""
POLL_S = 0.5
"""The truth is polled; waking up earlier is only a hint."""
CHORE_POLL_S = 1.0
"""The chores' truth too; nobody waits for a mail as for an event, and an idle service should cost next to nothing."""
CHORE_PAUSE_S = 0.1
"""A chore that found nothing looks again no sooner than this: every commit wakes it, and a rush is full of commits."""
BACKOFF_S = 0.5
BACKOFF_MAX_S = 5.0
"""A database that is away or full is asked less and less often, and is noticed within this when it is back."""
RECLAIM_EVERY = 5 * SECOND
_NEVER_S = 10**9
USER_AGENT = "Svc-Webhooks/1.0"


class Sender(Protocol):
    """Makes one attempt, and tells how it went; never raises for what a receiver does."""

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class InFlight:
    """What this process is sending right now."""

    by_endpoint: Counter[str] = field(default_factory=Counter)
    slow: int = 0

    @property
    def total(self) -> int:
        return self.by_endpoint.total()

    def add(self, claimed: Claimed) -> None:
        self.by_endpoint[claimed.endpoint_id] += 1
        self.slow += claimed.timed_out_before

    def remove(self, claimed: Claimed) -> None:
        self.by_endpoint[claimed.endpoint_id] -= 1
        if not self.by_endpoint[claimed.endpoint_id]:
            del self.by_endpoint[claimed.endpoint_id]  # else it grows with every endpoint ever served
        self.slow -= claimed.timed_out_before


def signed_headers(claimed: Claimed) -> list[tuple[str, str]]:
    """The headers of one attempt: the contract's, and those of the Standard Webhooks beside them (decision W14)."""
    timestamp = claimed.at // SECOND
    standard = webhook_verify.standard_headers(
        claimed.body, claimed.secrets, message_id=claimed.event_id, timestamp=timestamp
    )
    return [
        ("Content-Type", "application/json"),
        ("User-Agent", USER_AGENT),
        (webhook_verify.SIGNATURE_HEADER, webhook_verify.sign(claimed.body, claimed.secrets, timestamp=timestamp)),
        (webhook_verify.EVENT_ID_HEADER, claimed.event_id),
        (webhook_verify.EVENT_TYPE_HEADER, claimed.event_type),
        (webhook_verify.DELIVERY_ID_HEADER, claimed.attempt_id),
        *standard.items(),
    ]


class Worker:
    """Sends what is due, and does the chores."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        installation: Installation,
        sender: Sender,
        chores: Sequence[Chore] = (),
        watch: ClockWatch | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._installation = installation
        self._sender = sender
        self._watch = watch
        self._chores = {chore: asyncio.Event() for chore in chores}
        self._in_flight = InFlight()
        self._finished: list[Attempted] = []
        self._changed = asyncio.Event()
        self._reclaimed_at = 0
        self._away = RepeatedLog(log)
        self._is_behind = False
        """What is finished could not be written down, since the database was away."""

    def wake(self) -> None:
        """There may be something to do, since something was committed."""
        self._changed.set()
        for changed in self._chores.values():
            changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Turns until `stop` is set, then what is in flight is finished and recorded."""
        async with asyncio.TaskGroup() as group:
            for chore, changed in self._chores.items():
                group.create_task(self._keep_at(chore, changed, stop))
            group.create_task(self._deliver(stop))
        for chore in self._chores:
            await chore.close()

    async def _keep_at(self, chore: Chore, changed: asyncio.Event, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            changed.clear()
            try:
                done = await chore.run_once()
            except Exception as error:  # noqa: BLE001 - the loop outlives whatever one turn ran into
                self._tell(chore.name, error)
                failures += 1
                await _rest(stop, failures)
                continue
            failures = 0
            if not done:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), CHORE_PAUSE_S)
                await _wait(changed, stop, CHORE_POLL_S)

    async def _deliver(self, stop: asyncio.Event) -> None:
        tasks: set[asyncio.Task[None]] = set()
        claimed: list[Claimed] = []
        failures = 0
        while not stop.is_set():
            self._changed.clear()
            is_settling = bool(self._finished)
            # Beside each other, on two connections, and begun before what was claimed is sent: the database works for
            # all three while Python works for one of the others.
            turn = asyncio.gather(self._claim(), self._record(), return_exceptions=True)
            self._begin(claimed, tasks)
            claimed, failed = _sorted(*await turn)
            for error in failed:
                self._tell("the worker", error)
            failures = failures + 1 if failed else 0
            if failed:
                self._begin(claimed, tasks)
                claimed = []
                await _rest(stop, failures)
                continue
            # What was just recorded may be what others waited for; the claim beside it has not seen that.
            if not claimed and not is_settling:
                await _wait(self._changed, stop, POLL_S)
        self._begin(claimed, tasks)
        await asyncio.gather(*tasks)
        try:
            await self._record()
        except Exception as error:  # noqa: BLE001 - no reason to interrupt the chores: what is not recorded is sent again
            self._tell("the worker", error)

    def _tell(self, whose: str, failed: BaseException) -> None:
        """Log what a turn ran into."""
        if isinstance(failed, Unavailable) and failed.fault:
            return  # the database logs it, once for everything that runs into it
        if isinstance(failed, BookingError):
            self._away.note(logging.WARNING, whose, f"the database is away, {whose} waits: {failed}")
        else:
            log.error("a turn of %s failed", whose, exc_info=failed)

    def _begin(self, claimed: Sequence[Claimed], tasks: "set[asyncio.Task[None]]") -> None:
        for each in claimed:
            task = asyncio.create_task(self._attempt(each))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def run_once(self) -> int:
        """Does everything that is due now, one turn after the other, and gives how many attempts of deliveries that
        were."""
        for chore in self._chores:
            await chore.run_once()
        sent = 0
        while claimed := await self._turn():
            await asyncio.gather(*(self._attempt(each) for each in claimed))
            sent += len(claimed)
        return sent

    async def _turn(self) -> list[Claimed]:
        """Records what is finished, then claims what it left to be done."""
        await self._record()
        return await self._claim()

    async def _claim(self) -> list[Claimed]:
        """Takes back what was lost, and claims what there are free slots for."""
        await self._reclaim()
        free = SLOTS - self._in_flight.total
        if free <= 0:
            return []
        claimed = await self._write(
            lambda tx: webhooks.claim(
                tx,
                self._installation,
                free=min((free + 1) // 2, CLAIMED_AT_ONCE),  # so that the next turn sees how many are left
                in_flight=self._in_flight.by_endpoint,
                slow_free=max(0, SLOW_SLOTS - self._in_flight.slow),
                per_endpoint=max(1, min(PER_ENDPOINT, free // FREE_PER_ENDPOINT)),
                per_organization=PER_ORGANIZATION,
                lease_s=webhooks.lease_s(self._settings.webhook_deadline_s),
            )
        )
        for each in claimed:
            self._in_flight.add(each)
        return claimed

    async def _attempt(self, claimed: Claimed) -> None:
        try:
            sent = await self._sender.send(claimed.url, signed_headers(claimed), claimed.body)
        except Exception:  # a fault of ours: the lease runs out, and a third time the attempt counts as failed
            log.exception("the attempt %s could not be made", claimed.attempt_id)
            self._in_flight.remove(claimed)
            return
        self._finished.append(
            Attempted(
                claimed=claimed,
                started_at=claimed.at,
                duration_ms=sent.duration_ms,
                response_status=sent.status,
                response_excerpt=sent.excerpt,
                error=sent.error,
            )
        )
        self._changed.set()

    async def _record(self) -> None:
        """Writes down what is finished, all of it together. What cannot be written stays for the next turn."""
        finished, self._finished = self._finished, []
        if not finished:
            return
        try:
            await self._write(
                lambda tx: webhooks.record(
                    tx,
                    finished,
                    waits_s=self._settings.webhook_waits_s,
                    disable_after_s=self._disable_after_s,
                )
            )
        except BaseException as error:
            self._finished = finished + self._finished
            self._is_behind = isinstance(error, BookingError)
            raise
        self._is_behind = False
        for attempted in finished:
            self._in_flight.remove(attempted.claimed)

    @property
    def _disable_after_s(self) -> int:
        """No endpoint is switched off by a clock that has leapt."""
        is_settled = self._watch is None or self._watch.is_settled
        return self._settings.webhook_disable_after_s if is_settled else _NEVER_S

    async def _reclaim(self) -> None:
        """Takes back, now and then, what a worker that died had leased.

        Not before it has said itself what became of its own: when the database was away for longer than a lease, all
        of that looks lost, and would be sent once more.
        """
        now = self._database.clock()
        if not self._is_behind and has_passed(RECLAIM_EVERY, self._reclaimed_at, now):
            self._reclaimed_at = now
            waits_s = self._settings.webhook_waits_s
            await self._write(lambda tx: webhooks.reclaim_lost(tx, waits_s=waits_s))

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self._database.write, fn)


def _sorted(
    claimed: list[Claimed] | BaseException, recorded: BaseException | None
) -> tuple[list[Claimed], list[BaseException]]:
    """Return what a turn claimed, and what went wrong in it."""
    failed = [each for each in (recorded, claimed) if isinstance(each, BaseException)]
    return ([] if isinstance(claimed, BaseException) else claimed), failed


def backoff_s(failures: int) -> float:
    """Return how long to rest after so many failed turns in a row."""
    return float(min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(failures - 1, 10)))


async def _rest(stop: asyncio.Event, failures: int) -> None:
    """Wait before the next try, whatever is committed meanwhile; a stop ends it."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), backoff_s(failures))


async def _wait(changed: asyncio.Event, stop: asyncio.Event, poll_s: float) -> None:
    """Until something changed, or it is time to look anyway, or to stop."""
    waiting = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(changed.wait())}
    _, pending = await asyncio.wait(waiting, timeout=poll_s, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()


@contextlib.asynccontextmanager
async def working(worker: Worker, sender: Sender) -> AsyncIterator[None]:
    """Runs the worker beside what is inside, and stops it after."""
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running
        await sender.close()


async def serve_forever(settings: Settings) -> None:
    """A worker of its own process, until SIGINT or SIGTERM; a second one ends it without waiting for what is under
    way, which another worker takes over when its lease has run out."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def end() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        with contextlib.suppress(NotImplementedError):  # Windows has neither
            loop.add_signal_handler(number, end)
    database = Database(settings.database_url)
    if isinstance(database.driver, SqliteDriver):
        database.driver.checkpoints = True
    installation = secret_keys.with_link_keys(database, settings.installation())
    sender = WebhookSender(settings)
    watch = ClockWatch()
    chores = chores_of(settings, database, installation, watch)
    worker = Worker(settings, database, installation, sender, chores, watch)
    with gc_tuning.reduced_collection():
        async with working(worker, sender), listening(database, worker.wake):
            log.info("the worker runs")
            await stop.wait()
            log.info("the worker stops")
    database.close()
