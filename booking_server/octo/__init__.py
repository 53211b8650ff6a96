"""OCTO, the open standard of tours and activities, beside the API: the same keys, executors and core functions.

`models` has the bodies of the requests, `catalogue` and `bookings` carry them out with the core's functions, `views`
shows bookings, `errors` gives refusals the standard's shape, and `routers` has the operations (decisions/0040).
"""

from booking_server.octo.routers import router

__all__ = ["router"]
