"""From a request to its answer: the order of checks of decision R1, once for every endpoint.

route, key, rate limit, gates, scope, headers, path, query, body, idempotency, and only then the operation. All of it
runs in one hop to a thread, on one connection.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from booking_core import bookings, idempotency, keys, secret_keys
from booking_core.bookings import Create, PutOff
from booking_core.context import Caller
from booking_core.db.engine import Database, Tx
from booking_core.db.sqlite import SqliteDriver
from booking_core.errors import (
    BookingError,
    IdempotencyInProgress,
    IdempotencyKeyRequired,
    Malformed,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    is_outage,
)
from booking_core.idempotency import Answer, Once
from booking_core.models.limits import IDEMPOTENCY_KEY_LENGTH_MAX, IDEMPOTENCY_KEY_LENGTH_MIN
from booking_core.settings import RateLimit, Settings
from booking_server.adapters.address_guard import AddressGuard
from booking_server.api import auth, bodies, errors, params
from booking_server.api.clients import SeenKeys
from booking_server.api.middleware import App, Receive, Scope, Send, read_body
from booking_server.api.operations import Call, Operation
from booking_server.api.rate_limit import ANONYMOUS, Limiter, Reading, anonymous_bucket, open_limiter
from booking_server.api.reply import Reply
from booking_server.execution.executor import RETRY, BatchExecutor, Retry
from booking_server.execution.key_usage import KeyUsage

log = logging.getLogger("booking.http")

_BATCH = 32
_PREPARING_THREADS = 4


@dataclass(slots=True)
class Incoming:
    """A request as it arrived, and the rate limit's reading that goes on its answer."""

    operation: Operation
    headers: Sequence[tuple[bytes, bytes]]
    query: bytes
    path: str
    ids: Mapping[str, str]
    body: bytes | BookingError
    request_id: str
    address: str
    reading: Reading | None = None
    call: Call | None = None
    """Checked already, and prepared."""
    was_put_off: bool = False

    def refuse(self, error: BookingError) -> Answer:
        return errors.answer(error, self.request_id)


