"""Dependencies of path operations: the service, a transaction, and the caller with its scope; and their router.

FastAPI resolves dependencies in the order of a path operation's parameters, before it validates path, query and body.
With the caller first and the command second, that is the order of checks of decision R1.

A `def` operation declares the lane that it runs in, in one hop with the look-up of its key:

    @router.get("/{id}", response_model=Booking)
    @runs_in(Lane.LOOK_UPS)
    def get_booking(caller: BookingsReader, tx: ReadTx, booking_id: PathId) -> object: ...

An `async def` operation declares none. It runs on the event loop, after its dependencies, and returns an `Answer` or a
`Response`.
"""

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Security
from fastapi.openapi.models import HTTPBearer as BearerModel
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from booking_core.base.context import Caller
from booking_core.base.errors import IdempotencyInProgress
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Tx
from booking_core.models.events import READ_SCOPE
from booking_core.models.scopes import Scope
from booking_core.records.idempotency import Answer
from booking_server.execution.authenticator import Credentials
from booking_server.execution.service import KeyMark, Service
from booking_server.fastapi_ext import routes
from booking_server.fastapi_ext.requests import ApiRequest
from booking_server.fastapi_ext.resolver import Declaration
from booking_server.fastapi_ext.routes import Operate, PathOperation
from booking_server.request_state import state_of

# The service ---------------------------------------------------------------------------------------------------------


def service_of(request: Request) -> Service:
    """Return the executors and the settings of this process."""
    service: Service = request.app.state["service"]  # an attribute would be looked up in two other places first
    return service


async def get_service(request: Request) -> Service:
    """Return the executors and the settings of this process, as a dependency."""
    return service_of(request)


ServiceDep = Annotated[Service, Depends(get_service)]


def get_read_tx(request: Request) -> Iterator[Tx]:
    """Return the connection of this request for reads. Each of its statements sees the newest commit."""
    with service_of(request).database.reading() as tx:
        yield tx


ReadTx = Annotated[Tx, Depends(get_read_tx)]


# The caller ----------------------------------------------------------------------------------------------------------


def credentials_of(request: Request) -> Credentials:
    """Return the key of the request as it was sent, and its address. The response shows the state of its rate limit."""
    return state_of(request.scope).credentials


def mark_of(request: Request) -> KeyMark:
    """Return the mark of an idempotency key in use in this process: the API key and the idempotency key as sent."""
    headers = dict(request.scope["headers"])
    return headers.get(b"authorization"), headers.get(b"idempotency-key")


class ApiKeyScheme(SecurityBase):
    """The security scheme of the API: a key in the Authorization header."""

    scheme_name = "bearer"

    def __init__(self) -> None:
        self.model = BearerModel(
            bearerFormat="svc_ and 40 characters",
            description="An API key, made in the organization's settings and shown once.",
        )

    async def __call__(self, request: Request) -> Caller:
        """Return the caller of the request, counted against the rate limit of its key."""
        return await service_of(request).reads.authenticate(credentials_of(request))


api_key = ApiKeyScheme()


def authorize(scopes: SecurityScopes, caller: Annotated[Caller, Depends(api_key)]) -> Caller:
    """Return the caller, whose key holds every scope that the path operation asks for."""
    for scope in scopes.scopes:
        caller.require(Scope(scope))
    return caller


def authorize_any(scopes: SecurityScopes, caller: Annotated[Caller, Depends(api_key)]) -> Caller:
    """Return the caller, whose key holds at least one of the scopes; a refusal names the first."""
    accepted_scopes = [Scope(scope) for scope in scopes.scopes]
    if not any(map(caller.has, accepted_scopes)):
        caller.require(accepted_scopes[0])
    return caller


AnyCaller = Annotated[Caller, Security(authorize)]
AvailabilityReader = Annotated[Caller, Security(authorize, scopes=[Scope.AVAILABILITY_READ])]
BookingsReader = Annotated[Caller, Security(authorize, scopes=[Scope.BOOKINGS_READ])]
BookingsWriter = Annotated[Caller, Security(authorize, scopes=[Scope.BOOKINGS_WRITE])]
CheckoutsWriter = Annotated[Caller, Security(authorize, scopes=[Scope.CHECKOUTS_WRITE])]
CustomersReader = Annotated[Caller, Security(authorize, scopes=[Scope.CUSTOMERS_READ])]
CustomersWriter = Annotated[Caller, Security(authorize, scopes=[Scope.CUSTOMERS_WRITE])]
ExperiencesReader = Annotated[Caller, Security(authorize, scopes=[Scope.EXPERIENCES_READ])]
GiftCardsReader = Annotated[Caller, Security(authorize, scopes=[Scope.GIFT_CARDS_READ])]
WebhooksManager = Annotated[Caller, Security(authorize, scopes=[Scope.WEBHOOKS_MANAGE])]
FeedReader = Annotated[Caller, Security(authorize_any, scopes=list(READ_SCOPE.values()))]


