"""The OpenAPI document: FastAPI's own, completed by `document.complete`."""