class Service:
    """What all endpoints of one process share: the database, the desks, the limiter."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.database = database
        self.installation = secret_keys.with_link_keys(database, settings.installation())
        self.is_public_address = AddressGuard(settings).is_public_url
        self.limiter: Limiter = open_limiter(settings.rate_limit_store)
        self.seen_keys = SeenKeys()
        self.running: set[tuple[str, str]] = set()
        self.committed: Callable[[], None] = lambda: None
        """Called on the loop after a request that may have written something to be delivered."""
        self.key_usage = KeyUsage(database)
        driver = database.driver
        if isinstance(driver, SqliteDriver):
            driver.checkpoints = True  # this process serves the file
        self.reads = BatchExecutor("read", self._read_batch, threads=driver.readers, batch=4)
        self.writes = BatchExecutor(
            "write", self._write_batch, threads=driver.writers, batch=_BATCH if database.is_sqlite else 1
        )
        # One thread: what waits while it commits is the next batch, and a booking in a batch of sixteen costs half of
        # what it costs in one of four. A second thread would only split what there is to do on the same processor.
        self.creates = BatchExecutor("book", self._create_batch, threads=1, batch=_BATCH, coalesce=True)
        # Apart from the writes, which on SQLite all wait for one thread: it must not wait for somebody's DNS.
        self.preparations = BatchExecutor("prepare", self._prepare_batch, threads=_PREPARING_THREADS, batch=1)

    def close(self) -> None:
        """Finishes what waits and closes the database."""
        for executor in (self.preparations, self.creates, self.writes, self.reads):
            executor.close()
        self.database.close()

    # What the threads do ---------------------------------------------------------------------------------------

    def _read_batch(self, jobs: Sequence[Incoming]) -> list[Answer | Exception]:
        with self.database.reading() as tx:
            calls = self._checked_calls(tx, jobs)
            return [
                self._read(tx, incoming, call) if isinstance(call, Call) else call
                for incoming, call in zip(jobs, calls, strict=True)
            ]

    def _read(self, tx: Tx, incoming: Incoming, call: Call) -> Answer | Exception:
        try:
            with self.database.translating_errors():
                if incoming.operation.act is None:
                    raise IdempotencyInProgress  # sent here only because its key is in use in this process
                result = incoming.operation.act(tx, call)
                return Answer(200, result if isinstance(result, bytes) else orjson.dumps(result))
        except Exception as error:  # noqa: BLE001 - handed to the one request it belongs to
            return error

    def _checked_before(self, jobs: Sequence[Incoming]) -> list[Call | Exception]:
        """The calls of requests that write, checked before their transaction begins."""
        unchecked = [incoming for incoming in jobs if incoming.call is None]
        with self.database.reading() as tx:
            checked = iter(self._checked_calls(tx, unchecked))
        return [incoming.call or next(checked) for incoming in jobs]

    def _prepare_batch(self, jobs: Sequence[Incoming]) -> list[Call | Exception]:
        return [
            self._prepared(incoming, call) if isinstance(call, Call) else call
            for incoming, call in zip(jobs, self._checked_before(jobs), strict=True)
        ]

    def _prepared(self, incoming: Incoming, call: Call) -> Call | Exception:
        assert incoming.operation.prepare is not None
        try:
            return replace(call, prepared=incoming.operation.prepare(call, self.is_public_address))
        except Exception as error:  # noqa: BLE001 - handed to the one request it belongs to
            return error

    def _write_batch(self, jobs: Sequence[Incoming]) -> list[Answer | Exception]:
        calls = self._checked_before(jobs)
        ready = [(incoming, call) for incoming, call in zip(jobs, calls, strict=True) if isinstance(call, Call)]
        work = [_writing(incoming, call) for incoming, call in ready]
        # What takes no key would be done twice when it is run again: a second endpoint would be made.
        once = [not incoming.operation.idempotency for incoming, _ in ready]
        done = iter(self.database.write_each(work, once=once))
        return [next(done) if isinstance(call, Call) else call for call in calls]

    def _create_batch(self, jobs: Sequence[Incoming]) -> list[Answer | Exception | Retry]:
        calls = self._checked_before(jobs)
        creates = [
            _creating(incoming, call) for incoming, call in zip(jobs, calls, strict=True) if isinstance(call, Call)
        ]
        done = iter(self._create_all(creates))
        return [
            _settled(incoming, call, next(done)) if isinstance(call, Call) else call
            for incoming, call in zip(jobs, calls, strict=True)
        ]

    def _create_all(self, creates: Sequence[Create]) -> Sequence[Answer | Exception | PutOff]:
        """All of them in one transaction; when that fails, one by one, so that one bad request hurts no other."""
        if not creates:
            return []
        try:
            return self.database.write(lambda tx: bookings.create_many(tx, creates))
        except Exception as error:  # noqa: BLE001 - told to its one request, or tried apart
            if len(creates) == 1 or is_outage(error):
                return [error] * len(creates)
            log.warning("a batch of %d bookings failed and is run one by one: %r", len(creates), error)
            return [self._create_all([create])[0] for create in creates]

    # The checks ------------------------------------------------------------------------------------------------

    def _checked_calls(self, tx: Tx, jobs: Sequence[Incoming]) -> list[Call | Exception]:
        """Each request's call, or its refusal; all keys are looked up with one statement."""
        tokens = [self._token(incoming) for incoming in jobs]
        known = [token for token in tokens if isinstance(token, str)]
        callers = keys.identify_many(tx, known, self.installation) if known else ()
        for text, caller in zip(known, callers, strict=True):
            self.seen_keys.note(text, isinstance(caller, Caller))
        found = iter(callers)
        calls: list[Call | Exception] = []
        for incoming, token in zip(jobs, tokens, strict=True):
            try:
                calls.append(self._checked(incoming, next(found) if isinstance(token, str) else token))
            except Exception as error:  # noqa: BLE001 - handed to the one request it belongs to
                calls.append(error)
        return calls

    def _checked(self, incoming: Incoming, caller: Caller | BookingError) -> Call:
        """The call, past every check that comes before the operation."""
        self._limit(incoming, caller)
        if isinstance(caller, BookingError):
            raise caller
        self.key_usage.note(caller)
        auth.pass_gates(caller)
        operation = incoming.operation
        if operation.scope:
            caller.require(operation.scope)
        if operation.any_scope and not any(map(caller.has, operation.any_scope)):
            caller.require(operation.any_scope[0])
        key = _idempotency_key(operation, incoming.headers)
        ids = {name: _path_id(value) for name, value in incoming.ids.items()}
        query = params.parse(operation.query, incoming.query, caller.organization.zone)
        body, once = None, None
        if operation.method != "GET":
            body, once = _body(incoming, key)
        return Call(caller, ids, query, body, once, incoming.refuse)

    def _token(self, incoming: Incoming) -> str | BookingError:
        """Return the key that the request sends, or why it is not looked up (decision K5)."""
        try:
            token = auth.bearer_token(incoming.headers)
            if token not in self.seen_keys:
                self._refuse_when_over(incoming)
            return token
        except BookingError as error:
            return error

    def _refuse_when_over(self, incoming: Incoming) -> None:
        """Refuse an address that has spent its failed requests: keys that it guesses cost no statement.

        Raises:
            RateLimited: it has.
        """
        if self.settings.rate_limit is None:
            return
        reading = self.limiter.peek(anonymous_bucket(incoming.address), ANONYMOUS)
        if reading.retry_after_s:
            incoming.reading = reading
            raise RateLimited(reading.retry_after_s)

    def _limit(self, incoming: Incoming, caller: Caller | BookingError) -> None:
        """Counts the request against its key, or against its address when it has no good one (decision K5)."""
        if isinstance(caller, RateLimited):
            return  # by its address already
        if isinstance(caller, BookingError):
            self.limit_address(incoming)
        else:
            self._take(incoming, f"key:{caller.key.id}", self.settings.rate_limit)

    def limit_address(self, incoming: Incoming) -> None:
        """Counts a request without a key."""
        self._take(incoming, anonymous_bucket(incoming.address), ANONYMOUS if self.settings.rate_limit else None)

    def _take(self, incoming: Incoming, name: str, limit: RateLimit | None) -> None:
        if limit is None:
            return
        incoming.reading = self.limiter.take(name, limit)
        if incoming.reading.retry_after_s:
            raise RateLimited(incoming.reading.retry_after_s)


