"""The composition of a process that serves several cells (decision 0005).

Each cell has a separate service: database, executors, worker, health and metrics. A router finds the cell of a request
before anything of the request is looked up.
"""

from booking_server.cells.app import create_app, create_app_with_worker, serve_forever

__all__ = ["create_app", "create_app_with_worker", "serve_forever"]
