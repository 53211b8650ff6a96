"""The path operations of `/healthz`, `/readyz` and `/metrics`. They need no key, are not limited and are not in the
OpenAPI document; metrics may need a token."""

import orjson
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from booking_core.base.errors import NotFound
from booking_server.monitoring.health import Report, Status
from booking_server.monitoring.monitor import Monitored

_UNAVAILABLE = 503

router = APIRouter(include_in_schema=False)


@router.api_route("/healthz", methods=["GET", "HEAD"])
async def get_health(request: Request) -> Response:
    """Return whether the process works."""
    return _response(_monitor_of(request).health.liveness())


@router.api_route("/readyz", methods=["GET", "HEAD"])
async def get_readiness(request: Request) -> Response:
    """Return whether the process should get requests."""
    return _response(await _monitor_of(request).health.readiness())


@router.get("/metrics")
async def get_metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    monitor = _monitor_of(request)
    is_own_port = getattr(request.app.state, "is_monitoring_port", False)
    is_allowed = monitor.is_allowed(request.headers.get("authorization", ""), is_own_port=is_own_port)
    if is_allowed is None:
        raise NotFound("There is no such path.")
    if not is_allowed:
        raise HTTPException(401, "The metrics need their token.", {"www-authenticate": "Bearer"})
    return Response(await monitor.exposition(), media_type=CONTENT_TYPE_LATEST)


def _monitor_of(request: Request) -> Monitored:
    monitor: Monitored = request.app.state.monitor
    return monitor


def _response(report: Report) -> Response:
    status = _UNAVAILABLE if report.status is Status.FAILED else 200
    return Response(orjson.dumps(report.as_json()), status, media_type="application/json")