def _creating(incoming: Incoming, call: Call) -> Create:
    assert incoming.operation.book is not None
    create: Create = incoming.operation.book(call)
    return replace(create, waits=True) if incoming.was_put_off else create


def _settled(incoming: Incoming, call: Call, outcome: Answer | Exception | PutOff) -> Answer | Exception | Retry:
    if not isinstance(outcome, PutOff):
        return outcome
    incoming.call, incoming.was_put_off = call, True
    return RETRY


def _writing(incoming: Incoming, call: Call) -> Any:
    def work(tx: Tx) -> Answer:
        write = incoming.operation.write
        assert write is not None
        return idempotency.execute(tx, call.caller, call.once, lambda: write(tx, call), call.refuse)

    return work


def _idempotency_key(operation: Operation, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The raw header value: 8 to 200 printable ASCII characters (decision I2)."""
    if not operation.idempotency:
        return None
    found = [value for name, value in headers if name == b"idempotency-key"]
    if len(found) > 1:
        raise Malformed.at("Idempotency-Key", "is given twice", "repeated")
    if not found or not found[0]:
        if operation.idempotency == "required":
            raise IdempotencyKeyRequired
        return None
    key = found[0]
    if not IDEMPOTENCY_KEY_LENGTH_MIN <= len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX:
        bounds = f"{IDEMPOTENCY_KEY_LENGTH_MIN} to {IDEMPOTENCY_KEY_LENGTH_MAX}"
        raise Malformed.at("Idempotency-Key", f"must be {bounds} characters long", "length")
    if not all(0x20 <= byte < 0x7F for byte in key):
        raise Malformed.at("Idempotency-Key", "must be printable ASCII", "characters")
    return key.decode("ascii")


def _path_id(text: str) -> str:
    """A canonical UUID in lower case; anything else is a resource that does not exist (decision R5)."""
    if not params.is_uuid(text):
        raise NotFound
    return text.lower()


def _body(incoming: Incoming, key: str | None) -> tuple[Any, Once | None]:
    operation = incoming.operation
    if isinstance(incoming.body, BookingError):
        raise incoming.body
    value = bodies.parse(incoming.body, incoming.headers, optional=operation.body_optional)
    body = bodies.validate(operation.body, incoming.body) if operation.body else None
    once = Once(key, idempotency.fingerprint(operation.method, incoming.path, value)) if key else None
    return body, once


class Endpoint:
    """One path: an ASGI application that answers its methods."""

    def __init__(self, operations: Sequence[Operation], service: Service) -> None:
        self.operations = {operation.method: operation for operation in operations}
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self.operations.get(scope["method"])
        if operation is None:
            refusal = MethodNotAllowed(sorted(self.operations))
            await refuse(refusal, scope)(scope, receive, send)
            return
        body = b"" if operation.method == "GET" else await read_body(scope, receive)
        incoming = Incoming(
            operation=operation,
            headers=scope["headers"],
            query=scope["query_string"],
            path=scope["path"],
            ids=scope["path_params"],
            body=body,
            request_id=scope["booking.request_id"],
            address=_address(scope),
        )
        try:
            reply = await self._reply(incoming)
        finally:
            if incoming.reading:  # for the last handler of errors, should it come to that
                scope["booking.rate_headers"] = incoming.reading.headers
        await reply(scope, receive, send)

    async def _reply(self, incoming: Incoming) -> Reply:
        try:
            answer = await self._answer(incoming)
            if not incoming.operation.act:
                self.service.committed()
            headers: list[tuple[bytes, bytes]] = []
        except BookingError as error:
            answer, headers = incoming.refuse(error), errors.headers(error)
        if incoming.reading:
            headers += incoming.reading.headers
        return Reply(answer, headers)

    async def _answer(self, incoming: Incoming) -> Answer:
        service, operation = self.service, incoming.operation
        if operation.act:
            return await service.reads.submit(incoming)
        if operation.prepare:
            incoming.call = await service.preparations.submit(incoming)
        executor = service.creates if operation.book else service.writes
        running = _in_use(incoming) if operation.idempotency else None
        if running is None:
            return await executor.submit(incoming)
        if running in service.running:
            return await service.reads.submit(incoming)
        service.running.add(running)
        try:
            return await executor.submit(incoming)
        finally:
            service.running.discard(running)


def _in_use(incoming: Incoming) -> tuple[str, str] | None:
    """What marks a key as in use while its request runs in this process: the API key and the idempotency key as sent.

    A second request with both is told at once that the first still runs, once it has passed its own checks.
    """
    found = dict(incoming.headers)
    key = found.get(b"idempotency-key")
    return (repr(found.get(b"authorization")), repr(key)) if key else None


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


def refuse(error: BookingError, scope: Scope) -> App:
    """The answer to a request that reached no operation. It counts against its address and is never one too many: the
    path is judged before the limit (decision R1)."""
    service: Service = scope["app"].state.service

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = errors.headers(error)
        if service.settings.rate_limit:
            # In a thread, because a shared store of the limiter is asked over a socket.
            bucket = anonymous_bucket(_address(scope))
            headers += (await asyncio.to_thread(service.limiter.take, bucket, ANONYMOUS)).headers
        await Reply(errors.answer(error, scope["booking.request_id"]), headers)(scope, receive, send)

    return answer
