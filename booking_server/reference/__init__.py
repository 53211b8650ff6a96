"""The pages that document the API: `/` and the interactive reference at `/docs`.

Everything they load is served from here, so they work offline and under a strict Content-Security-Policy.
"""

from booking_server.reference.pages import router

__all__ = ["router"]
