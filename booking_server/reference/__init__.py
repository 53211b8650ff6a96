"""Serve the pages that document the API: `/` and the interactive reference at `/docs`, with their scripts and styles.

They need no key and are not in the OpenAPI document. Swagger UI is from the package `fastapi-swagger`. Everything that
a page loads is served from here, so the pages work offline and under a strict Content-Security-Policy.
"""

from booking_server.reference.pages import CONTENT_SECURITY_POLICY, missing_page, read_asset, router

__all__ = ["CONTENT_SECURITY_POLICY", "missing_page", "read_asset", "router"]
