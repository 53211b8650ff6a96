"""Dependencies of path operations that write: their Idempotency-Key, and the transaction of their command."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header
from pydantic import AfterValidator

from booking_core.base.context import Caller
from booking_core.base.errors import BookingError, IdempotencyInProgress, IdempotencyKeyRequired
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingCreate
from booking_core.models.limits import IDEMPOTENCY_KEY_LENGTH_MAX, IDEMPOTENCY_KEY_LENGTH_MIN
from booking_core.models.reasons import Fault
from booking_core.records import audit, idempotency
from booking_core.records.idempotency import Answer, Once
from booking_server.api import errors
from booking_server.api.dependencies import mark_of, service_of
from booking_server.execution.reads import as_answer
from booking_server.fastapi_ext.requests import ApiRequest, RequestBody
from booking_server.request_state import state_of

_KEY_MIDDLE = f"{{{IDEMPOTENCY_KEY_LENGTH_MIN - 2},{IDEMPOTENCY_KEY_LENGTH_MAX - 2}}}"


def _key_header(*, is_required: bool) -> Any:
    return Header(
        alias="Idempotency-Key",
        description=(
            "Makes a retry safe: the same key and body are answered as the first time. Printable ASCII, such as a "
            "random UUID for each order."
        ),
        json_schema_extra={
            "minLength": IDEMPOTENCY_KEY_LENGTH_MIN,
            "maxLength": IDEMPOTENCY_KEY_LENGTH_MAX,
            "pattern": f"^[!-~][ -~]{_KEY_MIDDLE}[!-~]$",
            "examples": ["4f1c2a9e-7b3d-4e60-8a15-c9d2e6f0b7a3"],
            "x-required": is_required,
        },
    )


def _checked_key(key: str) -> str:
    """Validate the value of the header: 8 to 200 printable ASCII characters (decision I2)."""
    message = f"must be {IDEMPOTENCY_KEY_LENGTH_MIN} to {IDEMPOTENCY_KEY_LENGTH_MAX} characters long"
    if len(key) < IDEMPOTENCY_KEY_LENGTH_MIN:
        raise Fault("too_short", message)
    if len(key) > IDEMPOTENCY_KEY_LENGTH_MAX:
        raise Fault("too_long", message)
    if not (key.isascii() and key.isprintable()):
        raise Fault("forbidden_character", "must be printable ASCII")
    return key


_Key = Annotated[str, AfterValidator(_checked_key)]


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request that writes, with its Idempotency-Key if it has one."""

    request: ApiRequest
    key: str | None

    def once(self, body: RequestBody) -> Once | None:
        """Return the key with the fingerprint of the request, after the body was checked as JSON."""
        value = body.json_object(is_optional=True)
        if self.key is None:
            return None
        return Once(self.key, idempotency.fingerprint(self.request.method, self.request.scope["path"], value))

    def creation(self, caller: Caller, body: BookingCreate) -> CreateRequest:
        """Return the request to create a booking, for the batch of waiting requests."""
        assert self.request.received is not None
        once = self.once(self.request.received)
        assert once is not None
        return CreateRequest(caller, body, once, self.refuse)

    def refuse(self, error: BookingError) -> Answer:
        """Return the answer to store for a refusal that was reached by executing."""
        return errors.answer(error, state_of(self.request.scope).request_id)


@dataclass(frozen=True, slots=True)
class Command:
    """Runs the transaction of a request that writes, once for each idempotency key."""

    keyed: KeyedRequest
    takes_key: bool

    async def write_audited(
        self,
        caller: Caller,
        action: str,
        work: Callable[[Tx], Any],
        objects: audit.Objects | None = None,
    ) -> Answer:
        """Run the work as `write` does, with an entry of the audit trail in its transaction if it changes something.

        Args:
            action: the package and the verb, such as `webhooks.change`.
            objects: ids by the kind of object; by default the id of the result.
        """
        written: list[audit.AuditEntry] = []

        def audited(tx: Tx) -> object:
            before = tx.changes
            result = work(tx)
            written.clear()
            if tx.changes != before:
                object_ids = objects or {"id": result["id"]}
                written.append(
                    audit.AuditEntry(audit.API_KEY, caller.key.prefix, action, caller.organization.id, object_ids)
                )
                audit.record(tx, written[0], at=caller.at)
            return result

        answer = await self.write(caller, audited)
        for entry in written:
            entry.log()
        return answer

    async def write(
        self,
        caller: Caller,
        work: Callable[[Tx], object],
        finish: Callable[[Answer], Awaitable[Answer]] | None = None,
    ) -> Answer:
        """Run the work in a transaction, or return the answer that is stored for the key.

        Args:
            work: returns the body as a dict for JSON, as JSON bytes or as None, which is answered with the status that
                the operation declares; or the answer.
            finish: makes the final answer after the transaction, while the key is still in use, also of each replay.
        """
        request = self.keyed.request
        once = self.keyed.once(await request.receive_body())
        organization, service, status = caller.organization, service_of(request), request.scope["route"].status_code
        with service.key_in_use(mark_of(request)) if once else nullcontext() as is_refused:
            if is_refused:
                raise IdempotencyInProgress
            answer = await service.write(
                lambda tx: idempotency.execute(
                    tx, caller, once, lambda: as_answer(work(tx), status or 200), self.keyed.refuse
                ),
                organization_id=organization.id,
                is_once=not once and not self.takes_key,
                instant=caller.at if organization.clock_offset else None,
            )
            return await finish(answer) if finish else answer


_RequiredKey = Annotated[_Key | None, _key_header(is_required=True)]
_OptionalKey = Annotated[_Key | None, _key_header(is_required=False)]


def with_key(request: ApiRequest, key: _RequiredKey = None) -> KeyedRequest:
    """Return the request with its Idempotency-Key, which it must carry."""
    if not key:
        raise IdempotencyKeyRequired
    return KeyedRequest(request, key)


def with_optional_key(request: ApiRequest, key: _OptionalKey = None) -> KeyedRequest:
    """Return the request with its Idempotency-Key, if it carries one."""
    return KeyedRequest(request, key)


Keyed = Annotated[KeyedRequest, Depends(with_key)]

_ORDER_KEY = Header(
    alias="Idempotency-Key",
    description="The key that books the order. Nothing is stored for it.",
    json_schema_extra={"minLength": IDEMPOTENCY_KEY_LENGTH_MIN, "maxLength": IDEMPOTENCY_KEY_LENGTH_MAX},
)


def order_key(key: Annotated[_Key | None, _ORDER_KEY] = None) -> str | None:
    """Return the Idempotency-Key of the order that a request concerns, if it carries one."""
    return key


OrderKey = Annotated[str | None, Depends(order_key)]


async def idempotent_command(keyed: Keyed) -> Command:
    """Return the command of a request that must carry an Idempotency-Key."""
    return Command(keyed, takes_key=True)


async def optionally_idempotent_command(keyed: Annotated[KeyedRequest, Depends(with_optional_key)]) -> Command:
    """Return the command of a request that may carry an Idempotency-Key."""
    return Command(keyed, takes_key=True)


async def plain_command(request: ApiRequest) -> Command:
    """Return the command of a request that takes no Idempotency-Key."""
    return Command(KeyedRequest(request, None), takes_key=False)


IdempotentCommand = Annotated[Command, Depends(idempotent_command)]
OptionallyIdempotentCommand = Annotated[Command, Depends(optionally_idempotent_command)]
PlainCommand = Annotated[Command, Depends(plain_command)]
