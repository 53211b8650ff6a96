"""Open the tracing of a process with the provider of the program, or of the `OTEL_*` variables."""

import importlib.util
import os
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from booking_core.base.settings import SettingError, Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import TracerProvider

    from booking_server.tracing.tracing import Tracing

SERVICE_NAME = "booking-service"
"""The name of the service in its spans, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another."""
SAMPLER = "OTEL_TRACES_SAMPLER"
SHARE = 0.01
"""The share of the requests that are recorded where that variable is not set. OpenTelemetry would record all of them,
which costs a quarter of a booking."""
_GROUP = "opentelemetry_traces_exporter"
"""The group of entry points for exporters."""


def require_packages(settings: Settings) -> None:
    """Refuse the setting where packages are missing.

    Raises:
        SettingError: they are missing, or the package of the exporter that the environment names.
    """
    if not settings.tracing:
        return
    if importlib.util.find_spec("opentelemetry.sdk") is None:
        raise SettingError("BOOKING_TRACING needs more packages: install booking-server[otel]")
    for name in _exporters():
        _entry_point(name)


def open_tracing(settings: Settings, provider: "TracerProvider | None" = None) -> "Tracing | None":
    """Return the tracing of this process, or None if it is off.

    Args:
        provider: makes the spans; by default the provider that the program has set, or a provider from the environment
            (`OTEL_*`).

    Raises:
        SettingError: packages are missing, or the environment names an exporter that is not installed.
    """
    if provider is None and not settings.tracing:
        return None
    if provider is None:
        require_packages(settings)
    from opentelemetry import trace

    from booking_server.tracing.tracing import Tracing

    if provider is None and not isinstance(global_provider := trace.get_tracer_provider(), trace.ProxyTracerProvider):
        provider = global_provider
    if provider is not None:
        return Tracing(provider)
    environment_provider = _provider_of_environment()
    return Tracing(
        environment_provider, share=1.0 if SAMPLER in os.environ else SHARE, close=environment_provider.shutdown
    )


def _provider_of_environment() -> "SdkTracerProvider":
    """Return a provider with the sampler, limits, resource and exporters of the `OTEL_*` variables."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": SERVICE_NAME}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in _exporters():
        provider.add_span_processor(BatchSpanProcessor(_entry_point(name).load()()))
    return provider


def _exporters() -> list[str]:
    """Return the names of the exporters of the environment, as packages name them."""
    names = [name.strip() for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    return [_otlp() if name == "otlp" else name for name in names if name not in ("", "none")]


def _otlp() -> str:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    return "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"


def _entry_point(name: str) -> EntryPoint:
    for entry_point in entry_points(group=_GROUP, name=name):
        return entry_point
    raise SettingError(f"OTEL_TRACES_EXPORTER names {name}, but its package is not installed")