# The router ----------------------------------------------------------------------------------------------------------

_LANE, _HAS_ETAG = "__booking_lane__", "__booking_has_etag__"
"""The attributes of a path operation that `runs_in` sets."""


class Lane(Enum):
    """The executor of a `def` operation."""

    LOOK_UPS = "look-ups"
    """Reads of a row, answered where the key of the request is looked up. The result is JSON, as a dict or as bytes,
    and is not validated on the way out."""
    LISTS = "lists"
    """Reads that may cost more, with two seconds for a statement."""
    BOOKINGS = "bookings"
    """Operations that return a `CreateRequest`, carried out in the batch of the waiting bookings."""


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def runs_in(lane: Lane, *, has_etag: bool = False) -> Callable[[FunctionT], FunctionT]:
    """Declare the lane of a `def` operation.

    Args:
        has_etag: the response of the read has an ETag, and answers `If-None-Match`.
    """

    def declare(function: FunctionT) -> FunctionT:
        setattr(function, _LANE, lane)
        setattr(function, _HAS_ETAG, has_etag)
        return function

    return declare


def lane_of(function: object) -> Lane | None:
    """Return the lane that an operation declares; None for one on the event loop.

    Raises:
        TypeError: a `def` operation declares none, or an `async def` operation declares one.
    """
    lane: Lane | None = getattr(function, _LANE, None)
    if inspect.iscoroutinefunction(function) != (lane is None):
        message = "a `def` operation declares its lane with `runs_in`, and an `async def` operation has none"
        raise TypeError(f"{function}: {message}")
    return lane


class ReadOperation(PathOperation):
    """An operation among the reads of the service, on the lane of look-ups or of lists."""

    provided = (api_key, get_read_tx)
    provided_late = (get_read_tx,)

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(declaration)
        self._is_list = lane_of(declaration.call) is Lane.LISTS
        self._has_etag = getattr(declaration.call, _HAS_ETAG)

    async def run(self, request: ApiRequest, body: Any) -> Answer:
        def run(tx: Tx, caller: Caller) -> Any:
            return self._tagged(request, self.plan.run(request, body, {api_key: caller, get_read_tx: tx}))

        return await service_of(request).reads.read_for(credentials_of(request), run, is_list=self._is_list)

    async def finish(self, request: ApiRequest, operate: Operate) -> Answer:
        reads = service_of(request).reads
        return await reads.read(lambda tx: self._tagged(request, operate({get_read_tx: tx})))

    def _tagged(self, request: Request, result: Any) -> Any:
        return routes.tagged_answer(result, request.scope["headers"]) if self._has_etag else result


class CreateOperation(PathOperation):
    """An operation in the batch of the waiting bookings."""

    provided = (api_key,)

    async def run(self, request: ApiRequest, body: Any) -> Answer:
        service, credentials, mark = service_of(request), credentials_of(request), mark_of(request)

        def prepare(caller: Caller) -> CreateRequest:
            create: CreateRequest = self.plan.run(request, body, {api_key: caller})
            return create

        def refuse(_: Tx, caller: Caller) -> Answer:
            prepare(caller)  # it passes its own checks first
            raise IdempotencyInProgress

        with service.key_in_use(mark) as is_refused:
            if is_refused:
                return await service.reads.read_for(credentials, refuse, is_list=False)
            return await service.create_booking(credentials, prepare, size=len(body.data))

    async def finish(self, request: ApiRequest, operate: Operate) -> Answer:
        create: CreateRequest = operate({})
        body = await request.receive_body()
        service, credentials = service_of(request), credentials_of(request)
        return await service.create_booking(credentials, lambda _: create, size=len(body.data))


_OPERATIONS: dict[Lane | None, type[PathOperation]] = {
    None: PathOperation,
    Lane.LOOK_UPS: ReadOperation,
    Lane.LISTS: ReadOperation,
    Lane.BOOKINGS: CreateOperation,
}


class LaneRoute(routes.ApiRoute):
    """A route of the API, whose operation runs in the lane that it declares."""

    def kind(self, function: Callable[..., Any]) -> type[PathOperation]:
        return _OPERATIONS[lane_of(function)]


class ApiRouter(APIRouter):
    """A router of the API. Each operation's id, which clients use, is the name of its function. The responses that all
    operations of a kind have are added, so no operation declares them."""

    def __init__(self, *, prefix: str, tags: list[str | Enum]) -> None:
        super().__init__(
            prefix=prefix, tags=tags, route_class=LaneRoute, generate_unique_id_function=lambda route: route.name
        )

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if getattr(endpoint, _HAS_ETAG, False):
            options["responses"] = routes.NOT_MODIFIED | (options["responses"] or {})
        super().add_api_route(path, endpoint, **options)
