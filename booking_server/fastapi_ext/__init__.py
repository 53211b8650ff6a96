"""Everything that touches FastAPI's inside. Other packages use only FastAPI's manual.

FastAPI declares, documents and includes the path operations of the API. It answers a request in its own way for every
operation of a plain `APIRouter`. For the operations of an `ApiRoute` four things differ, each in its module.

`routes`: finding and running an operation
    FastAPI asks one route after the other whether it matches. `RouteTable` finds the operation by method and path in
    one look-up, and the innermost middleware runs it. An `Operation` belongs to a kind, which decides where it runs:
    on the event loop, among the reads, or in the batch of bookings (`booking_server.api.dependencies`). It returns an
    `Answer`, which is sent without validation. A path without an entry goes on to FastAPI's router, and so does an
    exception: FastAPI's handlers answer it. `tagged` marks an operation whose response has an ETag and answers
    `If-None-Match`.

`resolver`: resolving its dependencies
    FastAPI's solver looks at every declaration again in every request. A `Plan` is made once from FastAPI's own
    declaration of the route (`Dependant`). It has the same order and the same errors, and honours
    `dependency_overrides`. It covers the declarations of this API: dependencies without `yield`, path parameters,
    headers that occur once, one query model, and one body. Any other declaration is refused when the application
    starts, and belongs on a plain `APIRouter`.

`requests`: reading the request
    FastAPI reads and parses a body before it resolves dependencies, and takes the last of repeated query parameters.
    The contract checks key, rate limit and scope first (decision R1), and refuses a repeated parameter (decision R7).
    `ApiRequest` reads a bounded body without failing. `JsonBody` parses it in its turn, in pydantic's strict JSON mode.

The gain: the table, 13 % of all bookings a second and 23 % of `GET /me`; the plan, 100 to 270 microseconds of each list
(decisions/0021). Without this package the service works, slower, if `ApiRoute` is replaced by a route class that awaits
the executors itself.
"""
