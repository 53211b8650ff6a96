"""The route class of the API. FastAPI declares and documents the path operations. For operations of an `ApiRoute`,
three things differ, each in its module.

`routes`: finding and running an operation
    FastAPI asks one route after the other whether it matches, below layers of its own. `RouteTable`, the innermost
    middleware, finds the operation by method and path in one look-up. A `PathOperation` belongs to a kind, which
    decides where it runs: on the event loop, among the reads, or in the batch of bookings
    (`booking_server.api.dependencies`). It returns an `Answer`, which is sent without validation. A path without an
    entry goes on to FastAPI.

`resolver`: resolving its dependencies
    FastAPI's solver looks at every declaration again in every request, and has to know the caller before it: a second
    hop to a thread. A `CallPlan` is made once from FastAPI's own declaration of the route (`Dependant`). It has the
    same order and the same errors, and honours `dependency_overrides`. It covers the declarations of this API:
    dependencies without `yield`, path parameters, headers that occur once, one query model, and one body. Any other
    declaration is refused when the application starts, and belongs on a plain `APIRouter`. This is the only module that
    uses FastAPI's inside.

`requests`: reading the request
    FastAPI reads and parses a body before it resolves dependencies, and takes the last of repeated query parameters.
    The contract checks key, rate limit and scope first (decision R1), and refuses a repeated parameter (decision R7).
    `ApiRequest` reads a bounded body without failing. It is parsed in its turn, in pydantic's strict JSON mode.

The gain is in decisions/0021. Without this package the service works, slower, if `ApiRoute` is replaced by a route
class that awaits the executors itself.
"""
