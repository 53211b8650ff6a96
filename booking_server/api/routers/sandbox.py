"""`/api/v1/sandbox`: the clock of a sandbox, and the mails that it has captured."""

from typing import Annotated

import orjson
from fastapi import Body, Query, Response, Security

from booking_core import sandboxes
from booking_core.context import Caller
from booking_core.errors import Conflict, Unprocessable
from booking_core.idempotency import Answer
from booking_core.models.pages import Page
from booking_core.models.sandbox import SandboxClock, SandboxClockAdvance, SandboxMail
from booking_core.models.scopes import Scope
from booking_server.api.dependencies import AnyCaller, OptionallyIdempotentCommand, ReadTx, authorize
from booking_server.api.openapi.refusals import refusals
from booking_server.api.parameters import ListQuery
from booking_server.api.requests import JsonBody
from booking_server.api.routing import ApiRouter

router = ApiRouter(prefix="/api/v1/sandbox", tags=["Sandbox"])

_Writer = Annotated[Caller, Security(authorize, scopes=[Scope.BOOKINGS_WRITE])]
_NOT_A_SANDBOX = Conflict("not_a_sandbox", "The organization is live.")


@router.get(
    "/clock",
    operation_id="get_sandbox_clock",
    summary="Get the clock of the sandbox",
    response_model=SandboxClock,
    response_description="The clock, and what is due at its instant.",
    responses=refusals(_NOT_A_SANDBOX),
)
def get_sandbox_clock(caller: AnyCaller, tx: ReadTx) -> object:
    """`status` is `ready` once everything that is due at the present instant is done: expired bookings, refunds, mails
    and webhook deliveries. Poll it after an advance. Needs a key of a sandbox (`svc_test_`), with any scopes."""
    return sandboxes.clock(tx, caller)


_ADVANCE_EXAMPLE = {"seconds": 86_400}


@router.post(
    "/clock/advance",
    operation_id="advance_sandbox_clock",
    summary="Move the clock of the sandbox ahead",
    response_model=SandboxClock,
    response_description="The clock after the advance, with what has become due.",
    responses=refusals(
        _NOT_A_SANDBOX,
        Unprocessable.at("to", "The clock of a sandbox never goes back.", "in_the_past"),
    ),
)
async def advance_sandbox_clock(
    caller: _Writer,
    command: OptionallyIdempotentCommand,
    body: Annotated[SandboxClockAdvance, JsonBody(), Body(openapi_examples={"default": {"value": _ADVANCE_EXAMPLE}})],
) -> Response:
    """Moves the clock by `seconds`, or `to` an instant; it never goes back, and is at most 731 days ahead of the real
    time. What becomes due is done at the new instant, as by a service that was away meanwhile: so move the clock in
    steps to see each retry of a webhook. Signatures of webhooks, rate limits and retention keep to the real time.
    `details` gives the reason of a `conflict` (`not_a_sandbox`) and of a 422 (`in_the_past`, `too_far_ahead`)."""
    return await command.write(caller, lambda tx: Answer(200, orjson.dumps(sandboxes.advance(tx, caller, body))))


@router.get(
    "/mails",
    operation_id="list_sandbox_mails",
    summary="List the mails that the sandbox has captured",
    response_model=Page[SandboxMail],
    response_description="A page of mails, in the order in which they were written.",
    responses=refusals(_NOT_A_SANDBOX),
)
def list_sandbox_mails(caller: _Writer, tx: ReadTx, query: Annotated[ListQuery, Query()]) -> object:
    """Mails to guests and to staff, of which none is sent. The text holds the guest's link, hence the scope
    `bookings:write`."""
    return sandboxes.find_mails(tx, caller, query.page)
