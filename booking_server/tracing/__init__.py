"""Traces of requests, by OpenTelemetry. Without the setting nothing of it is imported (decision 0026)."""

from booking_server.tracing.opening import SAMPLER, open_tracing, require_packages

__all__ = ["SAMPLER", "open_tracing", "require_packages"]
